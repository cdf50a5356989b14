// Reading a convolution call and deciding its tasks. Whole images are the best tasks; with too few
// of them, a forward call is cut by rows where activations outweigh weights (each task reads all
// weights) and by channels otherwise. A weight gradient sums over images, so it is cut by them only
// while the partial sums stay smaller than what they are computed from.
#include "runtime/conv_shape.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/array.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime::convolution {
namespace {

using abi::LibraryOp;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

[[noreturn]] void mismatch(std::span<const Operand> operands) {
  std::string text = "[convolution] shapes do not fit:";
  for (const Operand& operand : operands) text += " " + describe(operand.dtype, operand.sizes);
  throw UserError(text);
}

struct Roles {
  const Operand& x;
  const Operand& weight;
  const Operand& y;
};

Roles roles_of(std::span<const Operand> operands, LibraryOp op) {
  switch (op) {
    case LibraryOp::convolution_backward_data: return {operands[2], operands[1], operands[0]};
    case LibraryOp::convolution_backward_weights: return {operands[1], operands[2], operands[0]};
    default: return {operands[0], operands[1], operands.back()};
  }
}

Spatial spatial_of(const abi::ConvParams& params, size_t dim, int64_t in, int64_t out,
                   int64_t kernel) {
  Spatial spatial{in, out, kernel, params.stride[dim], params.dilation[dim], params.padding[dim],
                  0};
  spatial.pad_hi =
      (out - 1) * spatial.stride + (kernel - 1) * spatial.dilation + 1 - in - spatial.pad_lo;
  return spatial;
}

void check_types(const Call& call) {
  const auto accepted = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  const bool good = accepted(call.x_type) && call.y_type == call.x_type &&
                    call.weight_type == call.x_type && (!call.has_bias || accepted(call.bias_type));
  if (!good)
    throw Unsupported("[convolution] " + std::string(name_of(call.x_type)) + ", " +
                      std::string(name_of(call.weight_type)) + ", " +
                      std::string(name_of(call.y_type)) +
                      " has no library route; accepted are f32 and bf16, all alike");
}

// Dimension 0 of the weight is split into groups.
Dims grouped_strides(const Operand& weight, const Shape& shape) {
  Dims strides = weight.strides;
  if (shape.groups > 1) strides.insert(strides.begin(), shape.out / shape.groups * strides[0]);
  return strides;
}

constexpr int64_t kTaskFlops = 4 << 20;

// What is written decides: `channels` are those of the result (groups where there are several).
int64_t channel_pieces(const Call& call) {
  const Shape& shape = call.shape;
  if (shape.groups > 1) return ceil_div(shape.groups, 16);
  const bool is_data_gradient = call.op == LibraryOp::convolution_backward_data;
  return std::max<int64_t>(1, (is_data_gradient ? shape.in : shape.out) / kChannelGranule);
}

}  // namespace

int64_t product_of(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

Dims Shape::x_sizes() const {
  Dims sizes = {images, in};
  for (const Spatial& dim : spatial) sizes.push_back(dim.in);
  return sizes;
}

Dims Shape::y_sizes() const {
  Dims sizes = {images, out};
  for (const Spatial& dim : spatial) sizes.push_back(dim.out);
  return sizes;
}

Dims Shape::weight_sizes() const {
  Dims sizes;
  if (groups > 1) sizes.push_back(groups);
  sizes.insert(sizes.end(), {out / groups, in / groups});
  for (const Spatial& dim : spatial) sizes.push_back(dim.kernel);
  return sizes;
}

int64_t Shape::flops() const {
  int64_t count = 2 * images * out * (in / groups);
  for (const Spatial& dim : spatial) count *= dim.out * dim.kernel;
  return count;
}

OneDnnDims::OneDnnDims(const Shape& shape) {
  for (size_t i = 0; i < shape.spatial.size(); ++i) {
    const Spatial& dim = shape.spatial[i];
    stride[i] = dim.stride;
    dilation[i] = dim.dilation - 1;
    pad_lo[i] = dim.pad_lo;
    pad_hi[i] = dim.pad_hi;
  }
}

Dims channels_last(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t stride = sizes[1];
  for (size_t i = sizes.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  strides[1] = 1;
  strides[0] = stride;
  return strides;
}

bool same_strides(const Dims& sizes, const Dims& a, const Dims& b) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

Call call_of(std::span<const Operand> operands, const abi::LibraryCall& library_call) {
  Call call;
  call.op = library_call.op;
  call.has_bias = library_call.has_bias && call.op == LibraryOp::convolution;
  TD_CHECK(operands.size() == (call.has_bias ? 4u : 3u)) << operands.size() << " operands";
  const Roles roles = roles_of(operands, call.op);
  const abi::ConvParams& params = library_call.conv;
  const size_t rank = roles.x.sizes.size();
  const bool fits = rank >= 3 && rank <= 5 && roles.y.sizes.size() == rank &&
                    roles.weight.sizes.size() == rank && params.stride.size() == rank - 2 &&
                    params.padding.size() == rank - 2 && params.dilation.size() == rank - 2 &&
                    params.groups > 0;
  if (!fits) mismatch(operands);
  Shape& shape = call.shape;
  shape.images = roles.x.sizes[0];
  shape.groups = params.groups;
  shape.in = roles.x.sizes[1];
  shape.out = roles.y.sizes[1];
  for (size_t i = 2; i < rank; ++i) {
    const Spatial dim =
        spatial_of(params, i - 2, roles.x.sizes[i], roles.y.sizes[i], roles.weight.sizes[i]);
    if (dim.stride < 1 || dim.dilation < 1 || dim.pad_lo < 0 || dim.pad_hi + dim.stride <= 0 ||
        dim.pad_hi > dim.pad_lo)
      mismatch(operands);
    shape.spatial.push_back(dim);
  }
  if (roles.y.sizes[0] != shape.images || roles.weight.sizes[0] != shape.out ||
      roles.weight.sizes[1] * shape.groups != shape.in || shape.out % shape.groups != 0)
    mismatch(operands);
  call.x_type = roles.x.dtype;
  call.y_type = roles.y.dtype;
  call.weight_type = roles.weight.dtype;
  call.x_strides = roles.x.strides;
  call.y_strides = roles.y.strides;
  call.weight_strides = grouped_strides(roles.weight, shape);
  if (call.has_bias) {
    if (operands[2].sizes != Dims{shape.out}) mismatch(operands);
    call.bias_type = operands[2].dtype;
    call.bias_stride = operands[2].strides[0];
  }
  check_types(call);
  return call;
}

std::vector<Range> ranges_of(int64_t size, int64_t pieces, int64_t granule) {
  const int64_t block = std::max<int64_t>(1, ceil_div(ceil_div(size, pieces), granule)) * granule;
  std::vector<Range> ranges;
  for (int64_t lo = 0; lo < size; lo += block) ranges.push_back({lo, std::min(size, lo + block)});
  return ranges;
}

Cut cut_of(const Call& call) {
  const Shape& shape = call.shape;
  const int64_t wanted = std::clamp<int64_t>(shape.flops() / kTaskFlops, 1, 4 * machine_cores());
  const int64_t weights = product_of(shape.weight_sizes());
  const int64_t activations = product_of(shape.x_sizes()) + product_of(shape.y_sizes());
  const bool is_sum = call.op == LibraryOp::convolution_backward_weights;
  // Weights that outweigh the activations are read once: a task has some of them, and all images.
  const bool reads_weights = !is_sum && shape.groups == 1 && weights > activations;
  Cut cut;
  cut.images = reads_weights && channel_pieces(call) >= wanted ? 1 : std::min(wanted, shape.images);
  // Partial sums of the weights must not move more than the activations do. Half the tasks are
  // enough where more of them would have to copy slices of channels.
  if (is_sum) cut.images = std::clamp<int64_t>(activations / weights, 1, cut.images);
  if (is_sum && 2 * cut.images >= wanted) return cut;
  const int64_t rest = ceil_div(wanted, cut.images);
  if (rest <= 1) return cut;
  const bool by_rows = call.op == LibraryOp::convolution &&
                       (shape.groups > 1 || weights < product_of(shape.y_sizes()));
  if (by_rows) {
    cut.rows = std::min(rest, std::max<int64_t>(1, shape.spatial[0].out / 4));
    if (cut.rows > 1) cut.images = shape.images;
  } else {
    cut.channels = std::min(rest, channel_pieces(call));
  }
  return cut;
}

bool cut_rows(Spatial& dim, const Range& rows, int64_t& first_input_row) {
  const int64_t lo = rows.lo * dim.stride - dim.pad_lo;
  const int64_t hi = (rows.hi - 1) * dim.stride + (dim.kernel - 1) * dim.dilation + 1 - dim.pad_lo;
  first_input_row = std::max<int64_t>(0, lo);
  if (std::min(dim.in, hi) <= first_input_row) return false;
  // Whole steps, though nothing reads the rows behind the last one: where a stride has an input of
  // as many steps as results, the library takes kernels of one point for products.
  const int64_t end = std::min(dim.in, std::max(hi, lo + rows.size() * dim.stride));
  dim.pad_lo = first_input_row - lo;
  dim.pad_hi = hi - end;
  dim.in = end - first_input_row;
  dim.out = rows.size();
  return true;
}

}  // namespace tandem::runtime::convolution
