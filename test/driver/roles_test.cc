// Which tangents and gradients a function has follows from roles, whatever its inputs and the other
// graphs of the text are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/graph_function.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;

GraphFunction differentiated(const std::string& text) {
  FunctionOptions options;
  options.differentiate = true;
  return {text, options};
}

runtime::Array numbers(std::vector<float> values) {
  const std::vector<int64_t> sizes = {static_cast<int64_t>(values.size())};
  runtime::Array array = runtime::Array::empty(DType::f32, sizes);
  std::ranges::copy(values, array.data<float>());
  return array;
}

float gradient_of(GraphFunction& function) {
  std::vector<runtime::Argument> inputs;
  std::vector<runtime::Array> borrowed;
  for (size_t i = 0; i < function.inputs(); ++i) inputs.emplace_back(numbers({3, 4}));
  GraphFunction::Forward made = function.forward(inputs);
  for (const SavedPlace& place : function.saved_places())
    if (place.kind == SavedPlace::Kind::input)
      borrowed.push_back(std::get<runtime::Array>(inputs[place.number]));
  const std::vector<runtime::Result> gradients =
      function.backward(made.saved->take(), borrowed, std::vector{numbers({1, 1})});
  return std::get<runtime::Array>(gradients.at(0)).contiguous().data<float>()[0];
}

TEST(Roles, AnInputMayBeCalledAsATangentIs) {
  GraphFunction function = differentiated(
      "graph @f(%tangent0: f32[2] {input grad}) {\n  %0 = aten.mul.Tensor(%tangent0, %tangent0)\n"
      "  return %0\n}\n");
  EXPECT_THAT(function.has_tangent(), ElementsAre(1));
  EXPECT_THAT(function.has_gradient(), ElementsAre(1));
  EXPECT_EQ(gradient_of(function), 6);
}

TEST(Roles, AWrittenInputMayBeCalledAsAnother) {
  GraphFunction function = differentiated(
      "graph @f(%x: f32[2], %tangent_x: f32[2] {input grad}) {\n"
      "  %0 = aten.mul_.Tensor(%x, %tangent_x)\n  return %0\n}\n");
  ASSERT_EQ(function.mutations().size(), 1u);
  EXPECT_TRUE(function.mutations()[0].has_tangent);
  EXPECT_THAT(function.has_gradient(), ElementsAre(0, 1));
}

TEST(Roles, AnotherGraphMayBeCalledAsABackwardIs) {
  GraphFunction function = differentiated(
      "graph @f(%x: f32[2] {input grad}) {\n  %0 = aten.mul.Tensor(%x, %x)\n  return %0\n}\n"
      "graph @f_backward(%x: f32[2]) {\n  return %x\n}\n");
  EXPECT_EQ(gradient_of(function), 6);
}

// Its gradient, which is none, leaves the graph together with the constant.
TEST(Roles, AConstantIsNoArgumentAndHasNoGradient) {
  const std::string text =
      "graph @f(%c: f32[2] {buffer \"c\" constant}, %x: f32[2] {input grad}) {\n"
      "  %0 = aten.exp(%c)\n  %1 = aten.mul.Tensor(%x, %0)\n  return %1\n}\n";
  EXPECT_THAT(differentiated(text).has_gradient(), ElementsAre(1));
}

TEST(Roles, NumbersFollowTheInputs) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%unused: f32[2], %x: f32[2], %t: f32[2] {tangent of input 1}) {\n"
      "  %0 = aten.add.Tensor(%x, %t)\n  return %0, grad \"x\" %t, grad \"unused\" none\n}\n"
      "graph @b(%t: f32[2] {tangent of input 1}) backward of @f {\n  return grad \"x\" %t\n}\n",
      ops::op_table());
  ir::Graph& graph = *module->graphs()[0];
  const ir::Graph& backward = *module->find(ir::GraphRole::Kind::backward, graph);
  graph.erase_input(graph.inputs()[0]);
  EXPECT_EQ(graph.inputs()[1]->subject.number, 0u);
  EXPECT_EQ(graph.outputs()[1].subject.number, 0u);
  EXPECT_EQ(graph.outputs()[2].subject.kind, ir::Subject::Kind::none);
  EXPECT_EQ(backward.inputs()[0]->subject.number, 0u);
  EXPECT_EQ(backward.outputs()[0].subject.number, 0u);
}

}  // namespace
}  // namespace tandem::driver
