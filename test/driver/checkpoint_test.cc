// checkpoint(f, policy): the same values in less memory, in forward and backward apart and in whole
// training steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tandem/tandem.h>

#include <cmath>

#include "driver/step_memory.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

using nn::RecomputePolicy;
using nn::RegionPolicy;

constexpr int64_t kWidth = 144;
constexpr int64_t kRows = 1024;
constexpr int kLayers = 8;

/// What becomes of a layer; empty: nothing.
using MakeRegion = std::function<nn::RegionFunction(nn::RegionFunction)>;

MakeRegion by(RegionPolicy policy) {
  return [policy = std::move(policy)](nn::RegionFunction body) {
    return checkpoint(std::move(body), policy);
  };
}

/// Wide inside, narrow between layers.
class Deep : public nn::Module {
 public:
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x, const MakeRegion& region) const {
    for (const std::unique_ptr<Layer>& layer : layers_) {
      const nn::RegionFunction body = [&](nn::Trace& t, const nn::Tensors& in) -> nn::Tensors {
        return {layer->forward(t, in[0])};
      };
      x = (region ? region(body) : body)(trace, {x})[0];
    }
    return x;
  }

 private:
  struct Layer : nn::Module {
    Layer(nn::Module& parent, const std::string& name) : nn::Module(parent, name) {}
    nn::Tensor forward(nn::Trace& t, nn::Tensor x) const {
      nn::Tensor h = ops::tanh(up.forward(t, x));
      h = ops::call(t.builder(), "aten.dropout", {h, 0.25, true});
      return x + down.forward(t, ops::sin(h));
    }
    nn::Linear up{*this, "up", kWidth, 4 * kWidth};
    nn::Linear down{*this, "down", 4 * kWidth, kWidth};
  };
  static std::vector<std::unique_ptr<Layer>> make(nn::Module& parent) {
    std::vector<std::unique_ptr<Layer>> layers;
    for (int i = 0; i < kLayers; ++i)
      layers.push_back(std::make_unique<Layer>(parent, "layer" + std::to_string(i)));
    return layers;
  }
  std::vector<std::unique_ptr<Layer>> layers_ = make(*this);
};

Array ramp(const std::vector<int64_t>& sizes) {
  Array array = Array::zeros(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = std::sin(static_cast<float>(i));
  return array;
}

RecomputePolicy saves_products(std::string_view op) {
  return op == "aten.linear" ? RecomputePolicy::must_save : RecomputePolicy::prefer_recompute;
}

struct Trained {
  std::vector<float> losses;
  int64_t arena = 0;
  int64_t arguments = 0;
};

/// Clipped, so that gradients are made before the first update reads one.
nn::Adam clipped() {
  nn::Adam optimizer = nn::adamw(0.001);
  optimizer.clip_norm = 10;
  return optimizer;
}

Trained trained(const MakeRegion& region, const TrainOptions& options = {}) {
  Deep net;
  State state = State::initial(net, 1);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
        return {nn::mse_loss(net.forward(trace, in[0], region), in[1])};
      },
      state, {{"x", DType::f32, {kRows, kWidth}}, {"y", DType::f32, {kRows, kWidth}}}, clipped(),
      options);
  Trained result;
  const std::vector<int64_t> sizes{kRows, kWidth};
  const std::vector<Array> batch{ramp(sizes), Array::zeros(DType::f32, sizes)};
  for (int i = 0; i < 5; ++i) result.losses.push_back(scalar(step.run(batch)));
  result.arena = step.executable().loaded().call_memory().most;
  result.arguments = step_memory(step.executable().loaded(), nullptr, 1)->arguments;
  return result;
}

TEST(Checkpoint, ATrainingStepIsTheSameInLessMemory) {
  const Trained plain = trained(nullptr);
  const Trained whole = trained(by(nn::recompute_all));
  const Trained part = trained(by(saves_products));
  for (size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(whole.losses[i], plain.losses[i], 1e-5 * plain.losses[i]) << i;
    EXPECT_NEAR(part.losses[i], plain.losses[i], 1e-5 * plain.losses[i]) << i;
  }
  EXPECT_LT(plain.losses.back(), plain.losses.front());
  EXPECT_LE(whole.arena, plain.arena / 2);
  EXPECT_LT(whole.arena, part.arena);
  EXPECT_LT(part.arena, plain.arena);
}

TEST(Checkpoint, ATrainingStepKeepsToABudget) {
  const Trained plain = trained(nullptr);
  const std::string text = error_of([] { trained(nullptr, TrainOptions::within("1MiB")); });
  EXPECT_THAT(text, testing::HasSubstr("no choice found holds a step in 1048576 bytes"));
  const std::string least = text.substr(text.find("it takes ") + 9);
  for (const std::string& budget :
       {std::string("min_cut"), std::string("0.6"), least.substr(0, least.find(',')) + "B"}) {
    const Trained found = trained(nullptr, TrainOptions::within(budget));
    for (size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], plain.losses[i], 1e-5 * plain.losses[i]) << budget << " " << i;
    if (budget != "0.6") EXPECT_LT(found.arena, plain.arena) << budget;
    if (budget.ends_with("B")) EXPECT_EQ(found.arena + found.arguments, std::stoll(budget));
  }
}

struct Differentiated {
  int64_t saved = 0;
  std::vector<std::vector<float>> gradients;
};

nn::Tensors with_dropout(nn::Trace& t, const nn::Tensors& in) {
  nn::Tensor h = ops::tanh(ops::mm(in[0], in[1]));
  return {ops::sin(ops::call(t.builder(), "aten.dropout", {h, 0.5, true}))};
}

Differentiated differentiated(const nn::RegionFunction& body, const AotOptions& options = {}) {
  AotFunction function = aot_function(
      body, {{"x", DType::f32, {16, 64}, true}, {"w", DType::f32, {64, 64}, true}}, options);
  AotFunction::Forward made = function.forward(std::vector{ramp({16, 64}), ramp({64, 64})});
  Differentiated result;
  // Inputs are saved as they are, by reference.
  result.saved = made.saved.bytes() - (16 + 64) * 64 * 4;
  for (const std::optional<Array>& gradient :
       function.backward(made.saved, std::vector{ramp({16, 64})})) {
    const Array values = gradient->contiguous();
    result.gradients.emplace_back(values.data<float>(), values.data<float>() + values.numel());
  }
  return result;
}

void expect_near(const Differentiated& found, const Differentiated& wanted) {
  ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
  for (size_t i = 0; i < wanted.gradients.size(); ++i)
    for (size_t k = 0; k < wanted.gradients[i].size(); ++k)
      ASSERT_NEAR(found.gradients[i][k], wanted.gradients[i][k], 1e-4) << i << " " << k;
}

TEST(Checkpoint, ForwardAndBackwardApartSaveTheInputsAlone) {
  const Differentiated plain = differentiated(with_dropout);
  const Differentiated whole = differentiated(checkpoint(with_dropout));
  EXPECT_GT(plain.saved, 0);
  EXPECT_EQ(whole.saved, 0);
  expect_near(whole, plain);
}

TEST(MemoryBudgetOfARegion, ItsShareIsKeptWhateverTheWholeSaves) {
  const Differentiated plain = differentiated(with_dropout);
  const Differentiated fewest = differentiated(nn::with_memory_budget(with_dropout, 0));
  const Differentiated all = differentiated(nn::with_memory_budget(with_dropout, 1));
  EXPECT_EQ(fewest.saved, 0);
  EXPECT_GT(all.saved, 0);
  expect_near(fewest, plain);
  expect_near(all, plain);
}

TEST(MemoryBudgetOfARegion, ARegionInsideHasItsOwn) {
  const auto outer = [](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
    return {ops::sin(nn::with_memory_budget(with_dropout, 1)(trace, in)[0])};
  };
  const Differentiated inner = differentiated(nn::with_memory_budget(with_dropout, 1));
  const Differentiated both = differentiated(nn::with_memory_budget(outer, 0));
  EXPECT_GT(both.saved, 0);
  EXPECT_EQ(both.saved, inner.saved);
}

TEST(MemoryBudgetOfARegion, HoldsInATrainingStep) {
  const Trained plain = trained(nullptr);
  const Trained fewest =
      trained([](const nn::RegionFunction& body) { return nn::with_memory_budget(body, 0); });
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(fewest.losses[i], plain.losses[i], 1e-5 * plain.losses[i]) << i;
  EXPECT_LT(fewest.arena, plain.arena);
}

passes::CallerPartition nothing() {
  return {"nothing", [](ir::Graph&) { return ir::Values(); }, ""};
}

/// The result of the first node of this name.
passes::CallerPartition only(const std::string& op) {
  const auto run = [op](ir::Graph& graph) -> ir::Values {
    for (ir::Node* node = graph.first(); node != nullptr; node = node->next)
      if (node->op->name() == op) return {node->results[0]};
    return {};
  };
  return {op, run, ""};
}

TEST(PartitionOfTheCaller, SaysWhatForwardSaves) {
  const Differentiated plain = differentiated(with_dropout);
  const Differentiated fewest = differentiated(with_dropout, AotOptions::with(nothing()));
  const Differentiated one = differentiated(with_dropout, AotOptions::with(only("aten.tanh")));
  EXPECT_EQ(fewest.saved, 0);
  EXPECT_EQ(one.saved, 16 * 64 * 4);
  expect_near(fewest, plain);
  expect_near(one, plain);
}

TEST(PartitionOfTheCaller, HoldsInATrainingStep) {
  const Trained plain = trained(nullptr);
  const Trained fewest = trained(nullptr, TrainOptions::with(nothing()));
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(fewest.losses[i], plain.losses[i], 1e-5 * plain.losses[i]) << i;
  EXPECT_LT(fewest.arena, plain.arena);
}

TEST(PartitionOfTheCaller, WhatForwardHasNotIsAnErrorThatNamesIt) {
  const auto tangent = [](ir::Graph& graph) { return ir::Values{graph.inputs().back()}; };
  EXPECT_THAT(
      error_of([&] { differentiated(with_dropout, AotOptions::with({"all_wrong", tangent, ""})); }),
      testing::HasSubstr("[partition] 'all_wrong': %tangent0 is no value of forward"));
}

TEST(MemoryBudgetOfARegion, IsAShare) {
  for (const double share : {-0.1, 1.5, std::nan("")})
    EXPECT_THAT(error_of([&] { nn::with_memory_budget(with_dropout, share); }),
                testing::HasSubstr("a region's is a number from 0 to 1"));
}

TEST(Checkpoint, RegionsMayBeNested) {
  const auto sine = [](nn::Trace&, const nn::Tensors& in) -> nn::Tensors {
    return {ops::sin(in[0])};
  };
  const auto outer = [&](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
    return {ops::sin(checkpoint(sine)(trace, {ops::sin(in[0])})[0])};
  };
  AotFunction function = aot_function(checkpoint(outer), {{"x", DType::f32, {64}, true}});
  AotFunction::Forward made = function.forward(std::vector{ramp({64})});
  EXPECT_EQ(made.saved.bytes(), 64 * 4);
  const float x = ramp({64}).data<float>()[3];
  const std::vector<std::optional<Array>> gradients =
      function.backward(made.saved, std::vector{Array(ramp({64}))});
  EXPECT_NEAR(gradients[0]->data<float>()[3],
              x * std::cos(x) * std::cos(std::sin(x)) * std::cos(std::sin(std::sin(x))), 1e-6);
}

}  // namespace
}  // namespace tandem::driver
