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
      bool sums = !stretched(c).empty() && !is_float(dtype);
      return {ir::Type::tensor(sums ? DType::i64 : dtype, c.ints("size"))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      std::vector<int64_t> dims = stretched(c);
      Tensor self = self_of(b, c);
      if (dims.empty()) return {call(b, "aten.alias", {self})};
      return {reshape(sum(self, dims, true), c.ints("size"))};
    },
    .samples = {"$[3, 4], [4]", "$[3, 4], [3, 1]", "$[3, 4], [1, 4]", "$[3, 4], []",
                "$[2, 3, 4], [3, 1]", "$[3, 4], [3, 4]", "$[], []", "$[0, 3], [3]",
                "i32[3, 4], [4]", "$[3, 4], [2]", "$[3], [1, 3]"}};

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
                      return {ir::Type::tensor(is_float(dtype) ? dtype : DType::i64, sizes)};
                    },
                    .decompose = vander,
                    .samples = {"$[4]", "$[2, 3]", "$[2, 3], N=5", "$[], N=3", "$[3], N=1",
                                "i32[4]", "$[0, 3]", "$[5]:special"}};

const OpDef* const kOps[] = {&kFftshift,  &kIfftshift, &kNarrowCopy,
                             &kSumToSize, &kChunkCat,  &kVander};

}  // namespace

Family numpy_like_family() { return kOps; }

}  // namespace tandem::ops
