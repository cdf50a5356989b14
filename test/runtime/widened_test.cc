// bf16 calls on a machine whose library has no bf16: the same plans in f32, on every machine, by a
// maker that refuses bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "loop/small_floats.h"
#include "runtime/array.h"
#include "runtime/library.h"
#include "test/runtime/execute_plan.h"

namespace tandem::runtime {
namespace {

using Dims = std::vector<int64_t>;

/// Small whole numbers: sums of their products are exact in f32.
Array whole_numbers(const Dims& sizes, const Dims& strides, int64_t room) {
  const Array block = Array::zeros(DType::bf16, Dims{room});
  for (int64_t i = 0; i < room; ++i)
    block.data<uint16_t>()[i] = loop::f32_to_bf16(static_cast<float>((i * 7 + 3) % 11 - 5));
  return block.as_strided(sizes, strides);
}

Operand operand_of(const Array& array) {
  const auto list = [](std::span<const int64_t> numbers) {
    return Dims(numbers.begin(), numbers.end());
  };
  return {array.dtype(), list(array.sizes()), list(array.strides())};
}

/// Row-major.
std::vector<float> values_of(const Array& array) {
  std::vector<float> values;
  for (int64_t i = 0; i < array.sizes()[0]; ++i)
    for (int64_t j = 0; j < array.sizes()[1]; ++j)
      values.push_back(loop::bf16_to_f32(
          array.data<uint16_t>()[i * array.strides()[0] + j * array.strides()[1]]));
  return values;
}

float at(const Array& array, int64_t i, int64_t j) {
  return loop::bf16_to_f32(array.data<uint16_t>()[i * array.strides()[0] + j * array.strides()[1]]);
}

struct Product {
  Array a, b, out;
};

std::unique_ptr<LibraryPlan> widened_product(const Product& product, bool is_constant) {
  const PlanMaker f32_only = [](std::span<const Operand> operands, bool is_constant_weight) {
    for (const Operand& operand : operands)
      if (operand.dtype == DType::bf16) throw NoImplementation("[test] no bf16");
    return plan_matmul(operands, false, is_constant_weight);
  };
  const std::vector<Operand> operands = {operand_of(product.a), operand_of(product.b),
                                         operand_of(product.out)};
  return plan_or_widen(operands, f32_only, is_constant);
}

void check(const Product& product, bool is_constant) {
  const std::unique_ptr<LibraryPlan> plan = widened_product(product, is_constant);
  void* weight = product.b.raw();
  Array packed;
  EXPECT_EQ(!plan->packed_layout().empty(), is_constant);
  if (is_constant) {
    packed = Array::empty(DType::u8, Dims{plan->packed_bytes()});
    plan->pack(weight, packed.raw());
    weight = packed.raw();
  }
  const std::array<void*, 3> data = {product.a.raw(), weight, product.out.raw()};
  for (int call = 0; call < 2; ++call) execute(*plan, data);
  const int64_t m = product.a.sizes()[0], k = product.a.sizes()[1], n = product.b.sizes()[1];
  const std::vector<float> left = values_of(product.a), right = values_of(product.b);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const float* row = left.data() + i * k;
      const float* column = right.data() + j;
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += row[l] * column[l * n];
      ASSERT_EQ(at(product.out, i, j), loop::bf16_to_f32(loop::f32_to_bf16(sum))) << i << " " << j;
    }
}

TEST(WidenedTest, ProductsOfAnyStrides) {
  for (const bool is_constant : {false, true})
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{5, 40, 33}, {1, 7, 64}, {64, 300, 130}})
      for (const bool transposed : {false, true}) {
        const Dims b_strides = transposed ? Dims{1, k} : Dims{n, 1};
        // A left factor and a result with gaps, dense ones, and a row that is repeated.
        check({whole_numbers({m, k}, {k, 1}, m * k), whole_numbers({k, n}, b_strides, k * n),
               whole_numbers({m, n}, {n, 1}, m * n)},
              is_constant);
        check(
            {whole_numbers({m, k}, {2 * k, 2}, 2 * m * k), whole_numbers({k, n}, b_strides, k * n),
             whole_numbers({m, n}, {n + 3, 1}, m * (n + 3))},
            is_constant);
        check({whole_numbers({m, k}, {0, 1}, k), whole_numbers({k, n}, b_strides, k * n),
               whole_numbers({m, n}, {1, m}, m * n)},
              is_constant);
      }
}

TEST(WidenedTest, NothingBesideAResultWithGapsIsWritten) {
  const Array block = whole_numbers({4, 6}, {10, 1}, 40);
  check({whole_numbers({4, 8}, {8, 1}, 32), whole_numbers({8, 6}, {6, 1}, 48), block}, false);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 6; j < 10; ++j) {
      const int64_t place = i * 10 + j;
      EXPECT_EQ(loop::bf16_to_f32(block.data<uint16_t>()[place]), (place * 7 + 3) % 11 - 5)
          << place;
    }
}

TEST(WidenedTest, NanAndInfinity) {
  Product product{whole_numbers({2, 2}, {2, 1}, 4), whole_numbers({2, 2}, {2, 1}, 4),
                  whole_numbers({2, 2}, {2, 1}, 4)};
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {inf, 1, std::nanf(""), 1}, weights[] = {1, -1, 0, 0};
  for (int i = 0; i < 4; ++i) {
    product.a.data<uint16_t>()[i] = loop::f32_to_bf16(values[i]);
    product.b.data<uint16_t>()[i] = loop::f32_to_bf16(weights[i]);
  }
  const std::unique_ptr<LibraryPlan> plan = widened_product(product, false);
  const std::array<void*, 3> data = {product.a.raw(), product.b.raw(), product.out.raw()};
  plan->execute(data);
  const uint16_t* const out = product.out.data<uint16_t>();
  EXPECT_EQ(loop::bf16_to_f32(out[0]), inf);
  EXPECT_EQ(loop::bf16_to_f32(out[1]), -inf);
  EXPECT_EQ(out[2], 0x7FC0);
  EXPECT_EQ(out[3], 0x7FC0);
}

TEST(WidenedTest, WhatF32LacksTooIsSaid) {
  const PlanMaker none = [](std::span<const Operand>, bool) -> std::unique_ptr<LibraryPlan> {
    throw NoImplementation("[test] nothing");
  };
  const std::vector<Operand> operands(3, {DType::bf16, {2, 2}, {2, 1}});
  EXPECT_THROW(plan_or_widen(operands, none, false), Unsupported);
}

// Whatever this machine's library has, a call in bf16 has a plan, and none that is reference code.
TEST(WidenedTest, EveryConvolutionInBf16HasAPlan) {
  using abi::LibraryOp;
  for (const size_t dims : {1, 2, 3}) {
    Dims x = {2, 8}, weight = {16, 8}, y = {2, 16};
    for (size_t i = 0; i < dims; ++i) {
      x.push_back(9);
      weight.push_back(3);
      y.push_back(7);
    }
    const auto operand = [](const Dims& sizes) {
      return Operand{DType::bf16, sizes, contiguous_strides(sizes)};
    };
    abi::LibraryCall call;
    call.conv.stride.assign(dims, 1);
    call.conv.padding.assign(dims, 0);
    call.conv.dilation.assign(dims, 1);
    call.conv.groups = 1;
    const auto implementation = [&](LibraryOp op, const Dims& a, const Dims& b, const Dims& c) {
      call.op = op;
      const std::vector<Operand> operands = {operand(a), operand(b), operand(c)};
      return plan_convolution(operands, call)->report().implementation;
    };
    for (const std::string& name :
         {implementation(LibraryOp::convolution, x, weight, y),
          implementation(LibraryOp::convolution_backward_data, y, weight, x),
          implementation(LibraryOp::convolution_backward_weights, y, x, weight)})
      EXPECT_FALSE(name.starts_with("ref")) << name;
  }
}

}  // namespace
}  // namespace tandem::runtime
