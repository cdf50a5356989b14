// Whole programs with kernels written by hand.
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "runtime/parallel_for.h"
#include "test/runtime/programs.h"

namespace tandem::runtime {
namespace {

// buffers: x, out; sizes: f64 bits
int64_t add_scalar_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi,
                          void*) {
  const float* const x = static_cast<const float*>(buffers[0]);
  float* const out = static_cast<float*>(buffers[1]);
  const float scalar = static_cast<float>(std::bit_cast<double>(sizes[0]));
  for (int64_t i = lo; i < hi; ++i) out[i] = x[i] + scalar;
  return 0;
}

// Fails with check 1 on a value below 0, with check 2 on one above 100; through scratch of 64
// bytes.
int64_t checked_kernel(void* const* buffers, const int64_t*, int64_t lo, int64_t hi,
                       void* scratch) {
  const float* const x = static_cast<const float*>(buffers[0]);
  float* const out = static_cast<float*>(buffers[1]);
  if (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) return 1;
  for (int64_t i = lo; i < hi; ++i) {
    if (x[i] < 0) return 1;
    if (x[i] > 100) return 2;
    static_cast<float*>(scratch)[i % 16] = x[i];
    out[i] = static_cast<float*>(scratch)[i % 16] + 1;
  }
  return 0;
}

std::string error_of(LoadedProgram& program, const std::vector<Argument>& arguments) {
  try {
    program.run(arguments);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ExecutorTest, RunsAChainForManySizes) {
  LoadedProgram program(chain(), {double_kernel});
  for (const int64_t size : {3, 1000, 1, 0, 1000, 3}) {
    Floats x(static_cast<size_t>(size)), expected(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i), expected[i] = 8 * x[i];
    EXPECT_EQ(values_of(program.run(std::vector<Argument>{vector_of(x)})[0]), expected);
  }
  EXPECT_EQ(program.arena_bytes(), 128);
}

TEST(ExecutorTest, ResultsOutliveLaterCalls) {
  LoadedProgram program(chain(), {double_kernel});
  std::vector<Result> first = program.run(std::vector<Argument>{vector_of({1, 2})});
  std::vector<Result> second = program.run(std::vector<Argument>{vector_of({3, 4})});
  EXPECT_EQ(values_of(first[0]), (Floats{8, 16}));
  EXPECT_EQ(values_of(second[0]), (Floats{24, 32}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(std::get<Array>(first[0]).raw()) % 64, 0u);
}

TEST(ExecutorTest, ArgumentsThatDoNotFit) {
  abi::Program two = chain();
  two.inputs.push_back(vector_input("y", times(slot(0), 2)));
  two.inputs.back().sizes.push_back(constant(784));
  two.inputs.back().strides = {constant(784), constant(1)};
  LoadedProgram program(two, {double_kernel});
  const Array x = vector_of({1, 2, 3});
  const auto y = [](int64_t a, int64_t b) { return Array::zeros(DType::f32, Dims{a, b}); };
  EXPECT_EQ(error_of(program, {x, y(6, 784)}), "no error");
  EXPECT_EQ(error_of(program, {x}), "program 'chain' takes 2 inputs, got 1");
  EXPECT_EQ(error_of(program, {x, y(6, 100)}),
            "input 'y': expected f32[(s0 * 2), 784], got f32[6, 100]: size 1 must be 784");
  EXPECT_EQ(error_of(program, {x, y(5, 784)}),
            "input 'y': expected f32[(s0 * 2), 784], got f32[5, 784]: size 0 must be (s0 * 2) = 6");
  EXPECT_EQ(error_of(program, {Array::zeros(DType::i64, Dims{3}), y(6, 784)}),
            "input 'x': expected f32[s0], got i64[3]");
  EXPECT_EQ(error_of(program, {2.0, y(6, 784)}), "input 'x': expected f32[s0], got an f64 scalar");
  EXPECT_EQ(error_of(program, {x, x}), "input 'y': expected f32[(s0 * 2), 784], got f32[3]");
  EXPECT_EQ(error_of(program, {Array::zeros(DType::f32, Dims{5000}), y(10000, 784)}),
            "program 'chain': guard s0 <= 4096 fails: s0 is 5000, 4096 is 4096");
  EXPECT_EQ(error_of(program, {x, y(6, 784)}), "no error");
}

TEST(ExecutorTest, OtherStridesAreCopied) {
  LoadedProgram program(chain(), {double_kernel});
  const Array wide = vector_of({1, -1, 2, -1, 3, -1});
  const Array every_other = wide.as_strided(Dims{3}, Dims{2});
  EXPECT_EQ(values_of(program.run(std::vector<Argument>{every_other})[0]), (Floats{8, 16, 24}));
  EXPECT_EQ(values_of(wide), (Floats{1, -1, 2, -1, 3, -1}));
}

TEST(ExecutorTest, UnalignedInputIsCopied) {
  LoadedProgram program(chain(), {double_kernel});
  std::vector<char> bytes(9);
  const float values[2] = {1, 2};
  std::memcpy(bytes.data() + 1, values, 8);
  const Array odd = Array::borrow(bytes.data() + 1, DType::f32, Dims{2});
  EXPECT_EQ(values_of(program.run(std::vector<Argument>{odd})[0]), (Floats{8, 16}));
}

// x is doubled in place by a kernel; a write-back puts the result of a later kernel into y.
abi::Program in_place() {
  abi::Program program = chain();
  program.inputs.push_back(vector_input("y", slot(0)));
  program.inputs[0].mutated = program.inputs[1].mutated = true;
  program.buffers.push_back(buffer(BufferKind::input, 1, {}));
  program.instructions = {launch(0, {0, 0}, slot(0)), launch(0, {0, 1}, slot(0)),
                          launch(0, {1, 3}, slot(0))};
  program.write_backs = {{1, vector_ref(1, slot(0))}};
  program.outputs.push_back({});
  program.outputs.back().kind = abi::Output::Kind::input_view;
  program.outputs.back().input = 1;
  program.outputs.back().ref = {0, {constant(1)}, {constant(1)}, constant(1)};
  return program;
}

TEST(ExecutorTest, MutatedInputs) {
  LoadedProgram program(in_place(), {double_kernel});
  const Array x = vector_of({1, 2}), y = vector_of({0, 0});
  const std::vector<Result> results = program.run(std::vector<Argument>{x, y});
  EXPECT_EQ(values_of(x), (Floats{2, 4}));
  EXPECT_EQ(values_of(y), (Floats{4, 8}));
  EXPECT_EQ(values_of(results[0]), (Floats{8, 16}));
  EXPECT_EQ(values_of(results[1]), (Floats{8}));
  EXPECT_EQ(std::get<Array>(results[1]).raw(), y.data<float>() + 1);
}

TEST(ExecutorTest, MutatedInputsOfOtherStrides) {
  LoadedProgram program(in_place(), {double_kernel});
  const Array x_wide = vector_of({1, 9, 2, 9}), y_wide = vector_of({0, 9, 0, 9});
  const Array x = x_wide.as_strided(Dims{2}, Dims{2});
  EXPECT_EQ(error_of(program, {x, y_wide.as_strided(Dims{2}, Dims{2})}),
            "input 'y': expected strides [1], which cannot be had by a copy because an output is a "
            "view of it");
  EXPECT_EQ(values_of(x_wide), (Floats{1, 9, 2, 9}));
  program.run(std::vector<Argument>{x, vector_of({0, 0})});
  EXPECT_EQ(values_of(x_wide), (Floats{2, 9, 4, 9}));
  abi::Program no_view = in_place();
  no_view.outputs.pop_back();
  LoadedProgram other(no_view, {double_kernel});
  other.run(std::vector<Argument>{x, y_wide.as_strided(Dims{2}, Dims{2})});
  EXPECT_EQ(values_of(x_wide), (Floats{4, 9, 8, 9}));
  EXPECT_EQ(values_of(y_wide), (Floats{8, 9, 16, 9}));
}

TEST(ExecutorTest, WriteBacksThatSwapInputs) {
  abi::Program program = chain();
  program.inputs.push_back(vector_input("y", slot(0)));
  program.buffers.push_back(buffer(BufferKind::input, 1, {}));
  program.instructions.clear();
  program.outputs.clear();
  program.kernels.clear();
  program.write_backs = {{0, vector_ref(4, slot(0))}, {1, vector_ref(0, slot(0))}};
  LoadedProgram loaded(program, {});
  const Array x = vector_of({1, 2}), y = vector_of({3, 4});
  EXPECT_TRUE(loaded.run(std::vector<Argument>{x, y}).empty());
  EXPECT_EQ(values_of(x), (Floats{3, 4}));
  EXPECT_EQ(values_of(y), (Floats{1, 2}));
}

abi::Program failing(int64_t work) {
  abi::Program program = chain();
  program.kernels.resize(2);
  abi::Launch checked = launch(1, {0, 1}, slot(0), work);
  checked.errors = {"[aten::sqrt] negative value", "[aten::sqrt] value above 100"};
  checked.scratch_bytes = constant(64);
  program.instructions = {checked, launch(0, {1, 3}, slot(0))};
  program.inputs[0].mutated = true;
  program.write_backs = {{0, vector_ref(1, slot(0))}};
  return program;
}

TEST(ExecutorTest, AFailingKernelLeavesInputsAsTheyWere) {
  const int saved = threads();
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    for (const int64_t work : {0, 1000000}) {
      LoadedProgram program(failing(work), {double_kernel, checked_kernel});
      Floats bad(1000, 1.0f);
      bad[100] = 101;
      bad[900] = -1;
      const Array x = vector_of(bad);
      EXPECT_EQ(error_of(program, {x}), "[aten::sqrt] value above 100");
      EXPECT_EQ(values_of(x), bad);
      const Array good = vector_of({1, 2});
      EXPECT_EQ(values_of(program.run(std::vector<Argument>{good})[0]), (Floats{4, 6}));
      EXPECT_EQ(values_of(good), (Floats{2, 3}));
    }
  }
  set_threads(saved);
}

TEST(ExecutorTest, ScalarsIn) {
  abi::Program program = chain();
  program.slots = 3;
  abi::Input scale;
  scale.name = "scale";
  scale.is_scalar = true;
  scale.scalar_slot = 1;
  scale.dtype = DType::f64;
  abi::Input step = scale;
  step.name = "step";
  step.scalar_slot = 2;
  step.dtype = DType::i64;
  program.inputs.insert(program.inputs.end(), {scale, step});
  abi::Launch add = launch(0, {0, 3}, slot(0));
  add.sizes = {slot(1)};
  program.instructions = {add};
  program.outputs.push_back({});
  program.outputs.back().kind = abi::Output::Kind::scalar;
  program.outputs.back().scalar = {{Op::slot, 2}, {Op::constant, 1}, {Op::add}};
  program.outputs.back().dtype = DType::i64;
  LoadedProgram loaded(program, {add_scalar_kernel});
  for (int64_t i = 0; i < 4; ++i) {
    const double value = 0.5 * static_cast<double>(i);
    const std::vector<Result> results =
        loaded.run(std::vector<Argument>{vector_of({1, 2}), value, i});
    EXPECT_EQ(values_of(results[0]),
              (Floats{1 + static_cast<float>(value), 2 + static_cast<float>(value)}));
    EXPECT_EQ(std::get<int64_t>(results[1]), i + 1);
  }
  EXPECT_EQ(error_of(loaded, {vector_of({1}), int64_t{1}, 2.5}),
            "input 'step': expected an i64 scalar, got an f64 scalar");
}

// A scalar that decides a size: tasks and output follow it.
TEST(ExecutorTest, ScalarsThatAreSizes) {
  abi::Program program = chain();
  program.slots = 2;
  abi::Input count;
  count.name = "count";
  count.is_scalar = true;
  count.scalar_slot = 1;
  count.dtype = DType::i64;
  program.inputs.push_back(count);
  program.buffers[3].bytes = times(slot(1), 4);
  program.instructions = {launch(0, {0, 3}, slot(1))};
  program.outputs = {vector_output(3, slot(1))};
  LoadedProgram loaded(program, {double_kernel});
  const Array x = vector_of({1, 2, 3});
  EXPECT_EQ(values_of(loaded.run(std::vector<Argument>{x, int64_t{2}})[0]), (Floats{2, 4}));
  EXPECT_EQ(values_of(loaded.run(std::vector<Argument>{x, int64_t{3}})[0]), (Floats{2, 4, 6}));
}

TEST(ExecutorTest, ConstantsAndSetup) {
  abi::Program setup;
  setup.name = "setup";
  setup.constants.resize(1);
  setup.constants[0] = {"w", DType::f32, {2}, std::vector<std::byte>(8), -1, {}};
  const float w[2] = {5, 7};
  std::memcpy(setup.constants[0].bytes.data(), w, 8);
  setup.buffers = {buffer(BufferKind::constant, 0, {}), buffer(BufferKind::output, 0, constant(8))};
  setup.kernels.resize(1);
  setup.instructions = {launch(0, {0, 1}, constant(2))};
  setup.outputs = {vector_output(1, constant(2))};
  abi::Program program = setup;
  program.constants.push_back({"2w", DType::f32, {2}, {}, 0, {}});
  program.buffers[0].index = 1;
  program.setup = std::make_shared<abi::Program>(setup);
  LoadedProgram loaded(program, {double_kernel}, {double_kernel});
  EXPECT_EQ(values_of(loaded.run({})[0]), (Floats{20, 28}));
  program.constants[0].bytes.pop_back();
  EXPECT_THROW(LoadedProgram(program, {double_kernel}, {double_kernel}), UserError);
}

std::atomic<int> g_doublings{0};

int64_t counted_double_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi,
                              void* scratch) {
  ++g_doublings;
  return double_kernel(buffers, sizes, lo, hi, scratch);
}

// out = 2 (2 w), where setup makes 2 w of the array that is given.
abi::Program twice_doubled() {
  abi::Program setup;
  setup.name = "twice.setup";
  setup.inputs = {vector_input("w", constant(2))};
  setup.buffers = {buffer(BufferKind::input, 0, constant(8)),
                   buffer(BufferKind::output, 0, constant(8))};
  setup.kernels.resize(1);
  setup.instructions = {launch(0, {0, 1}, constant(2))};
  setup.outputs = {vector_output(1, constant(2))};
  abi::Program program = setup;
  program.name = "twice";
  program.inputs.clear();
  program.constants = {{"setup0", DType::f32, {2}, {}, 0, {}}};
  program.buffers[0].kind = BufferKind::constant;
  program.setup = std::make_shared<abi::Program>(setup);
  return program;
}

TEST(ExecutorTest, SetupRunsOncePerBinding) {
  g_doublings = 0;
  LoadedProgram program(twice_doubled(), {double_kernel}, {counted_double_kernel});
  EXPECT_EQ(program.constant_names(), (std::vector<std::string>{"w"}));
  EXPECT_EQ(error_of(program, {}), "program 'twice': no value is given for the constants 'w'");
  const Array w = vector_of({1, 2});
  program.bind_constants({{"w", w}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values_of(program.run({})[0]), (Floats{4, 8}));
  EXPECT_EQ(g_doublings, 1);
  w.data<float>()[0] = 3;
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{4, 8}));
  program.refresh();
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{12, 8}));
  EXPECT_EQ(g_doublings, 2);
  // A value that does not fit changes nothing.
  EXPECT_THROW(program.bind_constants({{"w", vector_of({1})}}), UserError);
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{12, 8}));
  program.bind_constants({{"w", vector_of({5, 6})}});
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{20, 24}));
  EXPECT_EQ(program.setup_runs(), 3);
  EXPECT_EQ(program.constant_bytes(), 8);
}

TEST(ExecutorTest, CallsDuringARefreshSeeOneSetOfConstants) {
  LoadedProgram program(twice_doubled(), {double_kernel}, {double_kernel});
  program.bind_constants({{"w", vector_of({0, 0})}});
  std::atomic<bool> is_done{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!is_done) {
        const Floats got = values_of(program.run({})[0]);
        torn += got[0] != got[1];
      }
    });
  for (int i = 1; i <= 200; ++i) {
    const float value = static_cast<float>(i);
    program.bind_constants({{"w", vector_of({value, value})}});
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{800, 800}));
}

TEST(ExecutorTest, ACallRunsWithTheSetThatItNames) {
  LoadedProgram program(twice_doubled(), {double_kernel}, {double_kernel});
  const std::shared_ptr<ConstantSet> one = program.make_constants({{"w", vector_of({1, 2})}});
  const std::shared_ptr<ConstantSet> other = program.make_constants({{"w", vector_of({3, 4})}});
  EXPECT_EQ(program.setup_runs(), 2);
  // Neither is the program's own.
  EXPECT_EQ(error_of(program, {}), "program 'twice': no value is given for the constants 'w'");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(values_of(program.run({}, one)[0]), (Floats{4, 8}));
    EXPECT_EQ(values_of(program.run({}, other)[0]), (Floats{12, 16}));
  }
  program.bind_constants({{"w", vector_of({5, 6})}});
  EXPECT_EQ(values_of(program.run({}, one)[0]), (Floats{4, 8}));
  EXPECT_EQ(values_of(program.run({})[0]), (Floats{20, 24}));
  EXPECT_EQ(program.setup_runs(), 3);
  EXPECT_THROW(program.make_constants({}), UserError);
}

TEST(ExecutorTest, NothingHoldsASetThatIsRetired) {
  LoadedProgram program(twice_doubled(), {double_kernel}, {double_kernel});
  std::weak_ptr<ConstantSet> watched;
  {
    const std::shared_ptr<ConstantSet> set = program.make_constants({{"w", vector_of({1, 2})}});
    watched = set;
    program.run({}, set);
    program.retire(*set);
    EXPECT_EQ(values_of(program.run({}, set)[0]), (Floats{4, 8}));  // a call that had begun
  }
  EXPECT_TRUE(watched.expired());
}

TEST(ExecutorTest, ALibraryCallOfRowsThatACallTells) {
  abi::Program program;
  program.slots = 1;
  program.inputs = {vector_input("x", slot(0)), vector_input("w", constant(12))};
  program.inputs[0].sizes.push_back(constant(3));
  program.inputs[0].strides = {constant(3), constant(1)};
  const SizeCode bytes = times(slot(0), 16);
  program.buffers = {buffer(BufferKind::input, 0, {}), buffer(BufferKind::input, 1, {}),
                     buffer(BufferKind::output, 0, bytes)};
  abi::LibraryCall call;
  call.label = "aten.mm";
  const abi::TensorRef x{0, {slot(0), constant(3)}, {constant(3), constant(1)}, {}};
  const abi::TensorRef w{1, {constant(3), constant(4)}, {constant(4), constant(1)}, {}};
  const abi::TensorRef product{2, {slot(0), constant(4)}, {constant(4), constant(1)}, {}};
  call.args = {x, w};
  call.out = product;
  program.instructions = {call};
  program.outputs = {{}};
  program.outputs[0].ref = {2, {constant(4), slot(0)}, {constant(1), constant(4)}, {}};
  LoadedProgram loaded(program, {});
  for (const int64_t rows : {2, 5, 2, 0}) {
    const Array a = Array::zeros(DType::f32, Dims{rows, 3});
    for (int64_t i = 0; i < a.numel(); ++i) a.data<float>()[i] = static_cast<float>(i + 1);
    Floats weights(12, 0);
    weights[0] = weights[5] = weights[10] = weights[11] = 1;
    const Floats result = values_of(loaded.run(std::vector<Argument>{a, vector_of(weights)})[0]);
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t i = 0; i < rows; ++i)
        EXPECT_EQ(result[static_cast<size_t>(j * rows + i)],
                  static_cast<float>(i * 3 + std::min<int64_t>(j, 2) + 1));
  }
  EXPECT_EQ(loaded.library_calls()[0].label, "aten.mm");
}

TEST(ExecutorTest, TwoThreadsAtOnce) {
  LoadedProgram program(chain(), {double_kernel});
  const auto work = [&](float start) {
    for (int i = 0; i < 300; ++i) {
      Floats x(static_cast<size_t>(1 + i % 50), start);
      const std::vector<Result> results = program.run(std::vector<Argument>{vector_of(x)});
      EXPECT_EQ(values_of(results[0]), Floats(x.size(), 8 * start));
    }
  };
  std::thread other(work, 3.0f);
  work(5.0f);
  other.join();
}

TEST(ExecutorTest, DamagedPrograms) {
  const auto expect_damaged = [](abi::Program program) {
    EXPECT_THROW(LoadedProgram(std::move(program), {double_kernel}), UserError);
  };
  abi::Program program = chain();
  program.slots = 0;
  expect_damaged(program);
  program = chain();
  program.slots = UINT32_MAX;
  expect_damaged(program);
  program = chain();
  program.slots = 2;
  program.buffers[1].bytes = slot(1);
  expect_damaged(program);
  program = chain();
  std::get<abi::Launch>(program.instructions[0]).buffers[0] = 9;
  expect_damaged(program);
  program = chain();
  std::get<abi::Launch>(program.instructions[0]).kernel = 1;
  expect_damaged(program);
  program = chain();
  std::get<abi::Launch>(program.instructions[0]).beside = true;
  expect_damaged(program);
  program = chain();
  program.outputs[0].ref.buffer = 1;
  expect_damaged(program);
  program = chain();
  program.write_backs = {{7, vector_ref(1, slot(0))}};
  expect_damaged(program);
}

// One vector of s0 elements and many small outputs of one task each, all in one step: every task
// runs once, wherever ranges end. A launch without tasks is passed over.
TEST(ExecutorTest, LaunchesSideBySide) {
  constexpr uint32_t kSmall = 20;
  const int saved = threads();
  for (const int count : {1, 2, 3, 8}) {
    set_threads(count);
    for (const int64_t work : {1, 700, 1000000}) {
      abi::Program program = chain();
      program.instructions = {launch(0, {0, 3}, slot(0), 50 * work)};
      for (uint32_t i = 0; i < kSmall; ++i) {
        const uint32_t number = static_cast<uint32_t>(program.buffers.size());
        program.buffers.push_back(buffer(BufferKind::output, 0, constant(4)));
        program.instructions.emplace_back(launch(0, {0, number}, constant(i == 3 ? 0 : 1), work));
        program.outputs.push_back(vector_output(number, constant(i == 3 ? 0 : 1)));
        std::get<abi::Launch>(program.instructions.back()).beside = true;
      }
      LoadedProgram loaded(program, {double_kernel});
      loaded.start_profile();
      const std::vector<Result> results = loaded.run(std::vector<Argument>{vector_of({1, 2, 3})});
      EXPECT_EQ(values_of(results[0]), (Floats{2, 4, 6}));
      for (uint32_t i = 0; i < kSmall; ++i)
        EXPECT_EQ(values_of(results[i + 1]), i == 3 ? Floats{} : Floats{2});
      EXPECT_EQ(loaded.profile()[0].instruction, 0U);
    }
  }
  set_threads(saved);
}

TEST(ExecutorTest, EverythingIsGivenBack) {
  const int64_t before = allocator().counters().live_bytes;
  {
    LoadedProgram program(chain(), {double_kernel});
    for (int i = 0; i < 10; ++i) program.run(std::vector<Argument>{vector_of(Floats(500, 1))});
    EXPECT_EQ(error_of(program, {vector_of(Floats(5000, 1))}).substr(0, 7), "program");
  }
  EXPECT_EQ(allocator().counters().live_bytes, before);
}

TEST(ExecutorTest, PrintsTheCostOfACall) {
  abi::Program program = chain();
  for (abi::Instruction& instruction : program.instructions)
    std::get<abi::Launch>(instruction).work = constant(1);
  LoadedProgram loaded(program, {double_kernel});
  const std::vector<Argument> arguments = {vector_of({1, 2, 3, 4})};
  loaded.run(arguments);
  constexpr int kCalls = 100000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) loaded.run(arguments);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  std::printf("a call of three kernels on 4 elements: %.0f ns\n", spent.count() / kCalls);
}

}  // namespace
}  // namespace tandem::runtime
