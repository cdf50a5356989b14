// Frozen programs: setup runs once, results are those of unfrozen programs, new weights are taken
// when the caller says so, packed weights are few, and mistakes are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "driver/face.h"
#include "ops/tensor.h"
#include "runtime/constants.h"
#include "runtime/library.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

using ::testing::HasSubstr;

/// Images [2, 3, 12, 12] to 5 numbers: two convolutions with batch norms, then a linear layer.
class ConvNet : public nn::Module {
 public:
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x) const {
    x = nn::relu(norm1_.forward(trace, conv1_.forward(trace, x)));
    x = nn::relu(norm2_.forward(trace, conv2_.forward(trace, x)));
    x = ops::reshape(x, {x.size(0), x.size(1) * x.size(2) * x.size(3)});
    return head_.forward(trace, x);
  }

 private:
  nn::Conv2d conv1_{*this, "conv1", {.in = 3, .out = 16, .kernel = 3, .padding = 1}};
  nn::BatchNorm2d norm1_{*this, "norm1", 16};
  nn::Conv2d conv2_{
      *this, "conv2", {.in = 16, .out = 8, .kernel = 3, .stride = 2, .groups = 2, .bias = false}};
  nn::BatchNorm2d norm2_{*this, "norm2", 8};
  nn::Linear head_{*this, "head", 8 * 5 * 5, 5};
};

Array wave(const std::vector<int64_t>& sizes, double step) {
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = static_cast<float>(std::sin(step * static_cast<double>(i) + 1));
  return array;
}

/// As after training: statistics that are not 0 and 1.
State trained_state(const ConvNet& net) {
  State state = State::initial(net, 3);
  for (const std::pair<const std::string, Array>& entry : state.arrays()) {
    bool is_norm = entry.first.starts_with("norm");
    for (int64_t i = 0; is_norm && i < entry.second.numel(); ++i)
      entry.second.data<float>()[i] =
          0.75F + 0.5F * static_cast<float>(std::sin(static_cast<double>(i) + 7));
  }
  return state;
}

BoundProgram conv_forward(const ConvNet& net, State& state, bool freeze) {
  return compile_forward(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{net.forward(trace, in[0])};
      },
      state, {{"x", DType::f32, {2, 3, 12, 12}}}, {.freeze = freeze});
}

void expect_near(const runtime::Result& got, const runtime::Result& wanted, double tolerance) {
  const Array a = std::get<Array>(got).contiguous(), b = std::get<Array>(wanted).contiguous();
  ASSERT_EQ(a.describe(), b.describe());
  for (int64_t i = 0; i < a.numel(); ++i)
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i],
                tolerance * (1 + std::abs(b.data<float>()[i])))
        << i;
}

class FrozenConvNet : public ::testing::Test {
 protected:
  void expect_same() {
    const std::vector<Array> input{wave({2, 3, 12, 12}, 0.37)};
    expect_near(frozen_.run(input)[0], live_.run(input)[0], 1e-5);
  }
  runtime::LoadedProgram& loaded() { return frozen_.executable().loaded(); }

  ConvNet net_;
  State state_ = trained_state(net_);
  BoundProgram live_ = conv_forward(net_, state_, false);
  BoundProgram frozen_ = conv_forward(net_, state_, true);
};

TEST_F(FrozenConvNet, GivesTheSameNumbersAndRunsSetupOnce) {
  for (int i = 0; i < 3; ++i) expect_same();
  EXPECT_EQ(loaded().setup_runs(), 1);
  EXPECT_GT(loaded().constant_bytes(), 0);
}

TEST_F(FrozenConvNet, FoldsTheNormsIntoTheConvolutions) {
  for (const abi::Instruction& instruction : frozen_.executable().program().instructions) {
    const abi::Launch* launch = std::get_if<abi::Launch>(&instruction);
    if (launch != nullptr) EXPECT_EQ(launch->label.find("aten.mul"), std::string::npos);
  }
  EXPECT_EQ(frozen_.executable().program().inputs.size(), 1U);
}

TEST_F(FrozenConvNet, TakesNewWeightsOnRefresh) {
  expect_same();
  const std::vector<Array> input{wave({2, 3, 12, 12}, 0.37)};
  const std::string before = bytes_of(std::get<Array>(frozen_.run(input)[0]));
  for (const char* name : {"conv1.weight", "norm2.running_var", "head.weight"})
    for (int64_t i = 0; i < state_.at(name).numel(); ++i) state_.at(name).data<float>()[i] *= 1.5F;
  state_.set("norm1.bias", wave({16}, 0.9));
  // What setup made and what is packed stays as it was until then.
  EXPECT_NE(bytes_of(std::get<Array>(live_.run(input)[0])), before);
  frozen_.refresh();
  expect_same();
  EXPECT_EQ(loaded().setup_runs(), 2);
}

TEST_F(FrozenConvNet, FollowsTraining) {
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        return nn::Tensors{nn::cross_entropy(net_.forward(trace, in[0]), in[1])};
      },
      state_, {{"x", DType::f32, {2, 3, 12, 12}}, {"y", DType::i64, {2}}}, nn::Sgd(0.1));
  EXPECT_TRUE(step.executable().program().constants.empty());
  step.run(std::vector<Array>{wave({2, 3, 12, 12}, 0.21), tokens({1, 4})});
  frozen_.refresh();
  expect_same();
}

TEST_F(FrozenConvNet, ServesThreadsWhileItIsRefreshed) {
  const std::vector<Array> input{wave({2, 3, 12, 12}, 0.37)};
  const std::string expected = bytes_of(std::get<Array>(frozen_.run(input)[0]));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        wrong += bytes_of(std::get<Array>(frozen_.run(input)[0])) != expected;
    });
  for (int i = 0; i < 10; ++i) frozen_.refresh();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(loaded().setup_runs(), 11);
}

// --- text: symbolic sizes, constants by name ---

/// The sum is so long that the library computes it, on a target that `compiled` takes.
constexpr const char* kLinear = R"(
graph @linear(%x: f32[s0, 1100], %w: f32[200, 1100] {param "w"}, %b: f32[200] {param "b"})
where s0 in [2, 4096] {
  %0 = aten.linear(%x, %w, %b)
  return %0
})";

std::unique_ptr<Executable> compiled(const char* text, bool freeze, bool interpret = false) {
  Options options;
  options.freeze = freeze;
  options.interpret = interpret;
  options.target = target_of(options);
  options.target->tuning.routes.most_long_rows = 256;  // on some machines loops are as fast
  return compile_text(text, options);
}

/// Whether the library of this machine has a layout of its own for f32[k, n], read by f32[m, k]:
/// without AVX-512 oneDNN has none.
bool packs(int64_t m, int64_t k, int64_t n) {
  const std::vector<runtime::Operand> operands = {
      {DType::f32, {m, k}, {k, 1}}, {DType::f32, {k, n}, {1, k}}, {DType::f32, {m, n}, {n, 1}}};
  return runtime::plan_matmul(operands, false, true)->packed_bytes() > 0;
}

TEST(Freeze, PacksAWeightForAFewShapesAtATime) {
  const std::unique_ptr<Executable> live = compiled(kLinear, false);
  const std::unique_ptr<Executable> frozen = compiled(kLinear, true);
  const Array w = wave({200, 1100}, 0.3), b = wave({200}, 0.7);
  frozen->bind_constants({{"w", w}, {"b", b}, {"unknown", b}});
  EXPECT_EQ(frozen->loaded().packed_bytes(), 0);
  bool is_packed = false;
  for (const int64_t rows : {2, 3, 17, 40, 64, 65, 129, 300, 700, 2, 3, 64}) {
    const Array x = wave({rows, 1100}, 0.11);
    expect_near(frozen->run(std::vector<runtime::Argument>{x})[0],
                live->run(std::vector<runtime::Argument>{x, w, b})[0], 1e-5);
    is_packed |= packs(rows, 1100, 200);
    EXPECT_EQ(frozen->loaded().packed_bytes() > 0, is_packed);
    // Blocks are padded, at most to twice a weight of this size.
    EXPECT_LE(frozen->loaded().packed_bytes(),
              2 * w.nbytes() * static_cast<int64_t>(runtime::ConstantSet::kMaxLayouts));
  }
  EXPECT_EQ(frozen->loaded().constant_bytes(), 0);  // the caller's arrays are used as they are
}

TEST(Freeze, OneSquareWeightReadBothWays) {
  constexpr const char* kText = R"(
graph @both(%x: f32[s, 1100], %w: f32[1100, 1100] {param "w"}) where s in [1, 512] {
  %0 = aten.mm(%x, %w)
  %1 = aten.linear(%x, %w)
  return %0, %1
})";
  const std::unique_ptr<Executable> live = compiled(kText, false);
  const std::unique_ptr<Executable> frozen = compiled(kText, true);
  const Array w = wave({1100, 1100}, 0.3), x = wave({17, 1100}, 0.7);
  frozen->bind_constants({{"w", w}});
  const std::vector<runtime::Result> got = frozen->run(std::vector<runtime::Argument>{x});
  const std::vector<runtime::Result> wanted = live->run(std::vector<runtime::Argument>{x, w});
  for (size_t i = 0; i < 2; ++i) expect_near(got[i], wanted[i], 1e-5);
  EXPECT_GE(frozen->loaded().packed_bytes(), packs(17, 1100, 1100) ? 2 * w.nbytes() : 0);
  EXPECT_EQ(frozen->loaded().packed_bytes() > 0, packs(17, 1100, 1100));
}

TEST(Freeze, TheInterpreterRunsSetupToo) {
  constexpr const char* kText = R"(
graph @scaled(%x: f32[3], %w: f32[3] {param "w"}) {
  %0 = aten.exp(%w)
  %1 = aten.mul.Tensor(%x, %0)
  return %1, %w
})";
  const Array x = floats({1, 2, 3}, {3}), w = floats({0, 1, 2}, {3});
  std::string code;
  for (const bool interpret : {false, true}) {
    const std::unique_ptr<Executable> frozen = compiled(kText, true, interpret);
    frozen->bind_constants({{"w", w}});
    const std::vector<runtime::Result> results = frozen->run(std::vector<runtime::Argument>{x});
    EXPECT_NEAR(std::get<Array>(results[0]).data<float>()[2], 3 * std::exp(2.0), 1e-5);
    EXPECT_EQ(std::get<Array>(results[1]).raw(), w.raw());  // a view of the constant
    code = code.empty() ? bytes_of(std::get<Array>(results[0])) : code;
    EXPECT_EQ(bytes_of(std::get<Array>(results[0])), code);
  }
}

TEST(Freeze, ConstantsOfOtherStridesAreCopied) {
  const std::unique_ptr<Executable> frozen = compiled(kLinear, true);
  const Array wide = wave({1100, 200}, 0.3);
  const Array w = wide.as_strided(std::vector<int64_t>{200, 1100}, std::vector<int64_t>{1, 200});
  frozen->bind_constants({{"w", w}, {"b", wave({200}, 0.7)}});
  EXPECT_EQ(frozen->loaded().constant_bytes(), w.nbytes());
  const std::unique_ptr<Executable> live = compiled(kLinear, false);
  const Array x = wave({5, 1100}, 0.11);
  expect_near(frozen->run(std::vector<runtime::Argument>{x})[0],
              live->run(std::vector<runtime::Argument>{x, w, wave({200}, 0.7)})[0], 1e-5);
}

TEST(Freeze, MistakesAreNamed) {
  const std::unique_ptr<Executable> frozen = compiled(kLinear, true);
  const Array w = wave({200, 1100}, 0.3), b = wave({200}, 0.7), x = wave({5, 1100}, 0.1);
  EXPECT_EQ(frozen->loaded().constant_names(), (std::vector<std::string>{"w", "b"}));
  const auto run = [&] { frozen->run(std::vector<runtime::Argument>{x}); };
  EXPECT_THAT(error_of(run), HasSubstr("no value is given for the constants 'w', 'b'"));
  EXPECT_THAT(error_of([&] { frozen->bind_constants({{"w", w}}); }), HasSubstr("constants 'b'"));
  EXPECT_THAT(error_of(run), HasSubstr("constants 'w', 'b'"));
  EXPECT_THAT(error_of([&] { frozen->bind_constants({{"w", b}, {"b", b}}); }),
              HasSubstr("constant 'w': expected f32[200, 1100], got f32[200]"));
  frozen->bind_constants({{"w", w}, {"b", b}});
  EXPECT_EQ(error_of(run), "no error");
  EXPECT_THAT(error_of([&] { frozen->bind_constants({{"b", w}}); }), HasSubstr("constant 'b'"));
  EXPECT_EQ(error_of(run), "no error");
  Options options;
  options.freeze = true;
  options.gradients = driver::Gradients::tangents;
  EXPECT_THAT(error_of([&] { compile_text(kLinear, options); }), HasSubstr("no gradients"));
  EXPECT_THAT(error_of([&] {
                compiled(
                    "graph @f(%w: f32[3] {param \"w\" constant}) {\n  %0 = aten.exp_(%w)\n"
                    "  return %0\n}",
                    false);
              }),
              HasSubstr("input %w is constant, and the program writes it"));
}

}  // namespace
}  // namespace tandem::driver
