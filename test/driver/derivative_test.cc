// The backward of a function as a function of its own, of every order: f = sum x^3, whose gradients
// are known. Names say what each one takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "driver/graph_function.h"

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;
using Values = std::map<std::string, float>;

constexpr std::string_view kCube =
    "graph @f(%x: f32[1] {input grad}, %unread: f32[1] {input grad}) {\n"
    "  %0 = aten.mul.Tensor(%x, %x)\n  %1 = aten.mul.Tensor(%0, %x)\n"
    "  %2 = aten.add.Tensor(%1, %unread)\n  return %2\n}\n";

std::unique_ptr<GraphFunction> differentiated(std::string_view text) {
  FunctionOptions options;
  options.differentiate = true;
  return std::make_unique<GraphFunction>(text, options);
}

runtime::Array number(float value) {
  const std::vector<int64_t> sizes = {1};
  runtime::Array array = runtime::Array::empty(DType::f32, sizes);
  array.data<float>()[0] = value;
  return array;
}

std::vector<float> results_of(GraphFunction& function, const Values& values) {
  std::vector<runtime::Argument> arguments;
  for (const std::string& name : function.names()) arguments.emplace_back(number(values.at(name)));
  std::vector<float> results;
  for (const runtime::Result& result : function.forward(arguments).results)
    results.push_back(std::get<runtime::Array>(result).contiguous().data<float>()[0]);
  return results;
}

// d/dx = 3 x^2 t; what is not read of the inputs is no input.
TEST(Derivative, TheBackwardIsAFunctionOfInputsAndTangents) {
  const std::unique_ptr<GraphFunction> cube = differentiated(kCube);
  EXPECT_THAT(cube->names(), ElementsAre("x", "unread"));
  EXPECT_THAT(cube->tangents(), ElementsAre("tangent0"));
  EXPECT_THAT(cube->gradient_inputs(), ElementsAre("x", "tangent0"));
  GraphFunction& first = cube->differentiable_backward();
  EXPECT_EQ(&first, &cube->differentiable_backward()) << "it is compiled once";
  EXPECT_THAT(first.names(), ElementsAre("x", "tangent0"));
  EXPECT_THAT(first.has_gradient(), ElementsAre(1, 1));
  EXPECT_THAT(results_of(first, {{"x", 2}, {"tangent0", 5}}), ElementsAre(60, 5));
}

// of 3 x^2 t, with tangent u: d/dx = 6 x t u, d/dt = 3 x^2 u; of that, with tangent v for the
// former: d/dx = 6 t u v, d/dt = 6 x u v, d/du = 6 x t v.
TEST(Derivative, AndSoIsItsOwn) {
  const std::unique_ptr<GraphFunction> cube = differentiated(kCube);
  GraphFunction& first = cube->differentiable_backward();
  GraphFunction& second = first.differentiable_backward();
  Values values{{"x", 2}, {"tangent0", 5}};
  const std::vector<float> weights = {7, 0};  // of the gradients of x and of unread
  for (size_t i = 0; i < first.tangents().size(); ++i) values[first.tangents()[i]] = weights[i];
  EXPECT_THAT(results_of(second, values), ElementsAre(6 * 2 * 5 * 7, 3 * 4 * 7));
  GraphFunction& third = second.differentiable_backward();
  values[second.tangents().at(0)] = 11;
  values[second.tangents().at(1)] = 0;
  const std::vector<float> results = results_of(third, values);
  ASSERT_GE(results.size(), 3u);
  EXPECT_EQ(results[0], 6 * 5 * 7 * 11);
  EXPECT_EQ(results[1], 6 * 2 * 7 * 11);
  EXPECT_EQ(results[2], 6 * 2 * 5 * 11);
}

// A write is forward's: what is read is the value before it.
TEST(Derivative, ValuesAreThoseBeforeAWrite) {
  const std::unique_ptr<GraphFunction> function = differentiated(
      "graph @f(%x: f32[1] {input grad}, %b: f32[1]) {\n  %0 = aten.mul.Tensor(%x, %b)\n"
      "  %1 = aten.mul.Tensor(%0, %x)\n  %2 = aten.add_.Scalar(%b, 1) {no_grad}\n  return %1\n}\n");
  GraphFunction& first = function->differentiable_backward();
  EXPECT_TRUE(first.mutations().empty());
  EXPECT_THAT(first.reads(), ElementsAre(1, 1, 1));
  EXPECT_THAT(results_of(first, {{"x", 3}, {"b", 2}, {"tangent0", 1}}), ElementsAre(12));
}

TEST(Derivative, TheHostsGradientsEndWithTheSecond) {
  const std::unique_ptr<GraphFunction> function = differentiated(
      "graph @f(%x: f32[1] {input grad}) {\n"
      "  %0: f32[1] = tandem.host([%x], [], 0, \"mine\")\n  return %0\n}\n");
  EXPECT_THROW(
      {
        try {
          function->differentiable_backward().differentiable_backward();
        } catch (const Unsupported& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr("[mine] runs outside of the program"));
          throw;
        }
      },
      Unsupported);
}

// x <- x^2 y while x < 100. After n steps it is x^m y^(m - 1) with m = 2^n, whose derivatives are
// known; with tangent t the gradients are those, times t.
constexpr std::string_view kPower =
    "graph @f(%x: f32[1] {input grad}, %y: f32[1] {input grad}) {\n"
    "  %0: f32[1] = tandem.while_loop([%x], [%y], \"small\", \"square\")\n  return %0\n}\n"
    "graph @small(%x: f32[1], %y: f32[1]) {\n  %0 = aten.sum(%x)\n"
    "  %1 = aten.lt.Scalar(%0, 100)\n  return %1\n}\n"
    "graph @square(%x: f32[1], %y: f32[1]) {\n  %0 = aten.mul.Tensor(%x, %x)\n"
    "  %1 = aten.mul.Tensor(%0, %y)\n  return %1\n}\n";

TEST(Derivative, OfALoopThatDataEnd) {
  const std::unique_ptr<GraphFunction> power = differentiated(kPower);
  GraphFunction& first = power->differentiable_backward();
  GraphFunction& second = first.differentiable_backward();
  GraphFunction& third = second.differentiable_backward();
  for (const float x : {150.0F, 20.0F, 3.0F}) {  // no step, one, three
    const float y = 0.9F;
    float m = 1;
    for (float at = x; at < 100; at = at * at * y) m *= 2;
    const auto power_of = [](float base, float exponent) { return std::pow(base, exponent); };
    const float t = 0.5F;
    Values values{{"x", x}, {"y", y}, {"tangent0", t}};
    const std::vector<float> gradients = results_of(first, values);
    EXPECT_NEAR(gradients[0] / (t * m * power_of(x, m - 1) * power_of(y, m - 1)), 1, 1e-5);
    values[first.tangents().at(0)] = 1;  // of the gradient of x alone
    values[first.tangents().at(1)] = 0;
    const float again = t * m * (m - 1) * power_of(x, m - 2) * power_of(y, m - 1);
    const float mixed = t * m * (m - 1) * power_of(x, m - 1) * power_of(y, m - 2);
    const std::vector<float> seconds = results_of(second, values);
    EXPECT_NEAR(seconds[0], again, 1e-5F * std::abs(again));
    EXPECT_NEAR(seconds[1], mixed, 1e-5F * std::abs(mixed));
    EXPECT_NEAR(seconds[2], gradients[0] / t, 1e-5F * std::abs(gradients[0]));
    for (const std::string& tangent : second.tangents()) values[tangent] = 0;
    values[second.tangents().at(0)] = 1;
    const float more = t * m * (m - 1) * (m - 2) * power_of(x, m - 3) * power_of(y, m - 1);
    EXPECT_NEAR(results_of(third, values)[0], more, 1e-5F * std::abs(more));
  }
}

TEST(Derivative, OfALoopWhoseStepsDrawIsRefused) {
  std::string text(kPower);
  const std::string_view draw = "  %1 = aten.mul.Tensor(%0, %y)\n";
  text.replace(text.find(draw), draw.size(),
               "  %2 = aten.dropout(%0, 0.5, true)\n  %1 = aten.mul.Tensor(%2, %y)\n");
  const std::unique_ptr<GraphFunction> function = differentiated(text);
  EXPECT_THAT([&] { function->differentiable_backward(); },
              testing::ThrowsMessage<Unsupported>(testing::HasSubstr("draws random numbers")));
}

}  // namespace
}  // namespace tandem::driver
