// Views and shape ops: results whose elements are operand elements at other places. A lowering is
// an index map; `scatter` is its inverse for writes: the new base after a value was written through
// the view.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }

Types self_with_sizes(const Call& c, Sizes sizes) {
  return {ir::Type::tensor(c.type("self").dtype, std::move(sizes))};
}

// --- view, reshape
// --------------------------------------------------------------------------------

/// Sizes with one -1 replaced by what is left; UserError when the counts differ.
Sizes resolve_sizes(const Call& c, const ir::Ints& wanted) {
  Sizes sizes = wanted;
  Expr total = c.type("self").numel();
  Expr known = 1;
  int64_t unknown = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != Expr(-1) && sizes[i].range().hi < 0)
      c.fail(fmt::format("sizes {} are negative", ir::to_string(wanted)));
    if (sizes[i] != Expr(-1)) {
      known = known * sizes[i];
    } else if (unknown >= 0) {
      c.fail("only one size may be -1");
    } else {
      unknown = static_cast<int64_t>(i);
    }
  }
  if (unknown >= 0) {
    if (known == Expr(0))
      c.fail(fmt::format("size -1 is not determined in {}", ir::to_string(wanted)));
    sizes[unknown] = sym::floor_div(total, known);
    known = known * sizes[unknown];
  }
  const bool may_hold = !sym::known_ne(known, total);
  if (unknown >= 0 && known != total && may_hold && !sym::known_eq(known, total))
    c.fail_unknown(
        fmt::format("whether {} fits into sizes {}", c.describe("self"), ir::to_string(wanted)),
        total);
  if (known != total && !sym::known_eq(known, total))
    c.fail(fmt::format("{} has {} elements, which sizes {} cannot hold", c.describe("self"),
                       sym::to_string(total), ir::to_string(wanted)));
  return sizes;
}

constexpr auto kReshapeIndex = [](const Call& c, size_t, const Index& index) {
  const Sizes& from = self_sizes(c);
  return reshape_index(from, c.result()->type.sizes, index);
};

Gradients reshape_vjp(Builder&, const Call& c, Grads g) {
  return {{"self", reshape(g[0], self_sizes(c))}};
}
Tensor reshape_scatter(Builder&, const Call&, Tensor base, Tensor value) {
  return reshape(value, base.sizes());
}

const Samples kReshapeSamples = {"$[2, 6], [3, 4]", "$[2, 3, 4], [6, -1]", "$[12], [2, 2, 3]",
                                 "$[], [1]",        "$[0, 3], [3, 0]",     "$[4, 3], [4, 3]"};

const OpDef kView{
    .schema = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    .types = [](const Call& c) { return self_with_sizes(c, resolve_sizes(c, c.ints("size"))); },
    .lower = reindex<kReshapeIndex>,
    .vjp = reshape_vjp,
    .scatter = reshape_scatter,
    .keeps_order = true,
    .samples = kReshapeSamples,
    .sample_dtypes = DTypes::all,
    .batch = batch_reshape};
const OpDef kUnsafeView{
    .schema = "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
    .types = [](const Call& c) { return self_with_sizes(c, resolve_sizes(c, c.ints("size"))); },
    .lower = reindex<kReshapeIndex>,
    .vjp = reshape_vjp,
    .shows_self = true,
    .keeps_order = true,
    .samples = kReshapeSamples,
    .batch = batch_reshape,
    .complex = {complex_each}};
const OpDef kReshape{
    .schema = "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)",
    .types = [](const Call& c) { return self_with_sizes(c, resolve_sizes(c, c.ints("shape"))); },
    .lower = reindex<kReshapeIndex>,
    .vjp = reshape_vjp,
    .scatter = reshape_scatter,
    .keeps_order = true,
    .samples = kReshapeSamples,
    .batch = batch_reshape};

Types flatten_types(const Call& c) {
  const Sizes& sizes = self_sizes(c);
  int64_t rank = static_cast<int64_t>(sizes.size());
  int64_t start = c.dim("start_dim", rank);
  int64_t end = c.dim("end_dim", rank);
  if (start > end) c.fail("start_dim is after end_dim");
  if (rank == 0) return self_with_sizes(c, {1});
  Sizes flat(sizes.begin(), sizes.begin() + start);
  flat.push_back(sym::product(std::span(sizes).subspan(start, end - start + 1)));
  flat.insert(flat.end(), sizes.begin() + end + 1, sizes.end());
  return self_with_sizes(c, flat);
}
const OpDef kFlatten{
    .schema =
        "aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
    .types = flatten_types,
    .lower = reindex<kReshapeIndex>,
    .vjp = reshape_vjp,
    .scatter = reshape_scatter,
    .keeps_order = true,
    .samples = {"$[2, 3, 4]", "$[2, 3, 4], 1, 2", "$[], 0, -1", "$[0, 3]"},
    .batch = batch_reshape};

// --- permutations
// ---------------------------------------------------------------------------------

std::vector<int64_t> inverse(const std::vector<int64_t>& dims) {
  std::vector<int64_t> result(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) result[dims[i]] = static_cast<int64_t>(i);
  return result;
}

/// Dimension of self that each result dimension shows, for permute, transpose and t.
std::vector<int64_t> permutation(const Call& c) {
  int64_t rank = c.type("self").rank();
  if (c.op().schema.find("dims") >= 0) {
    std::vector<int64_t> dims = rank == 0 ? std::vector<int64_t>{} : c.dims("dims", rank);
    if (static_cast<int64_t>(c.ints("dims").size()) != rank)
      c.fail(fmt::format("{} dimensions are needed, {} are given", rank, c.ints("dims").size()));
    return dims;
  }
  std::vector<int64_t> dims(rank);
  for (int64_t i = 0; i < rank; ++i) dims[i] = i;
  bool is_t = c.op().schema.find("dim0") < 0;
  if (is_t && rank > 2) c.fail("expects at most 2 dimensions, " + c.describe("self") + " has more");
  if (is_t && rank < 2) return dims;
  int64_t first = is_t ? 0 : c.dim("dim0", rank);
  int64_t second = is_t ? 1 : c.dim("dim1", rank);
  if (rank > 0) std::swap(dims[first], dims[second]);
  return dims;
}

Types permute_types(const Call& c) {
  Sizes sizes;
  for (int64_t dim : permutation(c)) sizes.push_back(self_sizes(c)[dim]);
  return self_with_sizes(c, sizes);
}
constexpr auto kPermuteIndex = [](const Call& c, size_t, const Index& index) {
  std::vector<int64_t> dims = permutation(c);
  Index result(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) result[dims[i]] = index[i];
  return result;
};
Gradients permute_vjp(Builder&, const Call& c, Grads g) {
  return {{"self", permute(g[0], inverse(permutation(c)))}};
}
Tensor permute_scatter(Builder&, const Call& c, Tensor, Tensor value) {
  return permute(value, inverse(permutation(c)));
}

Tensors batch_permute(const BatchedCall& c) {
  std::vector<int64_t> dims{0};
  for (int64_t dim : permutation(c.row)) dims.push_back(dim + 1);
  return {permute(c.with_rows("self"), dims)};
}
const OpDef kPermute{.schema = "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)",
                     .types = permute_types,
                     .lower = reindex<kPermuteIndex>,
                     .vjp = permute_vjp,
                     .scatter = permute_scatter,
                     .order = permutation,
                     .samples = {"$[2, 3, 4], [2, 0, 1]", "$[3, 4], [-1, 0]", "$[0, 2], [1, 0]"},
                     .sample_dtypes = DTypes::all,
                     .batch = batch_permute};
const OpDef kTranspose{
    .schema = "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    .types = permute_types,
    .lower = reindex<kPermuteIndex>,
    .vjp = permute_vjp,
    .scatter = permute_scatter,
    .order = permutation,
    .samples = {"$[2, 3, 4], 0, 2", "$[3, 4], -1, 0", "$[], 0, 0", "$[37, 53], 0, 1"},
    .batch = batch_along_dims};
const OpDef kT{.schema = "aten::t(Tensor(a) self) -> Tensor(a)",
               .types = permute_types,
               .lower = reindex<kPermuteIndex>,
               .vjp = permute_vjp,
               .scatter = permute_scatter,
               .order = permutation,
               .samples = {"$[3, 4]", "$[5]", "$[]"},
               .batch = batch_permute};

// --- expand, squeeze, unsqueeze
// -------------------------------------------------------------------

Types expand_types(const Call& c) {
  const Sizes& from = self_sizes(c);
  Sizes sizes = c.ints("size");
  if (sizes.size() < from.size())
    c.fail(fmt::format("{} has more dimensions than sizes {}", c.describe("self"),
                       ir::to_string(sizes)));
  for (size_t i = 0; i < sizes.size(); ++i) {
    size_t added = sizes.size() - from.size();
    Expr old = i < added ? Expr(1) : from[i - added];
    if (sizes[i] == Expr(-1) && i < added)
      c.fail(fmt::format("size -1 at {} of {} stands for no dimension of {}", i,
                         ir::to_string(c.ints("size")), c.describe("self")));
    if (sizes[i] == Expr(-1)) sizes[i] = old;
    if (old != Expr(1) && old != sizes[i] && !sym::known_eq(old, sizes[i]))
      c.fail(fmt::format("{} does not expand to {}", c.describe("self"), ir::to_string(sizes)));
  }
  return self_with_sizes(c, sizes);
}
constexpr auto kExpandIndex = [](const Call& c, size_t, const Index& index) {
  return broadcast_index(self_sizes(c), index);
};
Tensors batch_expand(const BatchedCall& c) {
  const ir::Sizes& sizes = c.row.result()->type.sizes;
  const Tensor x = c.aligned(c.row.value("self"), static_cast<int64_t>(sizes.size()));
  return {expand(x, c.sizes(sizes))};
}
const OpDef kExpand{
    .schema = "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
    .types = expand_types,
    .lower = reindex<kExpandIndex>,
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"self", sum_to(g[0], c.type("self"))}};
    },
    // `value` has one element along each dimension that repeats self.
    .scatter = [](Builder&, const Call& c, Tensor base, Tensor value) -> Tensor {
      for (int64_t i = 0; i < value.rank(); ++i) {
        int64_t old = i - (value.rank() - base.rank());
        if ((old < 0 || base.size(old) == Expr(1)) && value.size(i) != Expr(1))
          refuse_expanded_write(c);
      }
      return value.rank() == base.rank() ? value : reshape(value, base.sizes());
    },
    .repeats = true,
    .samples = {"$[3, 1], [3, 4]", "$[4], [2, 3, 4]", "$[], [3]", "$[1, 0], [2, 0]"},
    .sample_dtypes = DTypes::all,
    .batch = batch_expand};

/// Dimensions that squeeze removes.
std::vector<bool> squeezed(const Call& c) {
  const Sizes& sizes = self_sizes(c);
  int64_t rank = static_cast<int64_t>(sizes.size());
  std::vector<bool> removed(rank, false);
  bool one = c.op().schema.overload == "dim";
  bool many = c.op().schema.overload == "dims";
  std::vector<int64_t> dims;
  if (one && rank > 0) dims = {c.dim("dim", rank)};
  if (one && rank == 0) c.dim("dim", rank);
  if (many && !c.ints("dim").empty()) dims = c.dims("dim", rank);
  if (!one && !many)
    for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
  for (int64_t dim : dims)
    if (dim < rank) removed[dim] = sizes[dim] == Expr(1);
  return removed;
}
Types squeeze_types(const Call& c) {
  std::vector<bool> removed = squeezed(c);
  Sizes sizes;
  for (size_t i = 0; i < removed.size(); ++i)
    if (!removed[i]) sizes.push_back(self_sizes(c)[i]);
  return self_with_sizes(c, sizes);
}
constexpr auto kSqueezeIndex = [](const Call& c, size_t, const Index& index) {
  std::vector<bool> removed = squeezed(c);
  Index result;
  size_t next = 0;
  for (bool gone : removed) result.push_back(gone ? Expr(0) : index[next++]);
  return result;
};
const OpDef kSqueeze{.schema = "aten::squeeze(Tensor(a) self) -> Tensor(a)",
                     .types = squeeze_types,
                     .lower = reindex<kSqueezeIndex>,
                     .vjp = reshape_vjp,
                     .scatter = reshape_scatter,
                     .keeps_order = true,
                     .samples = {"$[1, 3, 1]", "$[]", "$[2, 0]"},
                     .batch = batch_reshape};
const OpDef kSqueezeDim{.schema = "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
                        .types = squeeze_types,
                        .lower = reindex<kSqueezeIndex>,
                        .vjp = reshape_vjp,
                        .scatter = reshape_scatter,
                        .keeps_order = true,
                        .samples = {"$[1, 3, 1], 0", "$[1, 3], 1", "$[3, 1], -1"},
                        .batch = batch_reshape};
const OpDef kSqueezeDims{.schema = "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
                         .types = squeeze_types,
                         .lower = reindex<kSqueezeIndex>,
                         .vjp = reshape_vjp,
                         .scatter = reshape_scatter,
                         .keeps_order = true,
                         .samples = {"$[1, 3, 1], [0, 2]", "$[1, 3], [1]"},
                         .batch = batch_reshape};
const OpDef kUnsqueeze{.schema = "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
                       .types =
                           [](const Call& c) {
                             Sizes sizes = self_sizes(c);
                             sizes.insert(sizes.begin() + c.dim("dim", c.type("self").rank() + 1),
                                          Expr(1));
                             return self_with_sizes(c, sizes);
                           },
                       .lower = reindex<[](const Call& c, size_t, const Index& index) {
                         Index result = index;
                         result.erase(result.begin() + c.dim("dim", c.type("self").rank() + 1));
                         return result;
                       }>,
                       .vjp = reshape_vjp,
                       .scatter = reshape_scatter,
                       .keeps_order = true,
                       .samples = {"$[3, 4], 1", "$[3], -1", "$[], 0", "$[0], 0"},
                       .batch = batch_reshape};

const OpDef* const kOps[] = {
    &kView, &kUnsafeView, &kReshape, &kFlatten,    &kPermute,     &kTranspose,
    &kT,    &kExpand,     &kSqueeze, &kSqueezeDim, &kSqueezeDims, &kUnsqueeze,
};

}  // namespace

Family view_family() { return kOps; }

}  // namespace tandem::ops
