// Complex numbers in C++: a program over c64 takes and gives real arrays with both parts along a
// last dimension. Values and gradients beside std::complex.
#include <gtest/gtest.h>

#include <complex>

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
using Number = std::complex<double>;

const std::vector<Number> kZ{{1, 2}, {-0.5, 0.25}, {3, -1}, {0.5, 1.5}};

Array array_of(const std::vector<Number>& numbers, const std::vector<int64_t>& sizes) {
  Array array = Array::empty(DType::f32, sizes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    array.data<float>()[2 * i] = static_cast<float>(numbers[i].real());
    array.data<float>()[2 * i + 1] = static_cast<float>(numbers[i].imag());
  }
  return array;
}

template <class Holder>
Number number(const Holder& array, int64_t i) {
  return {element(array, 2 * i), element(array, 2 * i + 1)};
}

void expect_near(Number actual, Number expected) {
  EXPECT_NEAR(actual.real(), expected.real(), 1e-5 * (1 + std::abs(expected)));
  EXPECT_NEAR(actual.imag(), expected.imag(), 1e-5 * (1 + std::abs(expected)));
}

/// z log z + 2
Tensors weighted_log(Trace& trace, const Tensors& in) {
  const Tensor product = in[0] * ops::log(in[0]);
  return {ops::call(trace.builder(), "aten.add.Scalar", {product, 2})};
}

TEST(Complex, ValuesAndGradients) {
  AotFunction function = aot_function(weighted_log, {{"z", DType::c64, {"n"}, true}});
  AotFunction::Forward forward = function.forward(std::vector{array_of(kZ, {4, 2})});
  const std::vector<Number> tangents{{1, 0}, {0, 1}, {2, -1}, {0.5, 0.5}};
  const std::vector<std::optional<Array>> gradients =
      function.backward(forward.saved, std::vector{array_of(tangents, {4, 2})});
  for (size_t i = 0; i < kZ.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    expect_near(number(forward.outputs[0], at), kZ[i] * std::log(kZ[i]) + 2.0);
    expect_near(number(*gradients[0], at), tangents[i] * std::conj(std::log(kZ[i]) + 1.0));
  }
}

/// The running product of rows, and the last one.
Tensors running_product(Trace& trace, const Tensors& in) {
  const nn::Scanned scanned =
      nn::scan(trace, {in[0]}, {in[1]}, {},
               [](Trace&, const Tensors& carried, const Tensors& row, const Tensors&) {
                 const Tensor product = carried[0] * row[0];
                 return nn::Scanned{{product}, {product}};
               });
  return {scanned.carried[0], scanned.rows[0]};
}

TEST(Complex, GradientsThroughAScan) {
  AotFunction function = aot_function(
      running_product, {{"start", DType::c64, {1}, true}, {"rows", DType::c64, {"n", 1}, true}});
  const Number start{0.5, -1};
  AotFunction::Forward forward =
      function.forward(std::vector{array_of({start}, {1, 2}), array_of(kZ, {4, 1, 2})});
  Number product = start;
  for (size_t i = 0; i < kZ.size(); ++i) {
    product *= kZ[i];
    expect_near(number(forward.outputs[1], static_cast<int64_t>(i)), product);
  }
  expect_near(number(forward.outputs[0], 0), product);
  const Array none = array_of({{}, {}, {}, {}}, {4, 1, 2});
  const std::vector<std::optional<Array>> gradients =
      function.backward(forward.saved, std::vector{array_of({{1, 0}}, {1, 2}), none});
  expect_near(number(*gradients[0], 0), std::conj(product / start));
  for (size_t i = 0; i < kZ.size(); ++i)
    expect_near(number(*gradients[1], static_cast<int64_t>(i)), std::conj(product / kZ[i]));
}

}  // namespace
}  // namespace tandem
