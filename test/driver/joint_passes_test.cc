// Functions of the caller over the joint graph: they change what is computed, in both halves, and
// what they break is an error that names them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "driver/graph_edit.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

using runtime::Array;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kSquare =
    "graph @g(%x: f32[3] {input grad}) {\n"
    "  %0 = aten.mul.Tensor(%x, %x)\n"
    "  %1 = aten.sum(%0)\n"
    "  return %1\n}\n";

/// The loss and the gradient for x = 1, 2, 3.
std::vector<float> results_with(std::vector<passes::CallerPass> passes) {
  std::unique_ptr<ir::Module> module = ir::parse_module(kSquare, ops::op_table());
  Options options;
  options.gradients = Gradients::ones;
  options.joint_passes = std::move(passes);
  const std::unique_ptr<Executable> program = compile(*module->graphs()[0], options);
  const Array x = Array::empty(DType::f32, std::array{int64_t{3}});
  for (int i = 0; i < 3; ++i) x.data<float>()[i] = static_cast<float>(i + 1);
  const std::vector<runtime::Result> results = program->run(std::vector<runtime::Argument>{x});
  std::vector<float> numbers{*std::get<Array>(results[0]).data<float>()};
  const float* gradient = std::get<Array>(results[1]).data<float>();
  numbers.insert(numbers.end(), gradient, gradient + 3);
  return numbers;
}

ir::Node* first_of(ir::Graph& graph, std::string_view op) {
  for (ir::Node* node = graph.first(); node != nullptr; node = node->next)
    if (node->op->name() == op) return node;
  return nullptr;
}

TEST(JointPasses, SeeAndChangeBothHalves) {
  EXPECT_EQ(results_with({}), (std::vector<float>{14, 2, 4, 6}));
  const auto halve_gradient = [](ir::Graph& graph) {
    ir::Value* gradient = graph.outputs()[1].value;
    ir::Node* half = insert_call(graph, "aten.mul.Scalar", {{gradient, 0.5}, {}}, nullptr);
    replace_value(graph, gradient, half->results[0]);
  };
  EXPECT_EQ(results_with({{"halve", halve_gradient, ""}}), (std::vector<float>{14, 1, 2, 3}));
  EXPECT_EQ(results_with({{"halve", halve_gradient, ""}, {"again", halve_gradient, ""}}),
            (std::vector<float>{14, 0.5, 1, 1.5}));
}

TEST(JointPasses, WhatTheyBreakNamesThem) {
  const auto use_before = [](ir::Graph& graph) {
    ir::Node* sum = first_of(graph, "aten.sum");
    ir::Node* late = insert_call(graph, "aten.exp", {{sum->results[0]}, {}}, nullptr);
    graph.move_before(late, graph.first());
    replace_value(graph, sum->results[0], late->results[0]);
  };
  EXPECT_THAT([&] { results_with({{"use_before", use_before, ""}}); },
              ThrowsMessage<UserError>(HasSubstr("[joint_passes] behind 'use_before'")));
  const auto write = [](ir::Graph& graph) {
    insert_call(graph, "aten.add_.Scalar", {{graph.inputs()[0], 1.0}, {}}, graph.first());
  };
  EXPECT_THAT([&] { results_with({{"write", write, ""}}); },
              ThrowsMessage<UserError>(HasSubstr("[joint_passes] behind 'write'")));
}

TEST(JointPasses, EditsAreChecked) {
  std::unique_ptr<ir::Module> module = ir::parse_module(kSquare, ops::op_table());
  ir::Graph& graph = *module->graphs()[0];
  EXPECT_THAT([&] { erase_node(graph, graph.first()); },
              ThrowsMessage<UserError>(HasSubstr("[aten::mul.Tensor] cannot be erased")));
  EXPECT_THAT([&] { insert_call(graph, "aten.nothing", {}, nullptr); },
              ThrowsMessage<UserError>(HasSubstr("there is no operator 'aten.nothing'")));
  EXPECT_THAT([&] { replace_value(graph, graph.first()->results[0], graph.last()->results[0]); },
              ThrowsMessage<UserError>(HasSubstr("f32[] cannot stand for one of type f32[3]")));
  EXPECT_THAT([&] { size_named(graph, "3 +"); },
              ThrowsMessage<UserError>(HasSubstr("'3 +' is no size")));
  EXPECT_THAT(
      [&] {
        insert_call(graph, "aten.full",
                    {{ir::Ints{sym::Expr(3)}, 1.0}, {{"dtype", std::string("f33")}}}, nullptr);
      },
      ThrowsMessage<UserError>(HasSubstr("no element type: 'f33'")));
  ir::Node* made = insert_call(graph, "aten.exp", {{graph.inputs()[0]}, {}}, nullptr);
  erase_node(graph, made);
  EXPECT_EQ(ir::to_string(graph),
            ir::to_string(*ir::parse_module(kSquare, ops::op_table())->graphs()[0]));
}

}  // namespace
}  // namespace tandem::driver
