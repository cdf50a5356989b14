// What PyTorch took over from NumPy and SciPy that is a few other ops: half-way rotations of
// spectra, Vandermonde matrices, finite differences along dimensions, sums back to a broadcast
// shape, parts joined by chunks.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/delegate.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
std::vector<int64_t> all_dims(int64_t rank) {
  std::vector<int64_t> dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}
std::vector<int64_t> dims_or_all(const Call& c, std::string_view name) {
  int64_t rank = c.type("self").rank();
  return c.has(name) ? c.dims(name, rank) : all_dims(rank);
}

// --- fftshift
// -------------------------------------------------------------------------------------

/// Rotates each dimension by half its size, rounded down (up: the inverse).
template <bool inverse>
Tensors shifted(Builder& b, const Call& c) {
  std::vector<int64_t> dims = dims_or_all(c, "dim");
  ir::Ints shifts;
  for (int64_t dim : dims) shifts.push_back(sym::floor_div(self_sizes(c)[dim] + inverse, 2));
  return {call(b, "aten.roll", {self_of(b, c), shifts, dims})};
}
Types shift_types(const Call& c) {
  if (dims_or_all(c, "dim").empty()) c.fail("needs a dimension");
  return unary_same(c);
}
const Samples kShiftSamples = {"$[5]",      "$[4, 3]",   "$[4, 3], [1]", "$[5, 4, 3], [0, -1]",
                               "$[0, 3]",   "$[]",       "$[3], [1]",    "$[4, 3]{1, 4}",
                               "i64[2, 5]", "bool[2, 5]"};
const OpDef kFftshift{.schema = "aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor",
                      .types = shift_types,
                      .decompose = shifted<false>,
                      .samples = kShiftSamples};
const OpDef kIfftshift{.schema = "aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor",
                       .types = shift_types,
                       .decompose = shifted<true>,
                       .samples = kShiftSamples};

// --- copies of parts
// ------------------------------------------------------------------------------

const OpDef kNarrowCopy{
    .schema = "aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
    .types = [](const Call& c) -> Types { return types_of("aten.narrow", c.args()); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call(b, "aten.clone",
                   {call(b, "aten.narrow",
                         {c.arg("self"), c.arg("dim"), c.arg("start"), c.arg("length")})})};
    },
    .samples = {"$[5, 4], 0, 1, 3", "$[5, 4], -1, 2, 1", "$[5], 0, 2, 0", "$[5, 4]{1, 5}, 1, 1, 2",
                "$[5], 0, 4, 2"},
    .out = true};

// --- sum_to_size
// ----------------------------------------------------------------------------------

/// Dimensions that broadcasting `sizes` to `self` added or stretched.
std::vector<int64_t> stretched(const Call& c) {
  const Sizes& self = self_sizes(c);
  const ir::Ints& sizes = c.ints("size");
  auto refuse = [&] {
    c.fail(fmt::format("{} is no sum of {}", ir::to_string(sizes), c.describe("self")));
  };
  if (sizes.size() > self.size()) refuse();
  std::vector<int64_t> dims = all_dims(std::ssize(self) - std::ssize(sizes));
  int64_t added = std::ssize(dims);
  for (int64_t i = 0; i < std::ssize(sizes); ++i) {
    if (sizes[i] == self[added + i]) continue;
    if (sizes[i] != Expr(1) && !sym::known_eq(sizes[i], self[added + i])) refuse();
    if (sizes[i] == Expr(1)) dims.push_back(added + i);
  }
  return dims;
}
const OpDef kSumToSize{
    .schema = "aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor",
    .types = [](const Call& c) -> Types {
      DType dtype = c.type("self").dtype;
      bool sums = (!stretched(c).empty() || c.ints("size").empty()) && !is_float(dtype) &&
                  !is_complex(dtype);
      return {ir::Type::tensor(sums ? DType::i64 : dtype, c.ints("size"))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      std::vector<int64_t> dims = stretched(c);
      Tensor self = self_of(b, c);
      if (c.ints("size").empty()) return {sum_all(self)};
      if (dims.empty()) return {call(b, "aten.alias", {self})};
      return {reshape(sum(self, dims, true), c.ints("size"))};
    },
    .samples = {"$[3, 4], [4]", "$[3, 4], [3, 1]", "$[3, 4], [1, 4]", "$[3, 4], []",
                "$[2, 3, 4], [3, 1]", "$[3, 4], [3, 4]", "$[], []", "$[0, 3], [3]",
                "i32[3, 4], [4]", "$[3, 4], [2]", "$[3], [1, 3]", "i32[], []", "bool[3], [3]"}};

// --- _chunk_cat
// -----------------------------------------------------------------------------------

struct Chunks {
  int64_t dim, count;
};
Chunks chunks_of(const Call& c) {
  const ir::Values& parts = c.values("tensors");
  if (parts.empty()) c.fail("needs at least one tensor");
  Chunks chunks{c.wrapped(c.constant("dim"), parts[0]->type.rank()), c.constant("num_chunks")};
  if (chunks.count < 1) c.fail(c.describe("num_chunks") + " must be positive");
  const ir::Type& first = parts[0]->type;
  for (const ir::Value* part : parts) {
    const ir::Type& type = part->type;
    bool alike = type.dtype == first.dtype && type.rank() > chunks.dim;
    for (int64_t i = 0; alike && i < chunks.dim; ++i)
      alike = sym::known_eq(type.sizes[i], first.sizes[i]);
    if (!alike) c.fail("the tensors must agree in dtype and in the dimensions before dim");
  }
  return chunks;
}
/// The size of `dim` in a chunk, and of everything from it on.
Expr chunk_size(const Sizes& sizes, Chunks chunks) {
  return sym::ceil_div(sizes[chunks.dim], chunks.count);
}
Expr chunk_numel(const Sizes& sizes, Chunks chunks) {
  Expr rest = sym::product(Sizes(sizes.begin() + chunks.dim + 1, sizes.end()));
  return chunk_size(sizes, chunks) * rest;
}
const OpDef kChunkCat{
    .schema = "aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor",
    .types = [](const Call& c) -> Types {
      Chunks chunks = chunks_of(c);
      const ir::Type& first = c.values("tensors")[0]->type;
      Sizes sizes(first.sizes.begin(), first.sizes.begin() + chunks.dim);
      Expr width = 0;
      for (const ir::Value* part : c.values("tensors"))
        width = width + chunk_numel(part->type.sizes, chunks);
      sizes.insert(sizes.end(), {chunks.count, width});
      return {ir::Type::tensor(first.dtype, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Chunks chunks = chunks_of(c);
      Tensors rows;
      for (ir::Value* value : c.values("tensors")) {
        Tensor part{b, value};
        Sizes sizes(part.sizes().begin(), part.sizes().begin() + chunks.dim);
        sizes.insert(sizes.end(), {chunks.count, chunk_numel(part.sizes(), chunks)});
        ir::Ints pad(2 * (part.rank() - chunks.dim), Expr(0));
        pad.back() = chunk_size(part.sizes(), chunks) * chunks.count - part.size(chunks.dim);
        rows.push_back(reshape(call(b, "aten.constant_pad_nd", {part, pad}), sizes));
      }
      return {cat(rows, chunks.dim + 1)};
    },
    .samples = {"[$[4, 3], $[6, 2]], 0, 2", "[$[5], $[3]], 0, 2", "[$[2, 5], $[2, 3, 2]], 1, 3",
                "[$[2, 5]], -1, 2", "[$[3, 4]], 0, 0", "[$[3, 4], $[2, 4]], 1, 2"},
    .out = true};

// --- linalg_vander
// --------------------------------------------------------------------------------

Expr vander_width(const Call& c) {
  const Sizes& sizes = c.type("x").sizes;
  Expr width = c.has("N") ? c.integer("N") : sizes.empty() ? Expr(1) : sizes.back();
  if (sym::known_lt(width, 2)) c.fail("N must be greater than 1");
  return width;
}
/// x^0, x^1, … as products of prefixes.
Tensors vander(Builder& b, const Call& c) {
  Tensor x{b, c.value("x")};
  if (x.rank() == 0) x = unsqueeze(x, 0);
  Sizes sizes = x.sizes();
  sizes.push_back(vander_width(c) - 1);
  Tensor powers = call(b, "aten.cumprod", {expand(unsqueeze(x, x.rank()), sizes), x.rank()});
  sizes.back() = 1;
  return {cat({full(b, sizes, 1, powers.dtype()), powers}, x.rank())};
}
const OpDef kVander{.schema = "aten::linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor",
                    .types = [](const Call& c) -> Types {
                      DType dtype = c.type("x").dtype;
                      if (is_float(dtype) ? dtype != compute_type(dtype) : dtype == DType::boolean)
                        c.fail("is not defined for " + c.describe("x"));
                      Sizes sizes = c.type("x").sizes;
                      if (sizes.empty()) sizes.push_back(1);
                      sizes.push_back(vander_width(c));
                      const bool is_whole = !is_float(dtype) && !is_complex(dtype);
                      return {ir::Type::tensor(is_whole ? DType::i64 : dtype, sizes)};
                    },
                    .decompose = vander,
                    .samples = {"$[4]", "$[2, 3]", "$[2, 3], N=5", "$[], N=3", "$[3], N=1",
                                "i32[4]", "$[0, 3]", "$[5]:special"}};

// --- gradient
// -------------------------------------------------------------------------------------

/// A dimension to differentiate along. Its points are `step` apart, or lie at the coordinates `at`.
struct Axis {
  int64_t dim;
  double step = 1;
  ir::Value* at = nullptr;
};

std::vector<int64_t> gradient_dims(const Call& c) {
  int64_t rank = c.type("self").rank();
  const ir::Schema& schema = c.op().schema;
  if (schema.params[schema.find("dim")].type == ir::ParamType::int_list) return c.dims("dim", rank);
  return c.has("dim") ? std::vector<int64_t>{c.dim("dim", rank)} : all_dims(rank);
}
void set_spacing(const Call& c, std::vector<Axis>& axes) {
  if (c.op().schema.find("spacing") < 0 || !c.has("spacing")) return;
  const ir::Arg& spacing = c.arg("spacing");
  const ir::Floats* steps = std::get_if<ir::Floats>(&spacing);
  const ir::Values* points = std::get_if<ir::Values>(&spacing);
  size_t given = steps != nullptr    ? steps->size()
                 : points != nullptr ? points->size()
                                     : axes.size();
  if (given != axes.size())
    c.fail(fmt::format("spacing has {} elements for {} dimensions", given, axes.size()));
  for (size_t i = 0; i < axes.size(); ++i)
    if (points != nullptr)
      axes[i].at = (*points)[i];
    else
      axes[i].step = steps != nullptr ? (*steps)[i] : c.floating("spacing");
}
void check_axis(const Call& c, const Axis& axis) {
  Expr size = self_sizes(c)[axis.dim];
  if (sym::known_lt(size, c.constant("edge_order") + 1))
    c.fail(fmt::format("dimension {} of {} has too few elements", axis.dim, c.describe("self")));
  if (axis.at == nullptr) return;
  if (axis.at->type.rank() != 1 || !sym::known_eq(axis.at->type.sizes[0], size))
    c.fail(fmt::format("spacing needs a coordinate for each element of dimension {}", axis.dim));
}
std::vector<Axis> axes_of(const Call& c) {
  if (c.type("self").dtype == DType::u8) c.fail("differences of u8 have no sign");
  if (c.constant("edge_order") != 1 && c.constant("edge_order") != 2)
    c.fail(c.describe("edge_order") + " must be 1 or 2");
  std::vector<Axis> axes;
  for (int64_t dim : gradient_dims(c)) axes.push_back({dim});
  set_spacing(c, axes);
  for (const Axis& axis : axes) check_axis(c, axis);
  return axes;
}

/// Elements `start` to `size - rest` of one dimension.
Tensor part(Tensor x, int64_t dim, Expr start, Expr rest) {
  return slice(x, dim, start, x.size(dim) - rest);
}
/// Three neighbours: the first from the left of each triple.
struct Triple {
  Tensor left, middle, right;
};
Triple triple(Tensor x, int64_t dim, Expr start, Expr rest) {
  return {part(x, dim, start, rest + 2), part(x, dim, start + 1, rest + 1),
          part(x, dim, start + 2, rest)};
}

/// (x[i + 1] - x[i - 1]) / 2h inside; x[1] - x[0] over h at the edge, or -3/2, 2, -1/2 of three.
Tensor even_differences(Tensor x, const Axis& axis, bool second_order) {
  int64_t dim = axis.dim;
  Expr n = x.size(dim);
  auto over = [&](Tensor t) { return call(t.builder(), "aten.div.Scalar", {t, axis.step}); };
  Tensor inside = over(part(x, dim, 2, 0) - part(x, dim, 0, 2)) / 2;
  if (!second_order)
    return cat({over(part(x, dim, 1, n - 2) - part(x, dim, 0, n - 1)), inside,
                over(part(x, dim, n - 1, 0) - part(x, dim, n - 2, 1))},
               dim);
  Triple first = triple(x, dim, 0, n - 3);
  Triple last = triple(x, dim, n - 3, 0);
  return cat({over(first.left * -1.5 + first.middle * 2.0 - first.right * 0.5), inside,
              over(last.left * 0.5 - last.middle * 2.0 + last.right * 1.5)},
             dim);
}
/// The derivative of the parabola through three points, at the middle one; d and e are the
/// distances between them.
Tensor at_middle(const Triple& x, Tensor d, Tensor e) {
  return x.left * (-e / (d * (d + e))) + x.middle * ((e - d) / (d * e)) +
         x.right * (d / (e * (d + e)));
}
Tensor at_left(const Triple& x, Tensor d, Tensor e) {
  return x.left * (-(d * 2.0 + e) / (d * (d + e))) + x.middle * ((d + e) / (d * e)) -
         x.right * (d / (e * (d + e)));
}
Tensor at_right(const Triple& x, Tensor d, Tensor e) {
  return x.left * (e / (d * (d + e))) - x.middle * ((d + e) / (d * e)) +
         x.right * ((e * 2.0 + d) / (e * (d + e)));
}
Tensor uneven_differences(Tensor x, const Axis& axis, bool second_order) {
  int64_t dim = axis.dim;
  Expr n = x.size(dim);
  Sizes along(x.rank(), Expr(1));
  along[dim] = n;
  Tensor at = reshape(Tensor{x.builder(), axis.at}, along);
  Tensor gaps = part(at, dim, 1, 0) - part(at, dim, 0, 1);
  Tensor inside = at_middle(triple(x, dim, 0, 0), part(gaps, dim, 0, 1), part(gaps, dim, 1, 0));
  Tensor front_gap = part(gaps, dim, 0, n - 2);
  Tensor back_gap = part(gaps, dim, n - 2, 0);
  if (!second_order)
    return cat({(part(x, dim, 1, n - 2) - part(x, dim, 0, n - 1)) / front_gap, inside,
                (part(x, dim, n - 1, 0) - part(x, dim, n - 2, 1)) / back_gap},
               dim);
  return cat({at_left(triple(x, dim, 0, n - 3), front_gap, part(gaps, dim, 1, n - 3)), inside,
              at_right(triple(x, dim, n - 3, 0), part(gaps, dim, n - 3, 1), back_gap)},
             dim);
}

DType gradient_dtype(const Call& c, const Axis& axis) {
  Promotion promotion;
  promotion.add(c.type("self"));
  if (axis.at != nullptr) promotion.add(axis.at->type);
  return to_float(promotion.result(c));
}
Types gradient_types(const Call& c) {
  Types types;
  for (const Axis& axis : axes_of(c))
    types.push_back(ir::Type::tensor(gradient_dtype(c, axis), self_sizes(c)));
  return types;
}
Tensors gradients(Builder& b, const Call& c) {
  bool second_order = c.constant("edge_order") == 2;
  Tensors results;
  for (const Axis& axis : axes_of(c)) {
    Tensor x = self_of(b, c);
    results.push_back(axis.at == nullptr ? even_differences(x, axis, second_order)
                                         : uneven_differences(x, axis, second_order));
  }
  return results;
}
OpDef gradient(std::string_view schema, const Samples& samples) {
  return {.schema = schema, .types = gradient_types, .decompose = gradients, .samples = samples};
}
const OpDef kGradients[] = {
    gradient("aten::gradient.scalarint(Tensor self, *, Scalar? spacing=None, int? dim=None, int "
             "edge_order=1) -> Tensor[]",
             {"$[5]", "$[4, 5]", "$[4, 5], dim=1", "$[5], spacing=2.5", "$[4, 5], edge_order=2",
              "i64[5]", "$[2]", "$[1]", "$[2], edge_order=2", "$[5], edge_order=3"}),
    gradient("aten::gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int "
             "edge_order=1) -> Tensor[]",
             {"$[4, 5], spacing=2.0, dim=[1, 0]", "$[4, 5, 3], spacing=0.5, dim=[-1]"}),
    gradient("aten::gradient.array(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]",
             {"$[4, 5], dim=[1, 0]", "$[4, 5, 3], dim=[0, 2], edge_order=2"}),
    gradient(
        "aten::gradient.scalarrayint(Tensor self, *, Scalar[] spacing, int? dim=None, int "
        "edge_order=1) -> Tensor[]",
        {"$[4, 5], spacing=[2.0, 0.5]", "$[4, 5], spacing=[2.0], dim=1", "$[4, 5], spacing=[2.0]"}),
    gradient("aten::gradient.scalarrayarray(Tensor self, *, Scalar[] spacing, int[] dim, int "
             "edge_order=1) -> Tensor[]",
             {"$[4, 5], spacing=[2.0, 0.5], dim=[1, 0]"}),
    gradient("aten::gradient.tensorarrayint(Tensor self, *, Tensor[] spacing, int? dim=None, int "
             "edge_order=1) -> Tensor[]",
             {"$[4], spacing=[$[4]]", "$[4, 5], spacing=[$[4], $[5]], edge_order=2",
              "$[4, 5], spacing=[$[5]], dim=1", "$[4, 5], spacing=[$[4]], dim=1"}),
    gradient("aten::gradient.tensorarray(Tensor self, *, Tensor[] spacing, int[] dim, int "
             "edge_order=1) -> Tensor[]",
             {"$[4, 5], spacing=[$[5], $[4]], dim=[1, 0]",
              "$[4, 5], spacing=[$[4]], dim=[0], edge_order=2"}),
};

}  // namespace

Family numpy_like_family() {
  static const std::vector<const OpDef*> kOps = listed(
      kGradients, {&kFftshift, &kIfftshift, &kNarrowCopy, &kSumToSize, &kChunkCat, &kVander});
  return kOps;
}

}  // namespace tandem::ops
