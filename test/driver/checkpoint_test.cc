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

/// Wide inside, narrow between layers.
class Deep : public nn::Module {
 public:
  nn::Tensor forward(nn::Trace& trace, nn::Tensor x, const RegionPolicy* policy) const {
    for (const std::unique_ptr<Layer>& layer : layers_) {
      const nn::RegionFunction body = [&](nn::Trace& t, const nn::Tensors& in) -> nn::Tensors {
        return {layer->forward(t, in[0])};
      };
      x = (policy == nullptr ? body : checkpoint(body, *policy))(trace, {x})[0];
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

Trained trained(const RegionPolicy* policy, const TrainOptions& options = {}) {
  Deep net;
  State state = State::initial(net, 1);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) -> nn::Tensors {
        return {nn::mse_loss(net.forward(trace, in[0], policy), in[1])};
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
  const RegionPolicy all = nn::recompute_all;
  const RegionPolicy selective = saves_products;
  const Trained plain = trained(nullptr);
  const Trained whole = trained(&all);
  const Trained part = trained(&selective);
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

Differentiated differentiated(const RegionPolicy* policy) {
  const nn::RegionFunction body = [](nn::Trace& t, const nn::Tensors& in) -> nn::Tensors {
    nn::Tensor h = ops::tanh(ops::mm(in[0], in[1]));
    return {ops::sin(ops::call(t.builder(), "aten.dropout", {h, 0.5, true}))};
  };
  AotFunction function =
      aot_function(policy == nullptr ? body : checkpoint(body, *policy),
                   {{"x", DType::f32, {16, 64}, true}, {"w", DType::f32, {64, 64}, true}});
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

TEST(Checkpoint, ForwardAndBackwardApartSaveTheInputsAlone) {
  const RegionPolicy all = nn::recompute_all;
  const Differentiated plain = differentiated(nullptr);
  const Differentiated whole = differentiated(&all);
  EXPECT_GT(plain.saved, 0);
  EXPECT_EQ(whole.saved, 0);
  ASSERT_EQ(plain.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i)
    for (size_t k = 0; k < plain.gradients[i].size(); ++k)
      ASSERT_NEAR(whole.gradients[i][k], plain.gradients[i][k], 1e-4) << i << " " << k;
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
