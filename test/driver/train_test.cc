// What train_step and compile_forward promise: steps converge, evaluation sees the trained values,
// optimizers follow their formulas, several threads call one program, threads do not change bits.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "runtime/parallel_for.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

const std::vector<int64_t> kInputs{0, 1, 2, 3, 4, 5, 6, 0};
const std::vector<int64_t> kTargets{0, 1, 2, 0, 1, 2, 0, 0};

/// Mean cross entropy of logits [rows, classes], in f64.
double cross_entropy(const Array& logits, const std::vector<int64_t>& targets) {
  double total = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const float* row = logits.data<float>() + static_cast<int64_t>(i) * TinyNet::kClasses;
    double sum = 0;
    for (int64_t c = 0; c < TinyNet::kClasses; ++c) sum += std::exp(double{row[c]});
    total += std::log(sum) - row[targets[i]];
  }
  return total / static_cast<double>(targets.size());
}

void expect_convergence(const nn::Optimizer& optimizer, int steps) {
  TinyNet net;
  State state = State::initial(net, 3);
  BoundProgram step = tiny_step(net, state, 8, optimizer);
  BoundProgram forward = tiny_forward(net, state, 8);
  const std::vector<Array> batch{tokens(kInputs), tokens(kTargets)};
  for (int i = 0; i < steps; ++i) {
    // Forward, compiled apart, reads the same State: it tells the loss that the step then finds.
    const Array logits = std::get<Array>(forward.run(std::span(batch.data(), 1))[0]);
    const double expected = cross_entropy(logits.contiguous(), kTargets);
    EXPECT_NEAR(scalar(step.run(batch)), expected, 1e-5 * (1 + expected)) << "step " << i;
  }
  EXPECT_LT(scalar(step.run(batch)), 0.05);
  EXPECT_EQ(*state.at("optimizer:step").data<double>(), steps + 1);
}

TEST(TrainStep, ConvergesWithEveryOptimizer) {
  expect_convergence(nn::Sgd(0.5), 100);
  expect_convergence(nn::Sgd(0.1, 0.9, 1e-4), 100);
  expect_convergence(nn::Adam(0.02, {}), 100);
  nn::Adam clipped = nn::adamw(0.02, 0.01);
  clipped.clip_norm = 1;
  expect_convergence(clipped, 100);
}

/// One weight w, loss mean((w x - y)^2) over one element: the gradient is 2 x (w x - y).
class OneWeight : public nn::Module {
 public:
  nn::Tensor loss(nn::Trace& trace, const nn::Tensors& in) const {
    return nn::mse_loss(trace(w_) * in[0], in[1]);
  }

 private:
  nn::Parameter w_{*this, "w", {1}, nn::Init::ones()};
};

TEST(TrainStep, FollowsTheFormulaOfSgdAndTheRateOfTheCall) {
  OneWeight net;
  State state = State::initial(net, 1);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) { return nn::Tensors{net.loss(trace, in)}; },
      state, {{"x", DType::f32, {1}}, {"y", DType::f32, {1}}}, nn::Sgd(0.1, 0.5, 0.01));
  const std::vector<Array> batch{floats({2}, {1}), floats({10}, {1})};
  double w = 1;
  double velocity = 0;
  for (int i = 0; i < 6; ++i) {
    if (i == 3) step.learning_rate = 0.01;
    EXPECT_NEAR(scalar(step.run(batch)), (2 * w - 10) * (2 * w - 10), 1e-3);
    velocity = 0.5 * velocity + 4 * (2 * w - 10) + 0.01 * w;
    w -= step.learning_rate * velocity;
    EXPECT_NEAR(*state.at("w").data<float>(), w, 1e-4);
    EXPECT_NEAR(*state.at("w:momentum").data<float>(), velocity, 1e-3);
  }
}

TEST(TrainStep, ClipsTheCommonNorm) {
  OneWeight net;
  State state = State::initial(net, 1);
  nn::Sgd sgd(1);
  sgd.clip_norm = 0.25;
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) { return nn::Tensors{net.loss(trace, in)}; },
      state, {{"x", DType::f32, {1}}, {"y", DType::f32, {1}}}, sgd);
  step.run(std::vector<Array>{floats({2}, {1}), floats({10}, {1})});  // gradient -32
  EXPECT_NEAR(*state.at("w").data<float>(), 1.25, 1e-6);
  step.run(std::vector<Array>{floats({1}, {1}), floats({1.2F}, {1})});  // gradient 0.1: as it is
  EXPECT_NEAR(*state.at("w").data<float>(), 1.15, 1e-6);
}

TEST(TrainStep, NanInTheDataGoesThrough) {
  OneWeight net;
  State state = State::initial(net, 1);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) { return nn::Tensors{net.loss(trace, in)}; },
      state, {{"x", DType::f32, {1}}, {"y", DType::f32, {1}}}, nn::adamw(0.1));
  const float nan = std::nanf("");
  EXPECT_TRUE(
      std::isnan(scalar(step.run(std::vector<Array>{floats({nan}, {1}), floats({1}, {1})}))));
  EXPECT_TRUE(std::isnan(*state.at("w").data<float>()));
}

TEST(TrainStep, AnEmptyBatchIsNoError) {
  TinyNet net;
  State state = State::initial(net, 3);
  BoundProgram forward = tiny_forward(net, state, 0);
  const Array logits = std::get<Array>(forward.run(std::vector<Array>{tokens({})})[0]);
  EXPECT_EQ(logits.describe(), "f32[0, 3]");
  const std::string before = bytes_of(state.at("up.weight"));
  BoundProgram step = tiny_step(net, state, 0, nn::Sgd(0.1));
  // As in eager: the mean of nothing is NaN, its gradients are sums over nothing.
  EXPECT_TRUE(std::isnan(scalar(step.run(std::vector<Array>{tokens({}), tokens({})}))));
  EXPECT_EQ(bytes_of(state.at("up.weight")), before);
}

/// State after some steps of a net that needs every kind of kernel: dropout, gathers, products.
std::map<std::string, std::string> trained(int threads) {
  const int saved = runtime::threads();
  runtime::set_threads(threads);
  TinyNet net;
  State state = State::initial(net, 5);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        nn::Tensor logits = nn::dropout(trace, net.logits(trace, in[0]), 0.2);
        return nn::Tensors{nn::cross_entropy(logits, in[1])};
      },
      state, {{"tokens", DType::i64, {4096}}, {"targets", DType::i64, {4096}}}, nn::adamw(0.01));
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < 4096; ++i) {
    inputs.push_back(i * i % TinyNet::kTokens);
    targets.push_back(i % TinyNet::kClasses);
  }
  for (int i = 0; i < 5; ++i) step.run(std::vector<Array>{tokens(inputs), tokens(targets)});
  runtime::set_threads(saved);
  return bytes_of(state);
}

TEST(TrainStep, SameBitsAtAnyNumberOfThreads) {
  const std::map<std::string, std::string> expected = trained(1);
  for (const int threads : {1, 2, 3, 8}) EXPECT_EQ(trained(threads), expected) << threads;
}

TEST(CompileForward, ServesSeveralThreadsAtOnce) {
  TinyNet net;
  State state = State::initial(net, 3);
  BoundProgram forward = tiny_forward(net, state, 1);
  std::vector<std::string> expected;
  for (int64_t t = 0; t < TinyNet::kTokens; ++t)
    expected.push_back(bytes_of(std::get<Array>(forward.run(std::vector<Array>{tokens({t})})[0])));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < wrong.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (size_t i = 0; i < 300; ++i) {
        const size_t t = (caller + i) % expected.size();
        const std::vector<Array> input{tokens({static_cast<int64_t>(t)})};
        const Array logits = std::get<Array>(forward.run(input)[0]);
        wrong[caller] += bytes_of(logits) == expected[t] ? 0 : 1;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(CompileForward, ResultsStayAsTheyWere) {
  TinyNet net;
  State state = State::initial(net, 3);
  BoundProgram forward = tiny_forward(net, state, 1);
  const Array first = std::get<Array>(forward.run(std::vector<Array>{tokens({1})})[0]);
  const std::string before = bytes_of(first);
  const Array second = std::get<Array>(forward.run(std::vector<Array>{tokens({2})})[0]);
  EXPECT_EQ(bytes_of(first), before);
  EXPECT_NE(bytes_of(second), before);
}

}  // namespace
}  // namespace tandem::driver
