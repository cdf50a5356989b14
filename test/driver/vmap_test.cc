// Rows at once beside a loop over them in plain C++: values, gradients, gradients of each row.
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

Array matrix_of(const std::vector<float>& numbers, int64_t rows) {
  Array array =
      Array::empty(DType::f32, std::array{rows, static_cast<int64_t>(numbers.size()) / rows});
  std::ranges::copy(numbers, array.data<float>());
  return array;
}

const std::vector<float> kX{1, 2, 3, -4, 5, 0.5F}, kW{0.5F, -1, 2};

/// The sum of x's squares, weighted.
Tensors weighted(Trace& trace, const Tensors& in) {
  return nn::vmap(trace, in, {0, std::nullopt}, [](Trace&, const Tensors& row) -> Tensors {
    return {ops::sum_all(row[0] * row[0] * row[1]), ops::exp(row[1])};
  });
}

TEST(Vmap, ValuesAndGradients) {
  AotFunction function =
      aot_function(weighted, {{"x", DType::f32, {"n", 3}, true}, {"w", DType::f32, {3}, true}});
  AotFunction::Forward forward = function.forward(std::vector{matrix_of(kX, 2), vector_of(kW)});
  const std::vector<float> tangent{2, -1};
  const Array of_exp = matrix_of({0, 0, 0, 1, 1, 1}, 2);
  const std::vector<std::optional<Array>> gradients =
      function.backward(forward.saved, std::vector{vector_of(tangent), of_exp});
  for (int64_t row = 0; row < 2; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const float x = kX[static_cast<size_t>(3 * row + i)], w = kW[static_cast<size_t>(i)];
      sum += x * x * w;
      EXPECT_FLOAT_EQ(element(*gradients[0], 3 * row + i),
                      2 * x * w * tangent[static_cast<size_t>(row)]);
      EXPECT_FLOAT_EQ(element(forward.outputs[1], 3 * row + i), std::exp(w));
    }
    EXPECT_FLOAT_EQ(element(forward.outputs[0], row), sum);
  }
  for (int64_t i = 0; i < 3; ++i) {
    const size_t at = static_cast<size_t>(i);
    EXPECT_FLOAT_EQ(element(*gradients[1], i),
                    2 * kX[at] * kX[at] - kX[at + 3] * kX[at + 3] + std::exp(kW[at]));
  }
}

/// The gradient of each row's loss by a weight that all share.
TEST(Vmap, GradientsOfEachRow) {
  const auto each = [](Trace& trace, const Tensors& in) {
    return nn::vmap(trace, in, {0, std::nullopt}, [](Trace& inner, const Tensors& row) -> Tensors {
      const Tensor loss = ops::sum_all(ops::tanh(row[0] * row[1]));
      return ops::call_many(inner.builder(), "tandem.gradient",
                            {Tensors{loss}, Tensors{}, Tensors{row[1]}, false});
    });
  };
  AotFunction function =
      aot_function(each, {{"x", DType::f32, {"n", 3}}, {"w", DType::f32, {3}, true}});
  const AotFunction::Forward forward =
      function.forward(std::vector{matrix_of(kX, 2), vector_of(kW)});
  for (size_t i = 0; i < 6; ++i) {
    const float y = std::tanh(kX[i] * kW[i % 3]);
    EXPECT_NEAR(element(forward.outputs[0], static_cast<int64_t>(i)), kX[i] * (1 - y * y), 1e-6);
  }
}

/// An operator without a rule, and a vmap in a vmap.
TEST(Vmap, NestedAndRowByRow) {
  const auto places = [](Trace& trace, const Tensors& in) {
    return nn::vmap(trace, in, {0, -1}, [](Trace& outer, const Tensors& row) {
      return nn::vmap(
          outer, {row[0], row[1]}, {std::nullopt, 0},
          [](Trace& inner, const Tensors& one) -> Tensors {
            return {ops::call(inner.builder(), "aten.searchsorted.Tensor", {one[0], one[1], true})};
          });
    });
  };
  AotFunction function =
      aot_function(places, {{"edges", DType::f32, {2, 3}}, {"x", DType::f32, {4, 2}}});
  const AotFunction::Forward forward = function.forward(
      std::vector{matrix_of({0, 1, 2, -3, 0, 3}, 2), matrix_of({0.5F, 1, 1, 1, 9, 9, -9, -9}, 4)});
  const Array& found = std::get<Array>(forward.outputs[0]);
  const std::vector<int32_t> expected{1, 1, 3, 0, 2, 2, 3, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found.data<int32_t>()[i], expected[i]);
}

TEST(Vmap, Refusals) {
  const auto with = [](auto body, std::vector<std::optional<int64_t>> dims) {
    return [=] {
      aot_function([&](Trace& trace, const Tensors& in) { return nn::vmap(trace, in, dims, body); },
                   {{"x", DType::f32, {4, 2}}});
    };
  };
  const auto same = [](Trace&, const Tensors& row) { return row; };
  EXPECT_THAT(with(same, {}), ThrowsMessage<UserError>(HasSubstr("0 dimensions of rows for 1")));
  EXPECT_THAT(with(same, {2}), ThrowsMessage<UserError>(HasSubstr("has no dimension 2")));
  EXPECT_THAT(with(same, {std::nullopt}), ThrowsMessage<UserError>(HasSubstr("has rows")));
  const auto places = [](Trace& trace, const Tensors& row) -> Tensors {
    return {ops::call(trace.builder(), "aten.nonzero", {row[0]})};
  };
  EXPECT_THAT(with(places, {0}),
              ThrowsMessage<UserError>(HasSubstr("[vmap] tandem::read_scalar takes no rows")));
  const auto noise = [](Trace& trace, const Tensors& row) -> Tensors {
    return {row[0] * ops::call(trace.builder(), "aten.rand_like", {row[0]})};
  };
  EXPECT_THAT(with(noise, {0}), ThrowsMessage<UserError>(HasSubstr("draws random numbers")));
}

}  // namespace
}  // namespace tandem
