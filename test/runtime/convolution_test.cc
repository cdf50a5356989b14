// Convolutions of the library facade, forward and both gradients, against naive loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/diagnostic.h"
#include "loop/small_floats.h"
#include "runtime/array.h"
#include "runtime/library.h"
#include "runtime/parallel_for.h"
#include "test/runtime/execute_plan.h"
#include "test/runtime/numbers.h"

namespace tandem::runtime {
namespace {

using abi::LibraryOp;
using Dims = std::vector<int64_t>;

enum class Layout { first, last };  // channels

Dims strides_of(const Dims& sizes, Layout layout) {
  if (layout == Layout::first) return contiguous_strides(sizes);
  Dims strides(sizes.size());
  int64_t stride = std::max<int64_t>(1, sizes[1]);
  for (size_t i = sizes.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(1, sizes[i]);
  }
  strides[1] = 1;
  strides[0] = stride;
  return strides;
}

Array make(DType dtype, const Dims& sizes, Layout layout, std::mt19937& random) {
  const Array array = Array::empty(dtype, sizes);
  Numbers values(random);
  for (int64_t i = 0; i < array.numel(); ++i) {
    const float value = values.next();
    if (dtype == DType::f32) {
      array.data<float>()[i] = value;
    } else {
      array.data<uint16_t>()[i] = loop::f32_to_bf16(value);
    }
  }
  return array.as_strided(sizes, strides_of(sizes, layout));
}

std::vector<double> values_of(const Array& array) {
  const Array flat = array.contiguous();
  std::vector<double> values;
  for (int64_t i = 0; i < flat.numel(); ++i)
    values.push_back(flat.dtype() == DType::f32
                         ? static_cast<double>(flat.data<float>()[i])
                         : static_cast<double>(loop::bf16_to_f32(flat.data<uint16_t>()[i])));
  return values;
}

struct Case {
  int64_t images, in, out, groups;
  Dims size, kernel;
  int64_t stride, padding, dilation;
};

struct Tensors {
  Array x, weight, bias, y;
  abi::LibraryCall call;
};

Tensors make_tensors(const Case& one, LibraryOp op, DType dtype, Layout layout, bool bias,
                     std::mt19937& random) {
  Dims x = {one.images, one.in}, weight = {one.out, one.in / one.groups}, y = {one.images, one.out};
  for (size_t i = 0; i < one.size.size(); ++i) {
    x.push_back(one.size[i]);
    weight.push_back(one.kernel[i]);
    y.push_back(
        (one.size[i] + 2 * one.padding - (one.kernel[i] - 1) * one.dilation - 1) / one.stride + 1);
  }
  Tensors tensors{make(dtype, x, layout, random),
                  make(dtype, weight, layout, random),
                  make(one.in == 0 ? dtype : DType::f32, {one.out}, Layout::first, random),
                  make(dtype, y, layout, random),
                  {}};
  tensors.call.op = op;
  tensors.call.has_bias = bias;
  tensors.call.label = "aten.convolution";
  tensors.call.conv.groups = one.groups;
  tensors.call.conv.stride.assign(one.size.size(), one.stride);
  tensors.call.conv.padding.assign(one.size.size(), one.padding);
  tensors.call.conv.dilation.assign(one.size.size(), one.dilation);
  return tensors;
}

// With a constant weight: packed before, where the plan wants it so.
const Array& run(const Tensors& t, PlanReport* report = nullptr, bool is_constant = false) {
  std::vector<const Array*> arrays;
  switch (t.call.op) {
    case LibraryOp::convolution_backward_data: arrays = {&t.y, &t.weight, &t.x}; break;
    case LibraryOp::convolution_backward_weights: arrays = {&t.y, &t.x, &t.weight}; break;
    default:
      arrays = {&t.x, &t.weight};
      if (t.call.has_bias) arrays.push_back(&t.bias);
      arrays.push_back(&t.y);
  }
  std::vector<Operand> operands;
  std::vector<void*> data;
  for (const Array* array : arrays) {
    operands.push_back({array->dtype(),
                        {array->sizes().begin(), array->sizes().end()},
                        {array->strides().begin(), array->strides().end()}});
    data.push_back(array->raw());
  }
  const std::unique_ptr<LibraryPlan> plan = plan_convolution(operands, t.call, is_constant);
  Array packed;
  if (!plan->packed_layout().empty()) {
    packed = Array::empty(DType::u8, Dims{plan->packed_bytes()});
    plan->pack(data[1], packed.raw());
    data[1] = packed.raw();
  }
  execute(*plan, data);
  if (report != nullptr) *report = plan->report();
  return *arrays.back();
}

/// The nest of a convolution in three dimensions, those that it has first.
struct Nest {
  using Place = std::array<int64_t, 3>;
  Place in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, padding{0, 0, 0};

  static int64_t volume(const Place& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
  static Place place(int64_t i, const Place& sizes) {
    return {i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]};
  }
};

Nest nest_of(const Case& one, const Tensors& t) {
  Nest nest;
  for (size_t i = 0; i < one.size.size(); ++i) {
    nest.in[i] = one.size[i];
    nest.kernel[i] = one.kernel[i];
    nest.out[i] = t.y.sizes()[2 + i];
    nest.padding[i] = one.padding;
  }
  return nest;
}

/// Where tap `k` of result `p` reads in a channel; -1 in the padding.
int64_t read_at(const Case& one, const Nest& nest, int64_t p, int64_t k) {
  const Nest::Place to = Nest::place(p, nest.out), tap = Nest::place(k, nest.kernel);
  int64_t at = 0;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t i = to[d] * one.stride - nest.padding[d] + tap[d] * one.dilation;
    if (i < 0 || i >= nest.in[d]) return -1;
    at = at * nest.in[d] + i;
  }
  return at;
}

// Calls f(x index, weight index, y index) for every product, over row-major flat indices. Places
// are outside: under sanitizers, what stands inside takes nearly all of a test's time.
template <class F>
void for_each_product(const Case& one, const Tensors& t, const F& f) {
  const Nest nest = nest_of(one, t);
  const int64_t in_group = one.in / one.groups, out_group = one.out / one.groups;
  const int64_t taps = Nest::volume(nest.kernel), pixels = Nest::volume(nest.out);
  const int64_t step = Nest::volume(nest.in);
  for (int64_t p = 0; p < pixels; ++p)
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t at = read_at(one, nest, p, k);
      if (at < 0) continue;
      for (int64_t i = 0; i < one.images * one.out; ++i) {
        const int64_t n = i / one.out, o = i % one.out;
        int64_t x = (n * one.in + o / out_group * in_group) * step + at;
        int64_t w = o * in_group * taps + k;
        for (int64_t c = 0; c < in_group; ++c, x += step, w += taps)
          f(static_cast<size_t>(x), static_cast<size_t>(w), static_cast<size_t>(i * pixels + p));
      }
    }
}

std::vector<double> expected_of(const Case& one, const Tensors& t) {
  const std::vector<double> inputs = values_of(t.x), weights = values_of(t.weight);
  const std::vector<double> results = values_of(t.y), bias = values_of(t.bias);
  const double *x = inputs.data(), *w = weights.data(), *y = results.data();
  std::vector<double> expected;
  const auto from_zeros = [&](size_t count) {
    expected.assign(count, 0);
    return expected.data();
  };
  switch (t.call.op) {
    case LibraryOp::convolution_backward_data: {
      double* const to = from_zeros(inputs.size());
      for_each_product(one, t, [=](size_t a, size_t b, size_t c) { to[a] += w[b] * y[c]; });
      break;
    }
    case LibraryOp::convolution_backward_weights: {
      double* const to = from_zeros(weights.size());
      for_each_product(one, t, [=](size_t a, size_t b, size_t c) { to[b] += x[a] * y[c]; });
      break;
    }
    default: {
      double* const to = from_zeros(results.size());
      if (t.call.has_bias && !expected.empty()) {
        const size_t pixels = expected.size() / static_cast<size_t>(one.images * one.out);
        for (size_t i = 0; i < expected.size(); ++i) to[i] = bias[i / pixels % bias.size()];
      }
      for_each_product(one, t, [=](size_t a, size_t b, size_t c) { to[c] += x[a] * w[b]; });
    }
  }
  return expected;
}

constexpr std::array kOps = {LibraryOp::convolution, LibraryOp::convolution_backward_data,
                             LibraryOp::convolution_backward_weights};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {2, 3, 8, 1, {9, 11}, {3, 3}, 1, 1, 1},      {1, 16, 32, 1, {12, 12}, {3, 3}, 2, 1, 1},
      {3, 8, 8, 8, {10, 10}, {3, 3}, 1, 1, 1},     {2, 12, 18, 3, {7, 9}, {3, 3}, 1, 1, 1},
      {1, 64, 64, 1, {28, 28}, {3, 3}, 1, 1, 1},   {5, 20, 30, 1, {8, 8}, {1, 1}, 1, 0, 1},
      {1, 128, 160, 1, {7, 7}, {3, 3}, 1, 1, 1},   {2, 4, 6, 1, {13}, {5}, 2, 2, 1},
      {2, 4, 6, 2, {6, 7, 5}, {3, 3, 3}, 1, 1, 1}, {1, 5, 7, 1, {15, 15}, {3, 3}, 2, 2, 2},
      {1, 3, 16, 1, {40, 40}, {7, 7}, 2, 3, 1},    {2, 6, 5, 1, {8, 6}, {1, 1}, 2, 0, 1},
      {0, 4, 4, 1, {5, 5}, {3, 3}, 1, 1, 1},       {1, 64, 64, 64, {30, 30}, {3, 3}, 2, 1, 1},
      {4, 32, 48, 1, {14, 14}, {3, 3}, 1, 1, 1},   {1, 0, 4, 1, {5, 5}, {3, 3}, 1, 1, 1},
      {1, 64, 96, 1, {60, 60}, {1, 1}, 2, 0, 1},
  };
  return all;
}

std::string name_of_case(const Case& one, LibraryOp op) {
  return "in " + std::to_string(one.in) + " out " + std::to_string(one.out) + " groups " +
         std::to_string(one.groups) + " op " + std::to_string(static_cast<int>(op));
}

TEST(ConvolutionTest, MatchesNaiveLoops) {
  std::mt19937 random(1);
  for (const Case& one : cases())
    for (const LibraryOp op : kOps)
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const Layout layout : {Layout::first, Layout::last}) {
          const bool bias = op == LibraryOp::convolution && layout == Layout::last;
          const Tensors t = make_tensors(one, op, dtype, layout, bias, random);
          const std::vector<double> expected = expected_of(one, t);
          const std::vector<double> got = values_of(run(t));
          ASSERT_EQ(got.size(), expected.size());
          double worst = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            const double scale =
                dtype == DType::f32 ? 2e-4 : 0.02 * std::max(1.0, std::abs(expected[i]));
            const double error = std::abs(got[i] - expected[i]) / scale;
            worst = error <= worst ? worst : error;
          }
          EXPECT_LE(worst, 1) << name_of_case(one, op) << " " << name_of(dtype);
          EXPECT_EQ(values_of(run(t, nullptr, true)), got) << name_of_case(one, op) << " packed";
        }
}

TEST(ConvolutionTest, SameBitsAtAnyThreadCount) {
  std::mt19937 random(2);
  const int saved = threads();
  std::vector<Case> all = cases();
  all.push_back({8, 64, 64, 1, {28, 28}, {3, 3}, 1, 1, 1});
  all.push_back({1, 256, 256, 1, {14, 14}, {3, 3}, 1, 1, 1});
  all.push_back({4, 64, 64, 64, {56, 56}, {3, 3}, 1, 1, 1});
  for (const Case& one : all)
    for (const LibraryOp op : kOps)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Tensors t = make_tensors(one, op, dtype, Layout::last, false, random);
        Array first;
        for (const int count : {1, 2, 3, 8}) {
          set_threads(count);
          const Array result = run(t).contiguous();
          if (count == 1) {
            first = Array::empty(result.dtype(), result.sizes());
            first.copy_from(result);
          }
          EXPECT_EQ(std::memcmp(first.raw(), result.raw(), static_cast<size_t>(first.nbytes())), 0)
              << name_of_case(one, op);
        }
      }
  set_threads(saved);
}

// What the caller's layout costs: nothing channels-last, both activations otherwise.
TEST(ConvolutionTest, ReportsReorders) {
  std::mt19937 random(4);
  const Case one{8, 32, 64, 1, {8, 8}, {3, 3}, 1, 1, 1};
  const int64_t x_bytes = 8 * 32 * 64 * 4, y_bytes = 8 * 64 * 64 * 4;
  for (const LibraryOp op : kOps) {
    PlanReport report;
    run(make_tensors(one, op, DType::f32, Layout::last, false, random), &report);
    EXPECT_EQ(report.staged_bytes, 0) << name_of_case(one, op);
    EXPECT_GE(report.weight_bytes, 32 * 64 * 9 * 4) << name_of_case(one, op);
    run(make_tensors(one, op, DType::f32, Layout::first, false, random), &report);
    EXPECT_EQ(report.staged_bytes, x_bytes + y_bytes) << name_of_case(one, op);
  }
}

// The layers of ResNet-50, of two images: tasks of other sizes must not end in reference code.
TEST(ConvolutionTest, NoReferenceCode) {
  std::mt19937 random(5);
  for (const int64_t side : {7, 14, 28, 56})
    for (const int64_t kernel : {1, 3})
      for (const bool widens : {false, true})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const int64_t width = 64 * 56 / side;
          const Case one{2, width,        widens ? 4 * width : width,
                         1, {side, side}, {kernel, kernel},
                         1, kernel / 2,   1};
          for (const LibraryOp op : kOps) {
            PlanReport report;
            run(make_tensors(one, op, dtype, Layout::last, false, random), &report);
            EXPECT_FALSE(report.implementation.starts_with("ref"))
                << name_of_case(one, op) << " " << name_of(dtype);
          }
        }
}

// Kernels of one point that skip places are products of the places they see: by rows, too, where
// every block of rows has to have as many steps of input as results.
TEST(ConvolutionTest, PointsThatSkipPlacesAreProducts) {
  std::mt19937 random(6);
  for (const int64_t stride : {2, 3}) {
    const Case one{2, 64, 256, 1, {28 * stride, 28 * stride}, {1, 1}, stride, 0, 1};
    PlanReport report;
    run(make_tensors(one, LibraryOp::convolution, DType::f32, Layout::last, false, random),
        &report);
    EXPECT_GT(report.tasks, one.images);
    EXPECT_NE(report.implementation.find("1x1"), std::string::npos) << report.implementation;
  }
}

TEST(ConvolutionTest, UserMistakes) {
  std::mt19937 random(3);
  Tensors t =
      make_tensors(cases()[0], LibraryOp::convolution, DType::f32, Layout::last, false, random);
  t.call.conv.stride = {2, 2};
  EXPECT_THROW(run(t), UserError);
  t.call.conv.stride = {1, 1};
  t.call.conv.groups = 2;
  EXPECT_THROW(run(t), UserError);
}

}  // namespace
}  // namespace tandem::runtime
