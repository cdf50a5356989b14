// Sampling an image at places that a tensor gives, and the affine grids that make such places. All
// of it is written over graph tensors: a sample is a sum of gathers with weights, so gradients, of
// the image and of the places, are those of the parts. Computed in f32 and rounded once.
#include <fmt/format.h>

#include <array>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

enum Interpolation : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Outside : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor floor(Tensor x) { return call(x.builder(), "aten.floor", {x}); }
Tensor both(Tensor a, Tensor b) { return call(a.builder(), "aten.logical_and", {a, b}); }

// --- places
// ---------------------------------------------------------------------------------------

/// One dimension of the image: `size` elements, and how places outside are brought in.
struct Axis {
  Expr size;
  bool align;
  int64_t outside;
};
Tensor number_of(Tensor x, Expr number) {
  return call(x.builder(), "aten.add.Scalar", {zeros_like(x), number});
}
Tensor times(Tensor x, Expr number) { return call(x.builder(), "aten.mul.Scalar", {x, number}); }

/// [-1, 1] onto the centres of the outermost elements, or onto their edges.
Tensor unnormalised(Tensor x, const Axis& axis) {
  if (axis.align) return times((x + 1) / 2, axis.size - 1);
  return (times(x + 1, axis.size) - 1) / 2;
}
/// Folded into [low, high], both in half elements, at its ends.
Tensor reflected(Tensor x, Expr low, Expr high) {
  Builder& b = x.builder();
  if (low == high) return zeros_like(x);
  Tensor span = call(b, "aten.div.Scalar", {number_of(x, high - low), 2});
  Tensor start = call(b, "aten.div.Scalar", {number_of(x, low), 2});
  Tensor distance = abs(x - start);
  Tensor flips = floor(distance / span);
  Tensor rest = distance - flips * span;  // flips carries no gradient
  Tensor odd = compare("ne", flips - floor(flips * 0.5) * 2, 0);
  return where(odd, span - rest, rest) + start;
}
/// Into [0, size - 1]; a NaN becomes 0 as in eager. At the ends no gradient passes.
Tensor clipped(Tensor x, Expr size) {
  Tensor kept = where(compare("gt", x, 0), x, 0.0);
  Tensor last = number_of(x, size - 1);
  return where(compare("lt", kept, last), kept, last);
}
Tensor brought_in(Tensor x, const Axis& axis) {
  if (axis.outside == kZeros) return x;
  if (axis.outside == kReflection)
    x = axis.align ? reflected(x, 0, (axis.size - 1) * 2) : reflected(x, -1, axis.size * 2 - 1);
  return clipped(x, axis.size);
}

// --- a gather of one neighbour
// --------------------------------------------------------------------

/// What all neighbours of a call share.
struct Sampling {
  Tensor image;  // [n, c, size..]
  std::vector<Axis> axes;
  int64_t dims() const { return static_cast<int64_t>(axes.size()); }
};
/// Places of a whole number along one axis, as floats; the weight that goes with them, and its
/// slope by the position (both absent where the nearest element is all).
struct Neighbour {
  Tensor place, weight, slope;
};

/// One neighbour an axis: where it is in a plane of the image, [n, out..].
struct Spot {
  Tensor index, inside;
  std::vector<Neighbour> at;
  /// Product of the weights; of axis `but` the slope instead.
  Tensor weight(int64_t but = -1) const {
    Tensor product;
    for (int64_t i = 0; i < static_cast<int64_t>(at.size()); ++i) {
      Tensor factor = i == but ? at[i].slope : at[i].weight;
      if (factor) product = product ? product * factor : factor;
    }
    return product;
  }
};
Spot spot_of(const Sampling& s, const std::vector<Neighbour>& at) {
  Spot spot{{}, {}, at};
  for (int64_t i = 0; i < s.dims(); ++i) {
    Tensor place = at[i].place;
    Tensor last = number_of(place, s.axes[i].size - 1);
    Tensor fits = both(compare("ge", place, 0), compare("le", place, last));
    Tensor index = to(where(fits, place, 0.0), DType::i64);
    spot.inside = spot.inside ? both(spot.inside, fits) : fits;
    spot.index = spot.index ? times(spot.index, s.axes[i].size) + index : index;
  }
  return spot;
}

Expr plane_size(const Sampling& s) { return sym::product(std::span(s.image.sizes()).subspan(2)); }
/// The spot's numbers for every channel, [n, c, count].
Tensor for_channels(const Sampling& s, Tensor index) {
  const Sizes& sizes = s.image.sizes();
  Expr count = sym::product(std::span(index.sizes()).subspan(1));
  return expand(reshape(index, {sizes[0], 1, count}), {sizes[0], sizes[1], count});
}
/// The image at a spot, 0 outside: [n, c, out..].
Tensor read(const Sampling& s, const Spot& spot) {
  const Sizes& sizes = s.image.sizes();
  Tensor planes = reshape(s.image, {sizes[0], sizes[1], plane_size(s)});
  Tensor x = call(s.image.builder(), "aten.gather", {planes, 2, for_channels(s, spot.index)});
  Sizes result{sizes[0], sizes[1]};
  result.insert(result.end(), spot.index.sizes().begin() + 1, spot.index.sizes().end());
  return where(unsqueeze(spot.inside, 1), reshape(x, result), 0.0);
}

/// All choices of one neighbour an axis.
std::vector<Spot> spots_of(const Sampling& s,
                           const std::vector<std::vector<Neighbour>>& neighbours) {
  size_t choices = 1;
  for (const std::vector<Neighbour>& axis : neighbours) choices *= axis.size();
  std::vector<Spot> spots;
  for (size_t choice = 0; choice < choices; ++choice) {
    std::vector<Neighbour> at;
    size_t rest = choice;
    for (const std::vector<Neighbour>& axis : neighbours) {
      at.push_back(axis[rest % axis.size()]);
      rest /= axis.size();
    }
    spots.push_back(spot_of(s, at));
  }
  return spots;
}

std::vector<Neighbour> linear_neighbours(Tensor x) {
  Tensor low = floor(x);
  Tensor one = ones_like(x);
  return {{low, (low + 1) - x, -one}, {low + 1, x - low, one}};
}
/// Keys' kernel with a = -0.75; each tap is brought in by itself.
std::vector<Neighbour> cubic_neighbours(Tensor x, const Axis& axis) {
  constexpr double kA = -0.75;
  auto near = [](Tensor d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  auto far = [](Tensor d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  Tensor low = floor(x);
  Tensor t = x - low;
  auto near_slope = [](Tensor d) { return (3 * (kA + 2) * d - 2 * (kA + 3)) * d; };
  auto far_slope = [](Tensor d) { return (3 * kA * d - 10 * kA) * d + 8 * kA; };
  Tensors weights{far(t + 1), near(t), near(1 - t), far(2 - t)};
  Tensors slopes{far_slope(t + 1), near_slope(t), -near_slope(1 - t), -far_slope(2 - t)};
  std::vector<Neighbour> neighbours;
  for (int i = 0; i < 4; ++i)
    neighbours.push_back(
        {brought_in(low + static_cast<double>(i - 1), axis), weights[i], slopes[i]});
  return neighbours;
}

/// The image of a call and all spots that its grid reads.
struct Sampled {
  Sampling image;
  std::vector<Spot> spots;
};
Sampled sampled(const Call& c, Tensor input, Tensor grid) {
  int64_t interpolation = c.constant("interpolation_mode");
  Sampling s{input, {}};
  for (int64_t i = 2; i < input.rank(); ++i)
    s.axes.push_back({input.size(i), c.boolean("align_corners"), c.constant("padding_mode")});
  std::vector<std::vector<Neighbour>> neighbours;
  for (int64_t i = 0; i < s.dims(); ++i) {
    // The grid's last dimension is x, y, z; the image's are z, y, x.
    Tensor x = unnormalised(select(grid, grid.rank() - 1, s.dims() - 1 - i), s.axes[i]);
    if (interpolation != kCubic) x = brought_in(x, s.axes[i]);
    if (interpolation == kCubic)
      neighbours.push_back(cubic_neighbours(x, s.axes[i]));
    else if (interpolation == kLinear)
      neighbours.push_back(linear_neighbours(x));
    else
      neighbours.push_back({{call(x.builder(), "aten.round", {x}), Tensor(), Tensor()}});
  }
  return {s, spots_of(s, neighbours)};
}

// --- ops
// ------------------------------------------------------------------------------------------

int64_t dims_of(const Call& c) {
  const std::string& name = c.op().schema.name;
  if (name.find("3d") != std::string::npos) return 3;
  return name.find("2d") != std::string::npos ? 2 : c.type("input").rank() - 2;
}
Sizes sampled_sizes(const Call& c) {
  const ir::Type& input = c.type("input");
  const ir::Type& grid = c.type("grid");
  int64_t dims = dims_of(c);
  need_float(c, "input");
  need_same_dtype(c, {"input", "grid", "grad_output"});
  need_rank(c, "input", 4, 5);
  need_rank(c, "input", dims + 2, dims + 2);
  need_rank(c, "grid", dims + 2, dims + 2);
  if (grid.sizes.back() != Expr(dims))
    c.fail(fmt::format("{} must have {} as its last size", c.describe("grid"), dims));
  if (grid.sizes[0] != input.sizes[0] && !sym::known_eq(grid.sizes[0], input.sizes[0]))
    c.fail(c.describe("input") + " and " + c.describe("grid") + " must have the same batch");
  for (int64_t i = 2; i < input.rank(); ++i)
    if (input.sizes[i] == Expr(0)) c.fail(c.describe("input") + " has an empty image");
  int64_t interpolation = c.constant("interpolation_mode");
  if (interpolation < kLinear || interpolation > (dims == 2 ? kCubic : kNearest))
    c.fail(c.describe("interpolation_mode") + " is none for this number of dimensions");
  int64_t outside = c.constant("padding_mode");
  if (outside < kZeros || outside > kReflection)
    c.fail(c.describe("padding_mode") + " must be 0, 1 or 2");
  Sizes sizes{input.sizes[0], input.sizes[1]};
  sizes.insert(sizes.end(), grid.sizes.begin() + 1, grid.sizes.end() - 1);
  return sizes;
}
Types sample_types(const Call& c) {
  return {ir::Type::tensor(c.type("input").dtype, sampled_sizes(c))};
}
Tensor wide(Builder& b, const Call& c, std::string_view name) {
  Tensor x = tensor(b, c, name);
  return to(x, compute_type(x.dtype()));
}
Tensors sample_parts(Builder& b, const Call& c) {
  Sampled s = sampled(c, wide(b, c, "input"), wide(b, c, "grid"));
  Tensor total;
  for (const Spot& spot : s.spots) {
    Tensor x = read(s.image, spot);
    if (Tensor weight = spot.weight()) x = x * unsqueeze(weight, 1);
    total = total ? total + x : x;
  }
  return {to(total, c.result()->type.dtype)};
}

const Samples kPlaneSamples = {
    "$[2, 3, 4, 5], $[2, 6, 7, 2], 0, 0, false", "$[2, 3, 4, 5], $[2, 6, 7, 2], 0, 0, true",
    "$[2, 3, 4, 5], $[2, 6, 7, 2], 0, 1, false", "$[2, 3, 4, 5], $[2, 6, 7, 2], 0, 2, false",
    "$[2, 3, 4, 5], $[2, 6, 7, 2], 0, 2, true",  "$[2, 3, 4, 5], $[2, 6, 7, 2], 1, 0, false",
    "$[2, 3, 4, 5], $[2, 6, 7, 2], 1, 2, true",  "$[2, 3, 4, 5], $[2, 6, 7, 2], 2, 0, false",
    "$[2, 3, 4, 5], $[2, 6, 7, 2], 2, 1, true",  "$[2, 3, 4, 5], $[2, 6, 7, 2], 2, 2, false",
    "$[2, 3, 1, 1], $[2, 3, 3, 2], 0, 2, true",  "$[0, 3, 4, 5], $[0, 6, 7, 2], 0, 0, false",
    "$[2, 3, 4, 5], $[2, 6, 7, 3], 0, 0, false", "$[2, 3, 4, 5], $[2, 6, 7, 2]:bool, 0, 1, true"};
const Samples kBoxSamples = {"$[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 0, 0, false",
                             "$[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 0, 1, true",
                             "$[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 0, 2, false",
                             "$[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 1, 0, false",
                             "$[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 2, 0, false"};
#define TANDEM_GRID_SAMPLER(Name, text, set)                                                \
  const OpDef Name {                                                                        \
    .schema = "aten::" text                                                                 \
              "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool " \
              "align_corners) -> Tensor",                                                   \
    .types = sample_types, .decompose = sample_parts, .samples = set                        \
  }
TANDEM_GRID_SAMPLER(kGrid, "grid_sampler", kPlaneSamples);
TANDEM_GRID_SAMPLER(kGrid2, "grid_sampler_2d", kPlaneSamples);
TANDEM_GRID_SAMPLER(kGrid3, "grid_sampler_3d", kBoxSamples);
#undef TANDEM_GRID_SAMPLER

// --- gradient ops
// ---------------------------------------------------------------------------------

/// How the position moves with the grid: the scale, and how it was brought in (-1 where it was
/// reflected an odd number of times, 0 where it was clipped).
Tensor position_slope(Tensor grid_line, const Axis& axis, int64_t interpolation) {
  Tensor scale = number_of(grid_line, axis.align ? axis.size - 1 : axis.size) / 2;
  if (axis.outside == kZeros || interpolation == kCubic) return scale;
  Tensor x = unnormalised(grid_line, axis);
  if (axis.outside == kReflection) {
    Expr low = axis.align ? Expr(0) : Expr(-1);
    Expr high = axis.align ? (axis.size - 1) * 2 : axis.size * 2 - 1;
    if (low == high) return zeros_like(scale);
    Builder& b = x.builder();
    Tensor start = call(b, "aten.div.Scalar", {number_of(x, low), 2});
    Tensor span = call(b, "aten.div.Scalar", {number_of(x, high - low), 2});
    Tensor flips = floor(abs(x - start) / span);
    Tensor odd = compare("ne", flips - floor(flips * 0.5) * 2, 0);
    Tensor away = compare("lt", x, start);
    scale = where(call(b, "aten.logical_xor", {odd, away}), -scale, scale);
    x = reflected(x, low, high);
  }
  Tensor moves = both(compare("gt", x, 0), compare("lt", x, number_of(x, axis.size - 1)));
  return where(moves, scale, 0.0);
}
Tensor image_gradient(const Sampled& s, Tensor grad) {
  const Sizes& sizes = s.image.image.sizes();
  Builder& b = grad.builder();
  Tensor sums = full(b, {sizes[0], sizes[1], plane_size(s.image)}, 0, grad.dtype());
  for (const Spot& spot : s.spots) {
    Tensor part = grad;
    if (Tensor weight = spot.weight()) part = part * unsqueeze(weight, 1);
    part = where(unsqueeze(spot.inside, 1), part, 0.0);
    Tensor index = for_channels(s.image, spot.index);
    sums = call(b, "aten.scatter_add", {sums, 2, index, reshape(part, index.sizes())});
  }
  return reshape(sums, sizes);
}
/// [n, out.., dims], x first.
Tensor grid_gradient(const Call& c, const Sampled& s, Tensor grad, Tensor grid) {
  int64_t interpolation = c.constant("interpolation_mode");
  if (interpolation == kNearest) return zeros_like(grid);
  Tensors lines(s.image.axes.size());
  for (const Spot& spot : s.spots) {
    Tensor dot = sum(grad * read(s.image, spot), {1});
    for (int64_t i = 0; i < s.image.dims(); ++i) {
      Tensor part = dot * spot.weight(i);
      lines[i] = lines[i] ? lines[i] + part : part;
    }
  }
  Tensors columns;
  for (int64_t i = s.image.dims(); i-- > 0;) {
    Tensor line = select(grid, grid.rank() - 1, s.image.dims() - 1 - i);
    columns.push_back(lines[i] * position_slope(line, s.image.axes[i], interpolation));
  }
  return call(grad.builder(), "aten.stack", {columns, -1});
}
Types sample_backward_types(const Call& c) {
  if (!same_sizes(c.type("grad_output").sizes, sampled_sizes(c)))
    c.fail(c.describe("grad_output") + " must have the sizes of the result");
  if (c.ints("output_mask").size() != 2) c.fail("output_mask must have 2 elements");
  return {ir::Type::tensor(c.type("input").dtype, c.type("input").sizes),
          ir::Type::tensor(c.type("grid").dtype, c.type("grid").sizes)};
}
Tensors sample_backward_parts(Builder& b, const Call& c) {
  Tensor grid = wide(b, c, "grid");
  Tensor grad = wide(b, c, "grad_output");
  Sampled s = sampled(c, wide(b, c, "input"), grid);
  return {to(image_gradient(s, grad), c.result(0)->type.dtype),
          to(grid_gradient(c, s, grad, grid), c.result(1)->type.dtype)};
}
const Samples kPlaneBackward = {
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 0, 0, false, [true, true]",
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 0, 1, true, [true, true]",
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 0, 2, false, [true, true]",
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 0, 2, true, [true, true]",
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 1, 0, false, [true, true]",
    "$[2, 3, 6, 7], $[2, 3, 4, 5], $[2, 6, 7, 2], 2, 2, false, [true, true]"};
const Samples kBoxBackward = {
    "$[1, 2, 2, 3, 4], $[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 0, 0, false, [true, true]",
    "$[1, 2, 2, 3, 4], $[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 0, 2, true, [true, true]",
    "$[1, 2, 2, 3, 4], $[1, 2, 3, 4, 5], $[1, 2, 3, 4, 3], 1, 1, false, [true, true]"};
#define TANDEM_GRID_BACKWARD(Name, text, set)                                                     \
  const OpDef Name {                                                                              \
    .schema = "aten::" text                                                                       \
              "_backward(Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, " \
              "int padding_mode, bool align_corners, bool[2] output_mask) -> (Tensor, Tensor)",   \
    .types = sample_backward_types, .decompose = sample_backward_parts, .samples = set            \
  }
TANDEM_GRID_BACKWARD(kGrid2Backward, "grid_sampler_2d", kPlaneBackward);
TANDEM_GRID_BACKWARD(kGrid3Backward, "grid_sampler_3d", kBoxBackward);
#undef TANDEM_GRID_BACKWARD

// --- affine grids
// ---------------------------------------------------------------------------------

/// Centres of `size` elements in [-1, 1], or with the outermost at the ends; [size].
Tensor base_line(Builder& b, Expr size, bool align, DType dtype) {
  Tensor i = arange(b, size, dtype);
  if (align && size == Expr(1)) return zeros_like(i);
  if (align) return call(b, "aten.div.Scalar", {i * 2.0, size - 1}) - 1;
  return call(b, "aten.div.Scalar", {i * 2.0 + 1, size}) - 1;
}
/// [out.., dims + 1]: x, y, (z,) 1 of every element.
Tensor base_grid(Builder& b, const Call& c, DType dtype) {
  const ir::Ints& size = c.ints("size");
  Sizes out(size.begin() + 2, size.end());
  Sizes with_one = out;
  with_one.push_back(1);
  Tensors parts;
  for (size_t i = out.size(); i-- > 0;) {
    Sizes shape(with_one.size(), Expr(1));
    shape[i] = out[i];
    Tensor line = base_line(b, out[i], c.boolean("align_corners"), dtype);
    parts.push_back(expand(reshape(line, shape), with_one));
  }
  parts.push_back(full(b, with_one, 1, dtype));
  return cat(parts, static_cast<int64_t>(out.size()));
}
int64_t grid_dims(const Call& c) {
  const ir::Ints& size = c.ints("size");
  if (size.size() != 4 && size.size() != 5) c.fail(c.describe("size") + " needs 4 or 5 numbers");
  for (Expr each : size)
    if (sym::known_lt(each, 1)) c.fail(c.describe("size") + " must be positive");
  return static_cast<int64_t>(size.size()) - 2;
}
Expr grid_points(const Call& c) { return sym::product(std::span(c.ints("size")).subspan(2)); }

// grid[n, out.., :] = theta[n] (x, y, 1)
const OpDef kAffineGrid{
    .schema =
        "aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor",
    .types = [](const Call& c) -> Types {
      int64_t dims = grid_dims(c);
      const ir::Ints& size = c.ints("size");
      need_float(c, "theta");
      if (!same_sizes(c.type("theta").sizes, {size[0], dims, dims + 1}))
        c.fail(fmt::format("{} must have sizes [{}, {}, {}]", c.describe("theta"),
                           sym::to_string(size[0]), dims, dims + 1));
      Sizes sizes{size[0]};
      sizes.insert(sizes.end(), size.begin() + 2, size.end());
      sizes.push_back(dims);
      return {ir::Type::tensor(c.type("theta").dtype, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      int64_t dims = grid_dims(c);
      Tensor theta = wide(b, c, "theta");
      Tensor base = reshape(base_grid(b, c, theta.dtype()), {1, grid_points(c), dims + 1});
      base = expand(base, {c.ints("size")[0], grid_points(c), dims + 1});
      const ir::Type& result = c.result()->type;
      return {to(reshape(bmm(base, transpose(theta, 1, 2)), result.sizes), result.dtype)};
    },
    .samples = {"$[2, 2, 3], [2, 3, 4, 5], false", "$[2, 2, 3], [2, 3, 4, 5], true",
                "$[1, 3, 4], [1, 2, 3, 4, 5], true", "$[1, 3, 4], [1, 2, 3, 4, 5], false",
                "$[2, 2, 3], [2, 3, 1, 1], true", "$[2, 2, 2], [2, 3, 4, 5], false"}};
const OpDef kAffineGridBackward{
    .schema =
        "aten::affine_grid_generator_backward(Tensor grad, SymInt[] size, bool align_corners) -> "
        "Tensor",
    .types = [](const Call& c) -> Types {
      int64_t dims = grid_dims(c);
      const ir::Ints& size = c.ints("size");
      Sizes sizes{size[0]};
      sizes.insert(sizes.end(), size.begin() + 2, size.end());
      sizes.push_back(dims);
      need_float(c, "grad");
      if (!same_sizes(c.type("grad").sizes, sizes))
        c.fail(fmt::format("{} must have sizes {}", c.describe("grad"), ir::to_string(sizes)));
      return {ir::Type::tensor(c.type("grad").dtype, {size[0], dims, dims + 1})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      int64_t dims = grid_dims(c);
      Tensor grad = wide(b, c, "grad");
      Tensor base = reshape(base_grid(b, c, grad.dtype()), {1, grid_points(c), dims + 1});
      base = expand(base, {c.ints("size")[0], grid_points(c), dims + 1});
      Tensor columns = reshape(grad, {c.ints("size")[0], grid_points(c), dims});
      return {to(bmm(transpose(columns, 1, 2), base), c.result()->type.dtype)};
    },
    .samples = {"$[2, 4, 5, 2], [2, 3, 4, 5], false", "$[1, 3, 4, 5, 3], [1, 2, 3, 4, 5], true"}};

const OpDef* const kOps[] = {
    &kGrid, &kGrid2, &kGrid3, &kGrid2Backward, &kGrid3Backward, &kAffineGrid, &kAffineGridBackward};

}  // namespace

Family grid_sample_family() { return kOps; }

}  // namespace tandem::ops
