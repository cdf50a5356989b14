// Cutting and joining under NumPy's names: everything decomposes to slices, cat, reshape, expand,
// flip and permute. Cuts are views, so each knows how to write a piece back.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Types self_with(const Call& c, Sizes sizes) {
  return {ir::Type::tensor(c.type("self").dtype, std::move(sizes))};
}

// --- cuts
// -----------------------------------------------------------------------------------------

struct Cut {
  Expr start, end;
};
struct Cuts {
  int64_t dim;
  std::vector<Cut> pieces;
};

/// The first (size mod count) of `count` pieces have one element more.
std::vector<Cut> even_cuts(const Call& c, Expr size, int64_t count) {
  if (count < 1) c.fail(fmt::format("the number of pieces must be positive, not {}", count));
  Expr least = sym::floor_div(size, count);
  Expr longer = sym::mod(size, count);
  std::vector<Cut> cuts;
  for (int64_t i = 0; i < count; ++i)
    cuts.push_back({least * i + sym::min(longer, i), least * (i + 1) + sym::min(longer, i + 1)});
  return cuts;
}
/// Cuts at positions as in Python: negative ones count from the end, all are clamped.
std::vector<Cut> cuts_at(Expr size, const ir::Ints& positions) {
  std::vector<Cut> cuts;
  Expr start = 0;
  auto place = [&](Expr at) {
    if (sym::known_lt(at, 0)) at = at + size;
    return sym::min(sym::max(at, 0), size);
  };
  for (Expr at : positions) {
    Expr end = place(at);
    cuts.push_back({start, sym::max(start, end)});
    start = end;
  }
  cuts.push_back({start, size});
  return cuts;
}

/// Dimension that a split by name cuts, and how many dimensions it needs.
int64_t cut_dim(const Call& c) {
  int64_t rank = c.type("self").rank();
  const std::string& name = c.op().schema.name;
  int64_t needed = name == "aten::dsplit" ? 3 : name == "aten::vsplit" ? 2 : 1;
  if (rank < needed)
    c.fail(fmt::format("{} must have {} dimensions or more", c.describe("self"), needed));
  if (name == "aten::hsplit") return rank == 1 ? 0 : 1;
  if (name == "aten::vsplit") return 0;
  return name == "aten::dsplit" ? 2 : c.dim("dim", rank);
}
Cuts cuts_of(const Call& c) {
  int64_t dim = cut_dim(c);
  Expr size = self_sizes(c)[dim];
  if (c.op().schema.find("indices") >= 0) return {dim, cuts_at(size, c.ints("indices"))};
  int64_t count = c.constant("sections");
  bool even = c.op().schema.name != "aten::tensor_split";
  if (even && (count == 0 || sym::mod(size, count) != Expr(0)))
    c.fail(
        fmt::format("dimension {} of {} is not divisible by {}", dim, c.describe("self"), count));
  return {dim, even_cuts(c, size, count)};
}
Types cut_types(const Call& c) {
  Cuts cuts = cuts_of(c);
  Types types;
  for (const Cut& piece : cuts.pieces) {
    Sizes sizes = self_sizes(c);
    sizes[cuts.dim] = piece.end - piece.start;
    types.push_back(self_with(c, sizes)[0]);
  }
  return types;
}
Tensors cut(Builder& b, const Call& c) {
  Cuts cuts = cuts_of(c);
  Tensors parts;
  for (const Cut& piece : cuts.pieces)
    parts.push_back(slice(self_of(b, c), cuts.dim, piece.start, piece.end));
  return parts;
}
Tensor cut_scatter(Builder& b, const Call& c, size_t result, Tensor base, Tensor value) {
  Cuts cuts = cuts_of(c);
  const Cut& piece = cuts.pieces[result];
  return call(b, "aten.slice_scatter", {base, value, cuts.dim, piece.start, piece.end});
}
#define TANDEM_CUT(Name, text, ...)                                                  \
  const OpDef Name {                                                                 \
    .schema = "aten::" text " -> Tensor(a)[]", .types = cut_types, .decompose = cut, \
    .scatter_part = cut_scatter, .samples = {                                        \
      __VA_ARGS__                                                                    \
    }                                                                                \
  }
TANDEM_CUT(kTensorSplit, "tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0)",
           "$[7, 2], 3", "$[2, 7], 4, 1", "$[2], 4", "$[2, 6], 2, -1", "$[0, 2], 2", "$[4], 0",
           "$[], 2");
TANDEM_CUT(kTensorSplitAt, "tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0)",
           "$[7, 2], [2, 5]", "$[2, 7], [-3, 9], 1", "$[5], []", "$[5], [2, 2, 4]", "$[], [1]");
TANDEM_CUT(kHsplit, "hsplit.int(Tensor(a -> *) self, int sections)", "$[6], 3", "$[2, 6], 2",
           "$[2, 6], 4", "$[], 1");
TANDEM_CUT(kHsplitAt, "hsplit.array(Tensor(a -> *) self, int[] indices)", "$[6], [1, 4]",
           "$[2, 6], [2]");
TANDEM_CUT(kVsplit, "vsplit.int(Tensor(a -> *) self, int sections)", "$[6, 2], 3", "$[6], 2",
           "$[5, 2], 2");
TANDEM_CUT(kVsplitAt, "vsplit.array(Tensor(a -> *) self, int[] indices)", "$[6, 2], [1, 4]");
TANDEM_CUT(kDsplit, "dsplit.int(Tensor(a -> *) self, int sections)", "$[2, 3, 4], 2", "$[4, 4], 2");
TANDEM_CUT(kDsplitAt, "dsplit.array(Tensor(a -> *) self, int[] indices)", "$[2, 3, 4], [1, 3]");
#undef TANDEM_CUT

/// A split that is no view: the same pieces.
const ir::Op& split_of(const Call& c) {
  std::string_view name = c.op().schema.name;
  if (name == "aten::unsafe_chunk") return *op_table().find("aten.chunk");
  bool sizes = name == "aten::unsafe_split_with_sizes";
  return *op_table().find(sizes ? "aten.split_with_sizes" : "aten.split.Tensor");
}
Types unsafe_types(const Call& c) { return split_of(c).types(Call(split_of(c), c.args())); }
Tensors unsafe_split(Builder& b, const Call& c) {
  std::vector<Operand> args(c.args().begin(), c.args().end());
  return call_many(b, split_of(c).name(), args);
}
const OpDef kUnsafeSplit{
    .schema = "aten::unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
    .types = unsafe_types,
    .decompose = unsafe_split,
    .shows_self = true,
    .samples = {"$[7, 4], 3", "$[3, 6], 2, -1"}};
const OpDef kUnsafeSplitSizes{
    .schema =
        "aten::unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> "
        "Tensor[]",
    .types = unsafe_types,
    .decompose = unsafe_split,
    .shows_self = true,
    .samples = {"$[6, 4], [1, 5]", "$[3, 6], [2, 0, 4], 1", "$[6], [2, 3]"}};
const OpDef kUnsafeChunk{
    .schema = "aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]",
    .types = unsafe_types,
    .decompose = unsafe_split,
    .shows_self = true,
    .samples = {"$[5, 4], 2", "$[2, 12], 3, 1", "$[5], 0"}};

// --- at least so many dimensions
// ------------------------------------------------------------------

/// Sizes of x seen as a vector, matrix or block of matrices, as NumPy does it.
Sizes at_least(Sizes sizes, int rank) {
  if (rank == 3 && sizes.size() <= 2) {
    if (sizes.size() < 2) sizes = at_least(sizes, 2);
    sizes.emplace_back(1);
  }
  while (static_cast<int>(sizes.size()) < rank) sizes.insert(sizes.begin(), Expr(1));
  return sizes;
}
template <int rank>
Types at_least_types(const Call& c) {
  if (c.op().schema.find("self") >= 0) return self_with(c, at_least(self_sizes(c), rank));
  Types types;
  for (const ir::Value* value : c.values("tensors"))
    types.push_back(ir::Type::tensor(value->type.dtype, at_least(value->type.sizes, rank)));
  return types;
}
Tensor raised(Tensor x, int rank) {
  return x.rank() < rank ? reshape(x, at_least(x.sizes(), rank)) : x;
}
template <int rank>
Tensors raise(Builder& b, const Call& c) {
  if (c.op().schema.find("self") >= 0) return {raised(self_of(b, c), rank)};
  Tensors results;
  for (ir::Value* value : c.values("tensors")) results.push_back(raised(Tensor{b, value}, rank));
  return results;
}
const Samples kOneSamples = {"$[]", "$[3]", "$[2, 3]", "$[2, 3, 4]", "$[0]"};
const Samples kListSamples = {"[$[], $[3], $[2, 3]]", "[$[2, 3, 4]]"};
#define TANDEM_AT_LEAST(Name, text, rank)                                            \
  const OpDef Name{.schema = "aten::" text "(Tensor self) -> Tensor",                \
                   .types = at_least_types<rank>,                                    \
                   .decompose = raise<rank>,                                         \
                   .samples = kOneSamples};                                          \
  const OpDef Name##List {                                                           \
    .schema = "aten::" text ".Sequence(Tensor[] tensors) -> Tensor[]",               \
    .types = at_least_types<rank>, .decompose = raise<rank>, .samples = kListSamples \
  }
TANDEM_AT_LEAST(kAtLeast1d, "atleast_1d", 1);
TANDEM_AT_LEAST(kAtLeast2d, "atleast_2d", 2);
TANDEM_AT_LEAST(kAtLeast3d, "atleast_3d", 3);
#undef TANDEM_AT_LEAST

// --- stacks
// ---------------------------------------------------------------------------------------

/// A stack is a cat of parts that got more dimensions.
struct Stack {
  std::vector<Sizes> parts;
  int64_t dim = 0;
};
Stack stack_of(const Call& c) {
  const ir::Values& values = c.values("tensors");
  if (values.empty()) c.fail("needs at least one tensor");
  const std::string& name = c.op().schema.name;
  Stack stack;
  for (const ir::Value* value : values) {
    const Sizes& sizes = value->type.sizes;
    if (name == "aten::column_stack")
      stack.parts.push_back(sizes.size() < 2 ? Sizes{value->type.numel(), 1} : sizes);
    else
      stack.parts.push_back(at_least(sizes, name == "aten::dstack"   ? 3
                                            : name == "aten::hstack" ? 1
                                                                     : 2));
  }
  if (name == "aten::dstack") stack.dim = 2;
  if (name == "aten::column_stack") stack.dim = 1;
  if (name == "aten::hstack") stack.dim = stack.parts[0].size() == 1 ? 0 : 1;
  return stack;
}
/// A vector without elements takes part in no cat.
bool takes_part(const Sizes& sizes) { return sizes.size() != 1 || sizes[0] != Expr(0); }
Types stack_types(const Call& c) {
  Stack stack = stack_of(c);
  Promotion promotion;
  for (const ir::Value* value : c.values("tensors")) promotion.add(value->type);
  Sizes joined;
  for (const Sizes& part : stack.parts) {
    if (!takes_part(part)) continue;
    bool fits = joined.empty() || part.size() == joined.size();
    fits = fits && stack.dim < static_cast<int64_t>(part.size());
    for (size_t i = 0; fits && !joined.empty() && i < part.size(); ++i)
      fits = static_cast<int64_t>(i) == stack.dim || part[i] == joined[i] ||
             sym::known_eq(part[i], joined[i]);
    if (!fits)
      c.fail(fmt::format("sizes {} and {} differ outside dimension {}", ir::to_string(joined),
                         ir::to_string(part), stack.dim));
    if (joined.empty())
      joined = part;
    else
      joined[stack.dim] = joined[stack.dim] + part[stack.dim];
  }
  if (joined.empty()) joined = {0};
  return {ir::Type::tensor(promotion.result(c), joined)};
}
Tensors as_stack(Builder& b, const Call& c) {
  Stack stack = stack_of(c);
  Tensors parts;
  for (size_t i = 0; i < stack.parts.size(); ++i)
    parts.push_back(reshape(Tensor{b, c.values("tensors")[i]}, stack.parts[i]));
  return {cat(parts, stack.dim)};
}
#define TANDEM_STACK(Name, text, ...)                                             \
  const OpDef Name {                                                              \
    .schema = "aten::" text "(Tensor[] tensors) -> Tensor", .types = stack_types, \
    .decompose = as_stack,                                                        \
    .samples = {"[$[], $[]]",                                                     \
                "[$[3], $[3]]",                                                   \
                "[$[2, 3], $[2, 3]]",                                             \
                "[$[2, 3], $[2, 2]]",                                             \
                "[$[2, 3, 4], $[2, 3, 4]]",                                       \
                "[$[2], f32[3]]",                                                 \
                "[$[2, 1], $[3, 1]]",                                             \
                __VA_ARGS__},                                                     \
    .sample_dtypes = DTypes::all, .out = true                                     \
  }
TANDEM_STACK(kHstack, "hstack", "[$[0], $[3]]");
TANDEM_STACK(kVstack, "vstack", "[$[3], $[2, 3]]");
TANDEM_STACK(kRowStack, "row_stack", "[$[3], $[2, 3]]");
TANDEM_STACK(kDstack, "dstack", "[$[2, 3], $[2, 3, 2]]");
TANDEM_STACK(kColumnStack, "column_stack", "[$[3], $[3, 2]]");
#undef TANDEM_STACK

// --- grids
// ----------------------------------------------------------------------------------------

bool swaps_first(const Call& c) {
  if (c.op().schema.find("indexing") < 0) return false;
  std::string indexing = c.string("indexing");
  if (indexing != "ij" && indexing != "xy")
    c.fail(fmt::format("indexing \"{}\" is neither \"ij\" nor \"xy\"", indexing));
  return indexing == "xy" && c.values("tensors").size() >= 2;
}
/// Result dimension that tensor i walks.
size_t grid_dim(const Call& c, size_t i) { return swaps_first(c) && i < 2 ? 1 - i : i; }
Types grid_types(const Call& c) {
  const ir::Values& values = c.values("tensors");
  if (values.empty()) c.fail("needs at least one tensor");
  Sizes sizes(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]->type.rank() > 1) c.fail("tensors must have at most 1 dimension");
    if (values[i]->type.dtype != values[0]->type.dtype) c.fail("tensors must have one dtype");
    sizes[grid_dim(c, i)] = values[i]->type.numel();
  }
  return Types(values.size(), ir::Type::tensor(values[0]->type.dtype, sizes));
}
Tensors as_grid(Builder& b, const Call& c) {
  const ir::Values& values = c.values("tensors");
  Tensors grids;
  for (size_t i = 0; i < values.size(); ++i) {
    Sizes own(values.size(), Expr(1));
    own[grid_dim(c, i)] = values[i]->type.numel();
    grids.push_back(expand(reshape(Tensor{b, values[i]}, own), c.result(i)->type.sizes));
  }
  return grids;
}
const OpDef kMeshgrid{
    .schema = "aten::meshgrid(Tensor[] tensors) -> Tensor[]",
    .types = grid_types,
    .decompose = as_grid,
    .shows_self = true,
    .samples = {"[$[3], $[4]]", "[$[2], $[], $[3]]", "[$[3]]", "[$[0], $[2]]", "[$[2, 2]]"}};
const OpDef kMeshgridIndexing{
    .schema = "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]",
    .types = grid_types,
    .decompose = as_grid,
    .shows_self = true,
    .samples = {"[$[3], $[4]], indexing=\"xy\"", "[$[2], $[3], $[4]], indexing=\"xy\"",
                "[$[3], $[4]], indexing=\"ij\"", "[$[3]], indexing=\"xy\"",
                "[$[3]], indexing=\"no\""}};
const OpDef kCartesianProd{.schema = "aten::cartesian_prod(Tensor[] tensors) -> Tensor",
                           .types = [](const Call& c) -> Types {
                             for (const ir::Value* value : c.values("tensors"))
                               if (value->type.rank() != 1) c.fail("tensors must have 1 dimension");
                             Types grid = grid_types(c);
                             if (grid.size() == 1) return grid;
                             Expr count = static_cast<int64_t>(grid.size());
                             return {ir::Type::tensor(grid[0].dtype, {grid[0].numel(), count})};
                           },
                           .decompose = [](Builder& b, const Call& c) -> Tensors {
                             if (c.values("tensors").size() == 1)
                               return {Tensor{b, c.values("tensors")[0]}};
                             Tensors columns;
                             for (Tensor grid : call_many(b, "aten.meshgrid", {c.arg("tensors")}))
                               columns.push_back(reshape(grid, {grid.type().numel()}));
                             return {call(b, "aten.stack", {columns, 1})};
                           },
                           .samples = {"[$[3], $[4]]", "[$[2], $[3], $[2]]", "[$[3]]", "[$[]]"}};

/// Matrices along a diagonal: rows of each are padded left and right, then joined.
Sizes block_sizes(const ir::Type& type) { return at_least(type.sizes, 2); }
const OpDef kBlockDiag{.schema = "aten::block_diag(Tensor[] tensors) -> Tensor",
                       .types = [](const Call& c) -> Types {
                         Promotion promotion;
                         Expr rows = 0;
                         Expr columns = 0;
                         if (c.values("tensors").empty()) c.fail("needs at least one tensor");
                         for (const ir::Value* value : c.values("tensors")) {
                           if (value->type.rank() > 2)
                             c.fail("tensors must have at most 2 dimensions");
                           promotion.add(value->type);
                           rows = rows + block_sizes(value->type)[0];
                           columns = columns + block_sizes(value->type)[1];
                         }
                         return {ir::Type::tensor(promotion.result(c), {rows, columns})};
                       },
                       .decompose = [](Builder& b, const Call& c) -> Tensors {
                         const ir::Type& result = c.result()->type;
                         Expr left = 0;
                         Tensors rows;
                         for (ir::Value* value : c.values("tensors")) {
                           Sizes block = block_sizes(value->type);
                           Tensor part = to(reshape(Tensor{b, value}, block), result.dtype);
                           ir::Ints pad{left, result.sizes[1] - left - block[1]};
                           rows.push_back(call(b, "aten.constant_pad_nd", {part, pad}));
                           left = left + block[1];
                         }
                         return {cat(rows, 0)};
                       },
                       .samples = {"[$[2, 3], $[1, 2]]", "[$[], $[3], $[2, 2]]",
                                   "[$[2, 0], $[1, 2]]", "[$[3], f32[1]]", "[$[1, 1, 1]]"},
                       .sample_dtypes = DTypes::all,
                       .out = true};

// --- broadcasting
// ---------------------------------------------------------------------------------

const OpDef kBroadcastTo{
    .schema = "aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    .types = [](const Call& c) -> Types {
      std::vector<ir::Arg> args{c.arg("self"), c.arg("size"), false};
      const ir::Op& expand = *op_table().find("aten.expand");
      return expand.types(Call(expand, args));
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {expand(self_of(b, c), c.result()->type.sizes)};
    },
    .scatter = [](Builder&, const Call& c, Tensor base, Tensor value) -> Tensor {
      if (base.type().numel() != value.type().numel()) refuse_expanded_write(c);
      return reshape(value, base.sizes());
    },
    .repeats = true,
    .samples = {"$[3, 1], [3, 4]", "$[4], [2, -1]", "$[], [3]", "$[3], [4]", "$[3], []"}};
const OpDef kBroadcastTensors{
    .schema = "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]",
    .types = [](const Call& c) -> Types {
      Sizes sizes;
      for (const ir::Value* value : c.values("tensors"))
        sizes = broadcast(c, sizes, value->type.sizes);
      Types types;
      for (const ir::Value* value : c.values("tensors"))
        types.push_back(ir::Type::tensor(value->type.dtype, sizes));
      return types;
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensors results;
      for (ir::Value* value : c.values("tensors"))
        results.push_back(expand(Tensor{b, value}, c.result()->type.sizes));
      return results;
    },
    .shows_self = true,
    .samples = {"[$[3, 1], $[4]]", "[$[], $[2, 2], f32[1, 2]]", "[$[3], $[4]]"}};

// --- turns
// ----------------------------------------------------------------------------------------

std::pair<int64_t, int64_t> turned_dims(const Call& c) {
  int64_t rank = c.type("self").rank();
  std::vector<int64_t> dims = c.constants("dims");
  if (dims.size() != 2) c.fail("dims must name 2 dimensions");
  if (rank < 2) c.fail(c.describe("self") + " must have at least 2 dimensions");
  std::pair<int64_t, int64_t> pair{c.wrapped(dims[0], rank), c.wrapped(dims[1], rank)};
  if (pair.first == pair.second) c.fail("dims must be 2 different dimensions");
  return pair;
}
int64_t quarter_turns(const Call& c) { return ((c.constant("k") % 4) + 4) % 4; }
const OpDef kRot90{
    .schema = "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
    .types = [](const Call& c) -> Types {
      auto [from, into] = turned_dims(c);
      Sizes sizes = self_sizes(c);
      if (quarter_turns(c) % 2 == 1) std::swap(sizes[from], sizes[into]);
      return self_with(c, sizes);
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      auto [from, into] = turned_dims(c);
      Tensor x = self_of(b, c);
      auto flip = [&](const std::vector<int64_t>& dims) { return call(b, "aten.flip", {x, dims}); };
      switch (quarter_turns(c)) {
        case 1: return {transpose(flip({into}), from, into)};
        case 2: return {flip({from, into})};
        case 3: return {transpose(flip({from}), from, into)};
        default: return {call(b, "aten.clone", {x})};
      }
    },
    .samples = {"$[3, 4]", "$[3, 4], 2", "$[3, 4], 3", "$[3, 4], -1", "$[3, 4], 4",
                "$[2, 3, 4], 1, [0, 2]", "$[2, 3, 4], 1, [2, 0]", "$[3]", "$[3, 4], 1, [0, 0]",
                "$[0, 2]"},
    .sample_dtypes = DTypes::all,
    .out = true};
template <int dim>
Types flipped_types(const Call& c) {
  need_rank(c, "self", dim + 1, INT64_MAX);
  return unary_same(c);
}
template <int dim>
Tensors flipped(Builder& b, const Call& c) {
  return {call(b, "aten.flip", {self_of(b, c), std::vector<int64_t>{dim}})};
}
const OpDef kFlipLR{.schema = "aten::fliplr(Tensor self) -> Tensor",
                    .types = flipped_types<1>,
                    .decompose = flipped<1>,
                    .samples = {"$[3, 4]", "$[2, 3, 4]", "$[3]"}};
const OpDef kFlipUD{.schema = "aten::flipud(Tensor self) -> Tensor",
                    .types = flipped_types<0>,
                    .decompose = flipped<0>,
                    .samples = {"$[3, 4]", "$[3]", "$[]"}};

const OpDef* const kOps[] = {
    &kTensorSplit,   &kTensorSplitAt,    &kHsplit,        &kHsplitAt,
    &kVsplit,        &kVsplitAt,         &kDsplit,        &kDsplitAt,
    &kUnsafeSplit,   &kUnsafeSplitSizes, &kUnsafeChunk,   &kAtLeast1d,
    &kAtLeast1dList, &kAtLeast2d,        &kAtLeast2dList, &kAtLeast3d,
    &kAtLeast3dList, &kHstack,           &kVstack,        &kRowStack,
    &kDstack,        &kColumnStack,      &kMeshgrid,      &kMeshgridIndexing,
    &kCartesianProd, &kBlockDiag,        &kBroadcastTo,   &kBroadcastTensors,
    &kRot90,         &kFlipLR,           &kFlipUD};

}  // namespace

Family join_family() { return kOps; }

}  // namespace tandem::ops
