// Exported graphs: what inputs and results are, text that parses back and runs, and what is
// refused.
#include "driver/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

using runtime::Array;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Exported {
  std::string text;
  ExportSignature signature;
};

Exported exported(std::string_view text, const ExportOptions& options = {}) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  ExportSignature signature = export_graph(*module->graphs()[0], options);
  return {ir::to_string(*module), std::move(signature)};
}

Array filled(std::vector<int64_t> sizes, float first) {
  Array array = Array::empty(DType::f32, sizes);
  for (int64_t i = 0; i < array.numel(); ++i)
    array.data<float>()[i] = first + static_cast<float>(i);
  return array;
}

std::vector<runtime::Result> run(const std::string& text,
                                 const std::vector<runtime::Argument>& arguments) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  return compile(*module->graphs()[0], {})->run(arguments);
}

float first_of(const runtime::Result& result) {
  return std::get<Array>(result).contiguous().data<float>()[0];
}

/// A linear layer, a buffer that counts, an input that is written.
constexpr std::string_view kModel =
    "graph @f(%w: f32[1, 2] {param \"fc.weight\" grad}, %n: f32[1] {buffer \"seen\"}, %x: f32[3, "
    "2], %y: f32[2]) {\n"
    "  %0 = aten.linear(%x, %w)\n  %1 = aten.add_.Scalar(%n, 1) {no_grad}\n"
    "  %2 = aten.mul_.Scalar(%y, 2)\n  %3 = aten.sum(%0)\n  %4 = aten.detach(%0)\n"
    "  return %4, %3\n}\n";

TEST(Export, InferenceLiftsWrites) {
  const Exported made = exported(kModel);
  EXPECT_EQ(to_string(made.signature),
            "parameter %w: \"fc.weight\"\nbuffer %n: \"seen\"\ninput %x\ninput %y\n"
            "result 0: new value of buffer \"seen\"\nresult 1: new value of input \"y\"\n"
            "result 2: returned\nresult 3: returned\n");
  const Array seen = filled({1}, 4);
  const std::vector<runtime::Result> results =
      run(made.text, {filled({1, 2}, 1), seen, filled({3, 2}, 0), filled({2}, 3)});
  EXPECT_EQ(seen.data<float>()[0], 4) << "nothing is written";
  EXPECT_EQ(first_of(results.at(0)), 5);
  EXPECT_EQ(first_of(results.at(1)), 6);
  EXPECT_EQ(first_of(results.at(2)), 2);  // 0 * 1 + 1 * 2
  EXPECT_EQ(first_of(results.at(3)), 24);
}

TEST(Export, JointGivesGradientsOfTheLoss) {
  const Exported made = exported(kModel, {.loss = 1});
  EXPECT_EQ(made.signature.loss_output, 3U);
  EXPECT_THAT(to_string(made.signature),
              HasSubstr("result 2: returned\nresult 3: the loss\n"
                        "result 4: gradient of parameter \"fc.weight\"\n"));
  const std::vector<runtime::Result> results =
      run(made.text, {filled({1, 2}, 1), filled({1}, 4), filled({3, 2}, 0), filled({2}, 3)});
  EXPECT_EQ(first_of(results.at(4)), 6);  // 0 + 2 + 4
}

constexpr std::string_view kFunction =
    "graph @f(%x: f32[2] {input grad}, %y: f32[2]) {\n"
    "  %0 = aten.mul.Tensor(%x, %y)\n  %1 = aten.sum(%0)\n  return %0, %1\n}\n";

TEST(Export, JointAsAFunctionTakesTangents) {
  const Exported made = exported(kFunction, {.loss = {}, .joint = true});
  EXPECT_EQ(to_string(made.signature),
            "input %x\ninput %y\ntangent %tangent0: of result 0\ntangent %tangent1: of result 1\n"
            "result 0: returned\nresult 1: returned\nresult 2: gradient of input \"x\"\n");
  const std::vector<runtime::Result> results =
      run(made.text, {filled({2}, 1), filled({2}, 3), filled({2}, 5), filled({}, 7)});
  EXPECT_EQ(first_of(results.at(0)), 3);
  EXPECT_EQ(first_of(results.at(1)), 11);  // 1 * 3 + 2 * 4
  EXPECT_EQ(first_of(results.at(2)), 36);  // (5 + 7) * 3
}

TEST(Export, TextParsesBack) {
  for (const ExportOptions& options : {ExportOptions{}, ExportOptions{.loss = 1}}) {
    const std::string text = exported(kModel, options).text;
    EXPECT_EQ(ir::to_string(*ir::parse_module(text, ops::op_table())), text);
  }
  const std::string joint = exported(kFunction, {.loss = {}, .joint = true}).text;
  EXPECT_EQ(ir::to_string(*ir::parse_module(joint, ops::op_table())), joint);
}

std::string graph_of(std::string_view inputs, std::string_view body, std::string_view results) {
  return "graph @f(" + std::string(inputs) + ") {\n" + std::string(body) + "  return " +
         std::string(results) + "\n}\n";
}

TEST(Export, WhatCannotBeLiftedIsRefused) {
  const std::string w = "%w: f32[2] {param \"w\" grad}, %v: f32[2] {param \"v\" grad}, %x: f32[2]";
  const std::string sum = "  %0 = aten.mul.Tensor(%w, %x)\n  %1 = aten.sum(%0)\n";
  const auto refusal = [](const std::string& text, const ExportOptions& options) {
    try {
      exported(text, options);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(refusal(graph_of(w, "  %0 = aten.mul_.Scalar(%w, 2) {no_grad}\n", "%x"), {}),
              HasSubstr("the parameter %w is written"));
  EXPECT_THAT(
      refusal(graph_of("%x: f32[2] {input grad}", "  %0 = aten.mul_.Scalar(%x, 2)\n", "%x"), {}),
      HasSubstr("%x requires a gradient, and is written with history"));
  EXPECT_THAT(refusal(graph_of(w, sum, "%1"), {.loss = 3}),
              HasSubstr("the loss is result 3, and there are 1"));
  EXPECT_THAT(refusal(graph_of(w, sum, "%0"), {.loss = 0}), HasSubstr("is f32[2], not one number"));
  EXPECT_THAT(refusal(graph_of(w, "  %1 = aten.sum(%x)\n", "%1"), {.loss = 0}),
              HasSubstr("depends on nothing that requires a gradient"));
  EXPECT_THAT(refusal(graph_of(w, sum, "%1, %0"), {.loss = 0}),
              HasSubstr("result 1 requires a gradient and is not the loss"));
  EXPECT_THAT(refusal(graph_of(w, sum, "%1"), {.loss = 0}),
              HasSubstr("the parameter %v gets no gradient"));
  EXPECT_THAT(refusal(graph_of(w, sum, "%1, %x"), {.loss = {}, .joint = true}),
              HasSubstr("result 1 is the input %x"));
  EXPECT_THAT(
      refusal(graph_of(w, "  %1 = aten.mul_.Scalar(%x, 2)\n", "%w"), {.loss = {}, .joint = true}),
      HasSubstr("%x is written"));
}

}  // namespace
}  // namespace tandem::driver
