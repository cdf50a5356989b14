// Numbers that a program reads while it runs: what has such a size gets its memory, its extents and
// its scratch there, from call to call anew; and programs that use a number before it is there are
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// out = 2 x through scratch, by one thread or several.
int64_t scratch_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi,
                       void* scratch) {
  float* const own = static_cast<float*>(scratch);
  for (int64_t i = 0; i < sizes[0]; ++i) own[i] = static_cast<const float*>(buffers[0])[i];
  for (int64_t i = lo; i < hi; ++i) static_cast<float*>(buffers[1])[i] = 2 * own[i];
  return 0;
}

abi::ReadScalar read_of(uint32_t from, uint32_t into) {
  abi::ReadScalar read;
  read.source = {from, {}, {}, constant(0)};
  read.slot = into;
  read.least = 0;
  read.most = 1000;
  read.name = "data0";
  read.label = "tandem.read_scalar";
  return read;
}

/// 4 x for the first n elements, where n is data: a temporary and an output of n elements.
abi::Program first_elements() {
  abi::Program program;
  program.name = "first";
  program.slots = 1;
  program.inputs = {vector_input("x", constant(1000)), vector_input("n", constant(1))};
  program.inputs[1].dtype = DType::i64;
  const SizeCode bytes = times(slot(0), 4);
  program.buffers = {buffer(BufferKind::input, 0, constant(4000)),
                     buffer(BufferKind::input, 1, constant(8)),
                     buffer(BufferKind::temporary, 0, bytes), buffer(BufferKind::output, 0, bytes)};
  program.buffers[1].dtype = DType::i64;
  program.kernels.resize(2);
  abi::Launch first = launch(0, {0, 2}, slot(0));
  abi::Launch second = launch(1, {2, 3}, slot(0), 100000);
  second.sizes = {slot(0)};
  second.scratch_bytes = bytes;
  program.instructions = {read_of(1, 0), first, second};
  program.outputs = {vector_output(3, slot(0))};
  return program;
}

std::vector<float> run(LoadedProgram& program, int64_t count) {
  const Array x = Array::zeros(DType::f32, Dims{1000});
  for (int64_t i = 0; i < 1000; ++i) x.data<float>()[i] = static_cast<float>(i + 1);
  const Array n = Array::zeros(DType::i64, Dims{1});
  *n.data<int64_t>() = count;
  const Array made = std::get<Array>(program.run(std::vector<Argument>{x, n})[0]);
  EXPECT_EQ(made.rank(), 1u);
  return {made.data<float>(), made.data<float>() + made.numel()};
}

TEST(ReadScalar, SizesFromCallToCall) {
  for (const ProgramMemory memory : {ProgramMemory::arena, ProgramMemory::blocks}) {
    LoadedProgram program(first_elements(), {double_kernel, scratch_kernel});
    program.set_memory(memory);
    for (const int64_t count : {3, 1000, 0, 7, 7, 999, 1}) {
      const std::vector<float> made = run(program, count);
      ASSERT_EQ(static_cast<int64_t>(made.size()), count);
      for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], 4 * static_cast<float>(i + 1));
    }
    EXPECT_FALSE(program.has_known_sizes());
  }
}

TEST(ReadScalar, OutOfRange) {
  LoadedProgram program(first_elements(), {double_kernel, scratch_kernel});
  for (const int64_t count : {int64_t{-1}, int64_t{1001}, INT64_MAX, INT64_MIN})
    EXPECT_THAT([&] { run(program, count); },
                ThrowsMessage<DataError>(HasSubstr("data0 is " + std::to_string(count) +
                                                   ", which is not in [0, 1000]")));
  EXPECT_EQ(run(program, 2).size(), 2u);
}

TEST(ReadScalar, EqualsWhatAnInputSays) {
  abi::Program program = first_elements();
  program.inputs.push_back(vector_input("y", slot(0)));
  LoadedProgram loaded(program, {double_kernel, scratch_kernel});
  const Array x = Array::zeros(DType::f32, Dims{1000});
  const Array n = Array::zeros(DType::i64, Dims{1});
  *n.data<int64_t>() = 3;
  const auto call = [&](int64_t size) {
    const Array y = Array::zeros(DType::f32, Dims{size});
    return loaded.run(std::vector<Argument>{x, n, y}).size();
  };
  EXPECT_EQ(call(3), 1u);
  EXPECT_THAT([&] { call(4); }, ThrowsMessage<DataError>(HasSubstr("is 3, and was to be 4")));
}

TEST(ReadScalar, DamagedPrograms) {
  const auto expect_refused = [](abi::Program program, const char* text) {
    EXPECT_THAT([&] { LoadedProgram(program, {double_kernel, scratch_kernel}); },
                ThrowsMessage<UserError>(HasSubstr(text)));
  };
  abi::Program late = first_elements();
  std::swap(late.instructions[0], late.instructions[1]);
  expect_refused(late, "gives s0 its value before it is used");
  abi::Program early = first_elements();
  std::get<abi::Launch>(early.instructions[1]).tasks = constant(1);
  std::swap(early.instructions[0], early.instructions[1]);
  expect_refused(early, "a size is used before it is read");
  abi::Program guarded = first_elements();
  guarded.guards = {{abi::Guard::Relation::le, slot(0), constant(4), "s0 <= 4"}};
  expect_refused(guarded, "a size is used before it is read");
  abi::Program typed = first_elements();
  typed.buffers[1].dtype = DType::i32;
  expect_refused(typed, "the number data0 is malformed");
  abi::Program far = first_elements();
  std::get<abi::ReadScalar>(far.instructions[0]).slot = 9;
  expect_refused(far, "the number data0 is malformed");
}

}  // namespace
}  // namespace tandem::runtime
