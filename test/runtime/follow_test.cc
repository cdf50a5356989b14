// Launches that run along a library call, line by line.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>

#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "runtime/parallel_for.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

std::array<std::atomic<int>, 256> g_visits;  // by line

// buffers: y, out; sizes: elements of a line. out = max(y, 0), NaN stays.
int64_t line_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi, void*) {
  const float* const y = static_cast<const float*>(buffers[0]);
  float* const out = static_cast<float*>(buffers[1]);
  for (int64_t line = lo; line < hi; ++line) ++g_visits[static_cast<size_t>(line)];
  for (int64_t i = lo * sizes[0]; i < hi * sizes[0]; ++i) out[i] = y[i] < 0 ? 0 : y[i];
  return 0;
}

/// A square image and kernel.
struct Shape {
  int64_t images, in, out, size, kernel;
  bool channels_last = true;

  int64_t lines() const { return images * size; }
  int64_t elements(int64_t channels) const { return images * size * size * channels; }
};

abi::TensorRef image_ref(uint32_t number, const Shape& shape, int64_t channels) {
  const int64_t size = shape.size, pixel = shape.channels_last ? channels : 1;
  const int64_t channel = shape.channels_last ? 1 : size * size;
  abi::TensorRef ref;
  ref.buffer = number;
  for (const int64_t extent : {shape.images, channels, size, size})
    ref.sizes.push_back(constant(extent));
  for (const int64_t stride : {size * size * channels, channel, size * pixel, pixel})
    ref.strides.push_back(constant(stride));
  ref.offset = constant(0);
  return ref;
}

abi::TensorRef weight_ref(uint32_t number, const Shape& shape) {
  abi::TensorRef ref;
  ref.buffer = number;
  for (const int64_t extent : {shape.out, shape.in, shape.kernel, shape.kernel})
    ref.sizes.push_back(constant(extent));
  const int64_t area = shape.kernel * shape.kernel;
  for (const int64_t stride : {shape.in * area, area, shape.kernel, int64_t{1}})
    ref.strides.push_back(constant(stride));
  ref.offset = constant(0);
  return ref;
}

/// x, w -> y, a temporary -> out.
abi::Program convolution_and_relu(const Shape& shape, bool follows) {
  const int64_t weights = shape.out * shape.in * shape.kernel * shape.kernel;
  const int64_t padding = shape.kernel / 2;
  abi::Program program;
  program.name = "convolution_and_relu";
  program.inputs = {vector_input("x", constant(shape.elements(shape.in))),
                    vector_input("w", constant(weights))};
  program.buffers = {buffer(BufferKind::input, 0, constant(4 * shape.elements(shape.in))),
                     buffer(BufferKind::input, 1, constant(4 * weights)),
                     buffer(BufferKind::temporary, 0, constant(4 * shape.elements(shape.out))),
                     buffer(BufferKind::output, 0, constant(4 * shape.elements(shape.out)))};
  program.kernels.resize(1);
  abi::LibraryCall call;
  call.op = abi::LibraryOp::convolution;
  call.args = {image_ref(0, shape, shape.in), weight_ref(1, shape)};
  call.out = image_ref(2, shape, shape.out);
  call.conv = {{1, 1}, {padding, padding}, {1, 1}, 1};
  abi::Launch relu = launch(0, {2, 3}, constant(shape.lines()), 100000);
  relu.sizes = {constant(shape.size * shape.out)};
  relu.follows = follows;
  relu.takeovers = {{1, 0}};
  program.instructions = {call, relu};
  program.outputs = {vector_output(3, constant(shape.elements(shape.out)))};
  return program;
}

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> made(static_cast<size_t>(count));
  for (float& value : made) value = values(random);
  return made;
}

std::vector<float> run(abi::Program program, const std::vector<Argument>& arguments,
                       ProgramMemory memory) {
  LoadedProgram loaded(std::move(program), {line_kernel});
  loaded.set_memory(memory);
  return values_of(loaded.run(arguments)[0]);
}

void expect_same(const Shape& shape) {
  const int64_t weights = shape.out * shape.in * shape.kernel * shape.kernel;
  const std::vector<Argument> arguments{vector_of(random_values(shape.elements(shape.in), 1)),
                                        vector_of(random_values(weights, 2))};
  for (const ProgramMemory memory : {ProgramMemory::arena, ProgramMemory::blocks}) {
    const std::vector<float> apart = run(convolution_and_relu(shape, false), arguments, memory);
    for (std::atomic<int>& count : g_visits) count = 0;
    const std::vector<float> along = run(convolution_and_relu(shape, true), arguments, memory);
    EXPECT_EQ(along, apart);
    for (int64_t line = 0; line < static_cast<int64_t>(g_visits.size()); ++line)
      EXPECT_EQ(g_visits[static_cast<size_t>(line)], line < shape.lines() ? 1 : 0) << line;
  }
}

// Cut by rows, by channels (where the kernel waits for all of them), and in a layout that is copied
// at the end.
TEST(FollowTest, EachLineOnceAndTheSameBits) {
  const int saved = threads();
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    expect_same({2, 16, 32, 28, 3});
    expect_same({3, 256, 512, 7, 1});
    expect_same({1, 8, 24, 17, 3});
    expect_same({2, 16, 32, 12, 3, false});
  }
  set_threads(saved);
}

// The result lies where the call's does, which nobody else reads.
TEST(FollowTest, ResultTakesTheCallsPlace) {
  const Shape shape{1, 8, 64, 64, 3};
  const int64_t bytes = 4 * shape.elements(64);
  LoadedProgram loaded(convolution_and_relu(shape, true), {line_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  const std::vector<Argument> arguments{vector_of(random_values(shape.elements(8), 1)),
                                        vector_of(random_values(8 * 64 * 9, 2))};
  loaded.run(arguments);
  allocator().reset_peak();
  const int64_t before = allocator().counters().live_bytes;
  const std::vector<Result> results = loaded.run(arguments);
  EXPECT_LT(allocator().counters().peak_live_bytes - before, bytes + bytes / 2);
}

void expect_damaged(abi::Program program) {
  EXPECT_THROW(LoadedProgram(std::move(program), {line_kernel}), UserError);
}

TEST(FollowTest, WhatFollowsNothingIsDamaged) {
  const Shape shape{1, 8, 8, 4, 1};
  abi::Program program = convolution_and_relu(shape, true);
  program.instructions.erase(program.instructions.begin());
  expect_damaged(program);
  program = convolution_and_relu(shape, true);
  program.instructions.push_back(program.instructions[1]);
  expect_damaged(program);
  program = convolution_and_relu(shape, true);
  std::get<abi::Launch>(program.instructions[1]).errors = {"it may fail"};
  expect_damaged(program);
}

}  // namespace
}  // namespace tandem::runtime
