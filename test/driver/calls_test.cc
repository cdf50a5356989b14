// Regions that are compiled once: they compute what the same formula inline does, forward and
// backward, and equal ones are one body.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "ir/text.h"
#include "nn/control.h"
#include "nn/layers.h"
#include "ops/opdef.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using nn::Trace;
using runtime::Array;
using testing::HasSubstr;

/// A block of layers, whose output is added to what came in.
struct Block : nn::Module {
  Block(nn::Module& parent, const std::string& name) : nn::Module(parent, name) {}
  nn::LayerNorm norm{*this, "norm", 8};
  nn::Linear up{*this, "up", 8, 16};
  nn::Linear down{*this, "down", 16, 8};

  Tensor forward(Trace& trace, Tensor x, double dropout) const {
    Tensor hidden = ops::tanh(up.forward(trace, norm.forward(trace, x)));
    if (dropout > 0) hidden = nn::dropout(trace, hidden, dropout);
    return x + down.forward(trace, hidden);
  }
};

struct Blocks : nn::Module {
  explicit Blocks(int count) {
    for (int i = 0; i < count; ++i)
      all.push_back(std::make_unique<Block>(*this, "block" + std::to_string(i)));
  }
  std::vector<std::unique_ptr<Block>> all;

  Tensor forward(Trace& trace, Tensor x, bool calls, double dropout = 0) const {
    for (const std::unique_ptr<Block>& block : all) {
      const auto body = [&](Trace& inner, const Tensors& in) -> Tensors {
        return {block->forward(inner, in[0], dropout)};
      };
      x = calls ? nn::invoke_subgraph(trace, {x}, body)[0] : body(trace, {x})[0];
    }
    return x;
  }
};

Array waves(const std::vector<int64_t>& sizes) {
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = std::sin(static_cast<float>(i));
  return array;
}

float largest_difference(const Array& one, const Array& other) {
  float most = 0;
  for (int64_t i = 0; i < one.numel(); ++i)
    most = std::max(most, std::abs(one.data<float>()[i] - other.data<float>()[i]));
  return most;
}

const Array& array_of(const runtime::Result& result) { return std::get<Array>(result); }

TEST(Calls, EqualBodiesAreOne) {
  const Blocks model(5);
  ir::Module module(ops::op_table());
  ir::Graph& graph = module.add_graph("g");
  Trace trace(graph, true);
  graph.add_output(model.forward(trace, trace.input("x", DType::f32, {4, 8}), true).value());
  EXPECT_EQ(module.graphs().size(), 2);
  const std::string text = ir::to_string(module);
  EXPECT_EQ(ir::to_string(*ir::parse_module(text, ops::op_table())), text);
}

std::vector<float> losses_of(const Blocks& model, bool calls, double dropout) {
  State state = State::initial(model, 7);
  const auto loss = [&](Trace& trace, const Tensors& in) -> Tensors {
    const Tensor off = model.forward(trace, in[0], calls, dropout) - in[1];
    return {ops::sum_all(off * off) * 0.03};
  };
  BoundProgram step = train_step(
      loss, state, {{"x", DType::f32, {4, 8}}, {"y", DType::f32, {4, 8}}}, nn::Sgd(0.05));
  std::vector<float> losses;
  for (int i = 0; i < 20; ++i)
    losses.push_back(
        *array_of(step.run(std::vector{waves({4, 8}), waves({4, 8})})[0]).data<float>());
  return losses;
}

TEST(Calls, TrainsAsTheSameLayersInline) {
  const Blocks model(3);
  const std::vector<float> called = losses_of(model, true, 0);
  const std::vector<float> inlined = losses_of(model, false, 0);
  for (size_t i = 0; i < called.size(); ++i) EXPECT_NEAR(called[i], inlined[i], 1e-5F) << i;
  EXPECT_LT(called.back(), 0.9F * called.front());
}

TEST(Calls, FrozenWeightsSeeNoCalls) {
  const Blocks model(3);
  State state = State::initial(model, 7);
  std::vector<Array> results;
  for (const bool calls : {false, true}) {
    BoundProgram program = compile_forward(
        [&](Trace& trace, const Tensors& in) -> Tensors {
          return {model.forward(trace, in[0], calls)};
        },
        state, {{"x", DType::f32, {4, 8}}}, {.freeze = true});
    results.push_back(array_of(program.run(std::vector{waves({4, 8})})[0]));
  }
  EXPECT_EQ(largest_difference(results[0], results[1]), 0);
}

/// y = region(region(x, w), w), region(x, w) = (sin(x w), x w), of which the second is read once.
Tensors sines(Trace& trace, const Tensors& in) {
  const auto region = [](Trace&, const Tensors& x) -> Tensors {
    const Tensor product = x[0] * x[1];
    return {ops::sin(product), product};
  };
  const Tensors first = nn::invoke_subgraph(trace, in, region);
  return {nn::invoke_subgraph(trace, {first[0], in[1]}, region)[0] + first[1]};
}

TEST(Calls, GradientsByHand) {
  AotFunction function =
      aot_function(sines, {{"x", DType::f32, {"n"}, true}, {"w", DType::f32, {"n"}, true}});
  for (int64_t n = 3; n < 6; ++n) {
    const Array x = waves({n});
    const Array w = waves({n});
    AotFunction::Forward call = function.forward(std::vector{x, w});
    const Array ones = Array::empty(DType::f32, std::array{n});
    std::fill_n(ones.data<float>(), n, 1.0F);
    const std::vector<std::optional<Array>> gradients =
        function.backward(call.saved, std::vector{ones});
    for (int64_t i = 0; i < n; ++i) {
      const float a = x.data<float>()[i];
      const float b = w.data<float>()[i];
      const float inner = std::sin(a * b);
      const float outer = std::cos(inner * b);
      EXPECT_NEAR(array_of(call.outputs[0]).data<float>()[i], std::sin(inner * b) + a * b, 1e-6F);
      EXPECT_NEAR(gradients[0]->data<float>()[i], outer * b * std::cos(a * b) * b + b, 1e-5F);
      EXPECT_NEAR(gradients[1]->data<float>()[i], outer * (inner + b * std::cos(a * b) * a) + a,
                  1e-5F);
    }
  }
}

/// Each call draws its own numbers, and its backward draws them again.
TEST(Calls, DropoutOfEachCallIsItsOwn) {
  const auto model = [](Trace& trace, const Tensors& in) -> Tensors {
    const auto region = [](Trace& inner, const Tensors& x) -> Tensors {
      return {ops::call(inner.builder(), "aten.dropout", {x[0], 0.5, true})};
    };
    return {nn::invoke_subgraph(trace, in, region)[0], nn::invoke_subgraph(trace, in, region)[0]};
  };
  AotFunction function = aot_function(model, {{"x", DType::f32, {256}, true}});
  const Array ones = Array::empty(DType::f32, std::array{int64_t{256}});
  std::fill_n(ones.data<float>(), 256, 1.0F);
  AotFunction::Forward call = function.forward(std::vector{ones});
  EXPECT_GT(largest_difference(array_of(call.outputs[0]), array_of(call.outputs[1])), 1);
  const std::vector<std::optional<Array>> gradients =
      function.backward(call.saved, std::vector{ones, ones});
  for (int64_t i = 0; i < 256; ++i)
    EXPECT_EQ(gradients[0]->data<float>()[i], array_of(call.outputs[0]).data<float>()[i] +
                                                  array_of(call.outputs[1]).data<float>()[i]);
}

/// A result that is an operand has no memory in the body.
TEST(Calls, OperandHandedThrough) {
  State state;
  BoundProgram program = compile_forward(
      [](Trace& trace, const Tensors& in) {
        return nn::invoke_subgraph(
            trace, in, [](Trace&, const Tensors& x) -> Tensors { return {x[0], x[0] + 1, x[0]}; });
      },
      state, {{"x", DType::f32, {16}}});
  const Array x = waves({16});
  const std::vector<runtime::Result> results = program.run(std::vector{x});
  EXPECT_EQ(largest_difference(array_of(results[0]), x), 0);
  EXPECT_EQ(largest_difference(array_of(results[2]), x), 0);
  EXPECT_NEAR(largest_difference(array_of(results[1]), x), 1, 1e-6F);
  EXPECT_NE(array_of(results[0]).raw(), x.raw());
}

TEST(Calls, BodyThatDoesNotFit) {
  const std::string text =
      "graph @g(%x: f32[3]) {\n  %a: f32[3] = tandem.invoke_subgraph([%x], \"f\")\n  return %a\n}\n"
      "graph @f(%x: f32[4]) {\n  return %x\n}\n";
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  EXPECT_THAT([&] { driver::compile(*module->graphs()[0], {}); },
              testing::ThrowsMessage<UserError>(HasSubstr("@f takes f32[4] for %x, not f32[3]")));
}

}  // namespace
}  // namespace tandem
