// Results that are made in the memory of what they are made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

constexpr int64_t kElements = 1 << 20;
constexpr int64_t kBytes = 4 * kElements;
constexpr int64_t kLittle = 4096;

int64_t peak_of(const std::function<void()>& run) {
  allocator().reset_peak();
  const int64_t before = allocator().counters().live_bytes;
  run();
  return allocator().counters().peak_live_bytes - before;
}

/// x -> t1 -> t2 -> out, each of which may lie in the one before.
abi::Program chain_in_place() {
  abi::Program program = chain();
  program.guards.clear();
  for (abi::Instruction& instruction : program.instructions)
    std::get<abi::Launch>(instruction).takeovers = {{1, 0}};
  return program;
}

// buffers: x, y, out
int64_t add_kernel(void* const* buffers, const int64_t*, int64_t lo, int64_t hi, void*) {
  const float* const x = static_cast<const float*>(buffers[0]);
  const float* const y = static_cast<const float*>(buffers[1]);
  float* const out = static_cast<float*>(buffers[2]);
  for (int64_t i = lo; i < hi; ++i) out[i] = x[i] + y[i];
  return 0;
}

TEST(TakeOverTest, OneBlockGoesFromArgumentToResult) {
  LoadedProgram loaded(chain_in_place(), {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  std::vector<Result> results;
  const int64_t peak = peak_of([&] {
    std::vector<Argument> arguments{vector_of(Floats(kElements, 3))};
    results = loaded.run_and_drop(std::move(arguments));
  });
  EXPECT_EQ(values_of(results[0]), Floats(kElements, 24));
  EXPECT_LT(peak, kBytes + kLittle);
}

TEST(TakeOverTest, WhatOthersHoldIsNotWrittenOver) {
  LoadedProgram loaded(chain_in_place(), {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  const Array held = vector_of(Floats(kElements, 5));
  std::vector<float> own(kElements, 7);
  const Array borrowed = Array::borrow(own.data(), DType::f32, Dims{kElements});
  std::vector<Result> results;
  const int64_t peak = peak_of([&] { results = loaded.run_and_drop({held}); });
  EXPECT_LT(peak, kBytes + kLittle);  // of t1, then
  EXPECT_EQ(values_of(results[0]), Floats(kElements, 40));
  EXPECT_EQ(values_of(held), Floats(kElements, 5));
  EXPECT_EQ(values_of(loaded.run_and_drop({borrowed})[0]), Floats(kElements, 56));
  EXPECT_EQ(own, Floats(kElements, 7));
  EXPECT_EQ(values_of(loaded.run(std::vector<Argument>{held})[0]), Floats(kElements, 40));
  EXPECT_EQ(values_of(held), Floats(kElements, 5));
}

// A part of a block is not the block, and an array that lies otherwise is copied first.
TEST(TakeOverTest, PartsOfBlocksAreNotTaken) {
  LoadedProgram loaded(chain_in_place(), {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  for (const int64_t stride : {1, 2}) {
    Array whole = vector_of(Floats(2 * kElements, 3));
    std::vector<Argument> arguments{whole.as_strided(Dims{kElements}, Dims{stride})};
    whole = Array();
    EXPECT_EQ(values_of(loaded.run_and_drop(std::move(arguments))[0]), Floats(kElements, 24));
  }
}

TEST(TakeOverTest, TemporariesShareAPlaceInTheArena) {
  LoadedProgram loaded(chain_in_place(), {double_kernel});
  const std::vector<Argument> arguments{vector_of(Floats(1024, 3))};
  EXPECT_EQ(values_of(loaded.run(arguments)[0]), Floats(1024, 24));
  EXPECT_EQ(loaded.arena_bytes(), 4096);
  abi::Program apart = chain();
  LoadedProgram other(apart, {double_kernel});
  EXPECT_EQ(values_of(other.run(arguments)[0]), Floats(1024, 24));
  EXPECT_EQ(other.arena_bytes(), 8192);
}

// A place in the arena cannot be handed out: what a result takes over is a block from its first
// use.
TEST(TakeOverTest, AResultTakesOverWhatWasMadeForIt) {
  LoadedProgram loaded(chain_in_place(), {double_kernel});
  const std::vector<Argument> arguments{vector_of(Floats(kElements, 3))};
  std::vector<Result> results;
  const int64_t peak = peak_of([&] { results = loaded.run(arguments); });
  EXPECT_EQ(values_of(results[0]), Floats(kElements, 24));
  EXPECT_EQ(values_of(std::get<Array>(arguments[0])), Floats(kElements, 3));
  EXPECT_EQ(loaded.arena_bytes(), 0);
  EXPECT_LT(peak, kBytes + kLittle);
}

/// out = (x + y) + t where t = 2 (x + y): x + y is read once more behind t.
abi::Program read_again() {
  abi::Program program;
  program.slots = 1;
  program.inputs = {vector_input("x", slot(0)), vector_input("y", slot(0))};
  const SizeCode bytes = times(slot(0), 4);
  program.buffers = {buffer(BufferKind::input, 0, bytes), buffer(BufferKind::input, 1, bytes),
                     buffer(BufferKind::temporary, 0, bytes),
                     buffer(BufferKind::temporary, 0, bytes), buffer(BufferKind::output, 0, bytes)};
  program.kernels.resize(2);
  program.instructions = {launch(0, {0, 1, 2}, slot(0)), launch(1, {2, 3}, slot(0)),
                          launch(0, {2, 3, 4}, slot(0))};
  program.outputs = {vector_output(4, slot(0))};
  std::get<abi::Launch>(program.instructions[0]).takeovers = {{2, 0}, {2, 1}};
  std::get<abi::Launch>(program.instructions[1]).takeovers = {{1, 0}};
  std::get<abi::Launch>(program.instructions[2]).takeovers = {{2, 0}, {2, 1}};
  return program;
}

TEST(TakeOverTest, NotBeforeTheLastUse) {
  for (const ProgramMemory memory : {ProgramMemory::arena, ProgramMemory::blocks}) {
    LoadedProgram loaded(read_again(), {add_kernel, double_kernel});
    loaded.set_memory(memory);
    std::vector<Result> results;
    const int64_t peak = peak_of([&] {
      std::vector<Argument> arguments{vector_of(Floats(kElements, 1)),
                                      vector_of(Floats(kElements, 2))};
      results = loaded.run_and_drop(std::move(arguments));
    });
    EXPECT_EQ(values_of(results[0]), Floats(kElements, 9));
    EXPECT_LT(peak, (memory == ProgramMemory::blocks ? 2 : 6) * kBytes + kLittle);
  }
}

// buffers: x, y, out; sizes: elements. x[i] + y[n - 1 - i]
int64_t mirrored_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi, void*) {
  const float* const x = static_cast<const float*>(buffers[0]);
  const float* const y = static_cast<const float*>(buffers[1]);
  float* const out = static_cast<float*>(buffers[2]);
  for (int64_t i = lo; i < hi; ++i) out[i] = x[i] + y[sizes[0] - 1 - i];
  return 0;
}

// The launch has one buffer under two numbers, and may write over what it reads by the first.
TEST(TakeOverTest, NotWhatALaunchReadsByTwoNumbers) {
  abi::Program program = chain_in_place();
  abi::Launch mirrored = launch(1, {2, 2, 3}, slot(0));
  mirrored.sizes = {slot(0)};
  mirrored.takeovers = {{2, 0}};
  program.kernels.resize(2);
  program.instructions[2] = mirrored;
  LoadedProgram loaded(program, {double_kernel, mirrored_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  Floats counted(1000);
  std::iota(counted.begin(), counted.end(), 0.0F);
  EXPECT_EQ(values_of(loaded.run_and_drop({vector_of(counted)})[0]), Floats(1000, 4 * 999));
}

abi::Program of_known_size(abi::Program program) {
  const SizeCode elements = constant(kElements);
  for (abi::Input& input : program.inputs) input.sizes = {elements};
  for (abi::Buffer& each : program.buffers) each.bytes = constant(kBytes);
  for (abi::Instruction& instruction : program.instructions)
    std::get<abi::Launch>(instruction).tasks = elements;
  for (abi::Output& output : program.outputs) output.ref.sizes = {elements};
  program.slots = 0;
  return program;
}

// What is planned is what is taken, whether the argument's memory may be had or not.
TEST(TakeOverTest, ThePlanCountsAMemoryOnce) {
  LoadedProgram loaded(of_known_size(chain_in_place()), {double_kernel});
  loaded.set_memory(ProgramMemory::blocks);
  const std::vector<int64_t> freed{kBytes};
  EXPECT_EQ(loaded.call_memory(freed).most, 0);
  EXPECT_EQ(loaded.call_memory().most, kBytes);
  const CallTimeline timeline = loaded.call_timeline(freed);
  EXPECT_EQ(timeline.held, (std::vector<int64_t>{0, 0, 0}));
  for (uint32_t step = 0; step < 3; ++step) {
    const auto is_held = [&](const CallTimeline::Block& block) {
      return block.first <= step && step <= block.last && block.last != UINT32_MAX;
    };
    EXPECT_EQ(std::ranges::count_if(timeline.blocks, is_held), 1) << step;
  }
}

TEST(TakeOverTest, NumbersOfAFileAreVerified) {
  abi::Program program = chain_in_place();
  std::get<abi::Launch>(program.instructions[1]).takeovers = {{2, 0}};
  EXPECT_THROW(LoadedProgram(program, {double_kernel}), UserError);
}

}  // namespace
}  // namespace tandem::runtime
