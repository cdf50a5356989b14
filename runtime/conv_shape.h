// A convolution call as numbers, and how it is cut into tasks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "abi/program.h"
#include "base/dtype.h"
#include "runtime/library.h"

namespace tandem::runtime::convolution {

using Dims = std::vector<int64_t>;

/// One spatial dimension of a convolution or of a block of it. `pad_hi` is what the result needs:
/// negative when a stride leaves input unread.
struct Spatial {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1;
  int64_t pad_lo = 0, pad_hi = 0;
  bool operator==(const Spatial&) const = default;
};

/// A convolution, whole or a task of one. x is the input and y the result of the forward operation.
struct Shape {
  int64_t images = 1, groups = 1, in = 1, out = 1;  // channels of all groups
  std::vector<Spatial> spatial;
  bool operator==(const Shape&) const = default;

  Dims x_sizes() const;
  Dims y_sizes() const;
  /// [groups,] out per group, in per group, kernel
  Dims weight_sizes() const;
  int64_t flops() const;
};

/// Parameters of oneDNN's descriptors; dilation counts from 0 there.
struct OneDnnDims {
  std::array<int64_t, 3> stride{}, dilation{}, pad_lo{}, pad_hi{};
  explicit OneDnnDims(const Shape& shape);
};

/// A library call, verified. Strides in elements.
struct Call {
  abi::LibraryOp op = abi::LibraryOp::convolution;
  Shape shape;
  DType x_type{}, y_type{}, weight_type{}, bias_type{};
  Dims x_strides, y_strides;
  Dims weight_strides;  // of Shape::weight_sizes
  bool has_bias = false;
  int64_t bias_stride = 1;

  bool is_data_gradient() const { return op == abi::LibraryOp::convolution_backward_data; }
  bool is_weight_gradient() const { return op == abi::LibraryOp::convolution_backward_weights; }
};

/// UserError for shapes that do not fit, Unsupported for dtypes.
Call call_of(std::span<const Operand> operands, const abi::LibraryCall& library_call);

/// Into how many pieces each dimension is cut; 1 leaves it whole. A function of the call alone.
/// `channels` are groups where there are several, else channels of what is written.
struct Cut {
  int64_t images = 1, rows = 1, channels = 1;
};
Cut cut_of(const Call& call);
inline constexpr int64_t kChannelGranule = 32;

struct Range {
  int64_t lo = 0, hi = 0;
  int64_t size() const { return hi - lo; }
};

/// Pieces of about equal size whose borders are multiples of `granule`.
std::vector<Range> ranges_of(int64_t size, int64_t pieces, int64_t granule);

/// Makes `dim` compute only the given rows of the result. False where they read no input at all.
bool cut_rows(Spatial& dim, const Range& rows, int64_t& first_input_row);

/// Strides of [n, channels, spatial…] with channels innermost.
Dims channels_last(const Dims& sizes);
/// Equal where it matters: in dimensions of more than one element.
bool same_strides(const Dims& sizes, const Dims& a, const Dims& b);

int64_t product_of(std::span<const int64_t> sizes);

}  // namespace tandem::runtime::convolution
