// Derivatives along tangents beside the same formula in plain C++, and beside a difference quotient
// where control flow decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/diagnostic.h"
#include "driver/api.h"
#include "nn/control.h"
#include "ops/opdef.h"
#include "test/driver/arrays.h"

namespace tandem {
namespace {

using nn::Tensor;
using nn::Tensors;
using nn::Trace;
using runtime::Array;
using test::element;
using test::vector_of;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// (x y, sum of x's squares, a count that depends on nothing)
Tensors products(Trace& trace, const Tensors& in) {
  return {in[0] * in[1], ops::sum_all(in[0] * in[0]),
          ops::full(trace.builder(), {2}, 7, DType::f32)};
}

TEST(Jvp, ProductsByHand) {
  JvpFunction function =
      jvp_function(products, {{"x", DType::f32, {"n"}, true}, {"y", DType::f32, {"n"}, true}});
  for (const size_t n : {2, 3}) {
    const std::vector<float> x{1, 2, 3}, y{4, -5, 6}, dx{1, -1, 2}, dy{0.5F, 3, -2};
    const auto part = [&](const std::vector<float>& all) {
      return vector_of({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)});
    };
    const JvpFunction::Results results =
        function.run(std::vector{part(x), part(y)}, std::vector{part(dx), part(dy)});
    float sum = 0;
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = static_cast<int64_t>(i);
      EXPECT_EQ(element(results.outputs[0], at), x[i] * y[i]);
      EXPECT_EQ(element(*results.derivatives[0], at), dx[i] * y[i] + x[i] * dy[i]);
      sum += 2 * x[i] * dx[i];
    }
    EXPECT_EQ(element(*results.derivatives[1], 0), sum);
    EXPECT_EQ(element(results.outputs[2], 1), 7);
    EXPECT_FALSE(results.derivatives[2]);
  }
}

TEST(Jvp, OfOneInputAlone) {
  JvpFunction function =
      jvp_function(products, {{"x", DType::f32, {2}}, {"y", DType::f32, {2}, true}});
  const JvpFunction::Results results = function.run(
      std::vector{vector_of({1, 2}), vector_of({3, 4})}, std::vector{vector_of({5, 6})});
  EXPECT_EQ(element(*results.derivatives[0], 1), 12);
  EXPECT_FALSE(results.derivatives[1]);
}

/// A recurrence, a branch and a region: c' = tanh(c w + row); then either side.
Tensors controlled(Trace& trace, const Tensors& in) {
  const nn::Scanned scanned =
      nn::scan(trace, {in[0]}, {in[1]}, {in[2]},
               [](Trace&, const Tensors& c, const Tensors& row, const Tensors& w) -> nn::Scanned {
                 const Tensor next = ops::tanh(c[0] * w[0] + row[0]);
                 return {{next}, {next * 2}};
               });
  const Tensor last = scanned.carried[0];
  const Tensor side = nn::cond(
      trace, ops::compare("gt", ops::sum_all(last), 0), {last, in[2]},
      [](Trace&, const Tensors& x) -> Tensors { return {x[0] * x[1]}; },
      [](Trace&, const Tensors& x) -> Tensors { return {ops::sin(x[0])}; })[0];
  const Tensor region = nn::invoke_subgraph(
      trace, {side, last},
      [](Trace&, const Tensors& x) -> Tensors { return {x[0] * x[1] + x[0]}; })[0];
  return {region, scanned.rows[0]};
}

TEST(Jvp, ControlFlow) {
  const std::vector<AotInput> inputs = {{"c", DType::f32, {2}, true},
                                        {"rows", DType::f32, {3, 2}, true},
                                        {"w", DType::f32, {2}, true}};
  JvpFunction function = jvp_function(controlled, inputs);
  const auto at = [](float step) {
    Array rows = Array::empty(DType::f32, std::array{int64_t{3}, int64_t{2}});
    for (int64_t i = 0; i < 6; ++i)
      rows.data<float>()[i] = std::sin(static_cast<float>(i)) + step * static_cast<float>(i - 2);
    return std::vector{vector_of({0.3F + step, -0.2F + 2 * step}), rows,
                       vector_of({0.7F - step, 1.1F + step})};
  };
  const Array rows = Array::empty(DType::f32, std::array{int64_t{3}, int64_t{2}});
  for (int64_t i = 0; i < 6; ++i) rows.data<float>()[i] = static_cast<float>(i - 2);
  const std::vector tangents{vector_of({1, 2}), rows, vector_of({-1, 1})};
  const JvpFunction::Results results = function.run(at(0), tangents);
  constexpr float kStep = 1e-2F;
  const auto outputs_at = [&](float step) { return function.run(at(step), tangents).outputs; };
  const std::vector<runtime::Result> ahead[] = {outputs_at(kStep), outputs_at(2 * kStep)};
  const std::vector<runtime::Result> behind[] = {outputs_at(-kStep), outputs_at(-2 * kStep)};
  for (size_t output : {0, 1})
    for (int64_t i = 0; i < 2; ++i) {
      const auto difference = [&](size_t steps) {
        return element(ahead[steps][output], i) - element(behind[steps][output], i);
      };
      // Of the fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h
      const float quotient = (8 * difference(0) - difference(1)) / (12 * kStep);
      EXPECT_NEAR(element(*results.derivatives[output], i), quotient, 3e-4F) << output << " " << i;
    }
}

/// What is random is drawn once: the derivative has the mask of the result.
TEST(Jvp, DropoutHasOneMask) {
  JvpFunction function = jvp_function(
      [](Trace& trace, const Tensors& in) -> Tensors {
        return {ops::call(trace.builder(), "aten.dropout", {in[0], 0.5, true})};
      },
      {{"x", DType::f32, {64}, true}});
  const Array ones = vector_of(std::vector<float>(64, 1));
  const JvpFunction::Results results = function.run(std::vector{ones}, std::vector{ones});
  for (int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(element(*results.derivatives[0], i), element(results.outputs[0], i));
}

TEST(Jvp, MistakesAreErrors) {
  JvpFunction function =
      jvp_function(products, {{"x", DType::f32, {2}, true}, {"y", DType::f32, {2}}});
  EXPECT_THAT([&] { function.run(std::vector{vector_of({1, 2})}, {}); },
              ThrowsMessage<UserError>(HasSubstr("takes 2 inputs and 1 tangents, 1 and 0")));
  EXPECT_THAT(
      [&] {
        function.run(std::vector{vector_of({1, 2}), vector_of({1, 2})},
                     std::vector{vector_of({1, 2, 3})});
      },
      ThrowsMessage<UserError>(HasSubstr("tangent_x")));
  const auto writes = [](Trace& trace, const Tensors& in) -> Tensors {
    ops::call(trace.builder(), "aten.mul_.Scalar", {in[0], 2});
    return {in[0] * 1};
  };
  EXPECT_THAT([&] { jvp_function(writes, {{"x", DType::f32, {2}, true}}); },
              ThrowsMessage<Unsupported>(HasSubstr("[jvp] the function writes input %x")));
}

}  // namespace
}  // namespace tandem
