// Joining, cutting and moving: cat and its inverses, pads, flips, repeats. A lowering is an index
// map, with a mask where a result element may have no operand element.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/view/pad.h"

namespace tandem::ops {
namespace {

const Sizes& self_sizes(const Call& c) { return c.type("self").sizes; }
Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
int64_t self_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }
ir::Type self_with(const Call& c, Sizes sizes) {
  return ir::Type::tensor(c.type("self").dtype, std::move(sizes));
}

// --- split, chunk, unbind
// -------------------------------------------------------------------------

struct Piece {
  Expr start, length;
};

/// Each piece is a result of the node: billions of them are a mistake.
constexpr int64_t kMostPieces = 1 << 16;

int64_t checked_count(const Call& c, int64_t count) {
  if (count > kMostPieces)
    c.fail(fmt::format("{} pieces of {} are more than {}", count, c.describe("self"), kMostPieces));
  return count;
}

std::vector<Piece> equal_pieces(const Call& c, Expr total, Expr size, int64_t count) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < count; ++i)
    pieces.push_back({size * i, i + 1 < count ? size : total - size * (count - 1)});
  if (count > 0 && sym::known_lt(pieces.back().length, 0))
    c.fail("the pieces do not fit " + c.describe("self"));
  return pieces;
}

std::vector<Piece> listed_pieces(const Call& c, Expr total, const ir::Ints& sizes) {
  std::vector<Piece> pieces;
  Expr start = 0;
  for (Expr size : sizes) {
    if (size.range().hi < 0) c.fail("split sizes " + ir::to_string(sizes) + " are negative");
    pieces.push_back({start, size});
    start = start + size;
  }
  if (start != total && !sym::known_eq(start, total))
    c.fail(fmt::format("split sizes {} do not add up to dimension {} of {}", ir::to_string(sizes),
                       self_dim(c), c.describe("self")));
  return pieces;
}

/// Number of pieces of that size; it says how many results the node has, so it must be a number.
int64_t piece_count(const Call& c, Expr total, Expr size) {
  if (total == Expr(0)) return 1;
  if (sym::known_le(size, 0)) c.fail("the size of a piece must be positive");
  const Expr count = sym::ceil_div(total, size);
  if (!count.constant())
    c.fail_unknown(fmt::format("the number of pieces of {}", c.describe("self")), count);
  return checked_count(c, *count.constant());
}

std::vector<Piece> pieces_of(const Call& c) {
  if (c.type("self").rank() == 0) c.fail("a 0-d tensor cannot be split");
  Expr total = self_sizes(c)[self_dim(c)];
  if (c.op().schema.find("split_sizes") >= 0) return listed_pieces(c, total, c.ints("split_sizes"));
  if (c.op().schema.overload == "sizes") return listed_pieces(c, total, c.ints("split_size"));
  if (c.op().schema.find("split_size") >= 0) {
    Expr size = c.integer("split_size");
    return equal_pieces(c, total, size, piece_count(c, total, size));
  }
  int64_t chunks = c.constant("chunks");
  if (chunks < 1) c.fail("the number of chunks must be positive");
  if (total == Expr(0))
    return std::vector<Piece>(static_cast<size_t>(checked_count(c, chunks)), Piece{0, 0});
  Expr size = sym::ceil_div(total, chunks);
  return equal_pieces(c, total, size, piece_count(c, total, size));
}

Types split_types(const Call& c) {
  Types types;
  for (const Piece& piece : pieces_of(c)) {
    Sizes sizes = self_sizes(c);
    sizes[self_dim(c)] = piece.length;
    types.push_back(self_with(c, sizes));
  }
  return types;
}
constexpr auto kPieceIndex = [](const Call& c, size_t result, const Index& index) {
  Index at = index;
  at[self_dim(c)] = pieces_of(c)[result].start + index[self_dim(c)];
  return at;
};

/// Gradients of all results, zeros for those that nothing depends on.
Tensors all_grads(Builder& b, const Call& c, Grads g) {
  Tensors grads;
  for (size_t i = 0; i < g.size(); ++i)
    grads.push_back(g[i] ? g[i] : zeros_like(Tensor{b, c.result(i)}));
  return grads;
}
Gradients split_vjp(Builder& b, const Call& c, Grads g) {
  return {{"self", cat(all_grads(b, c, g), self_dim(c))}};
}
Tensor split_scatter(Builder& b, const Call& c, size_t result, Tensor base, Tensor value) {
  Piece piece = pieces_of(c)[result];
  return call(b, "aten.slice_scatter",
              {base, value, self_dim(c), piece.start, piece.start + piece.length});
}

const OpDef kSplit{
    .schema =
        "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
    .types = split_types,
    .lower = reindex<kPieceIndex>,
    .vjp = split_vjp,
    .scatter_part = split_scatter,
    .samples = {"$[6, 4], 2", "$[7, 4], 3", "$[3, 6], 2, 1", "$[3, 6], 2, -1", "$[0, 2], 2",
                "$[4], 9"},
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};
const OpDef kSplitSizes{
    .schema =
        "aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]",
    .types = split_types,
    .lower = reindex<kPieceIndex>,
    .vjp = split_vjp,
    .scatter_part = split_scatter,
    .samples = {"$[6, 4], [1, 5]", "$[3, 6], [2, 0, 4], 1"},
    .batch = batch_along_dims};
const OpDef kSplitWithSizes{
    .schema =
        "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> "
        "Tensor(a)[]",
    .types = split_types,
    .lower = reindex<kPieceIndex>,
    .vjp = split_vjp,
    .scatter_part = split_scatter,
    .samples = {"$[6, 4], [1, 5]", "$[3, 6], [2, 0, 4], 1", "$[3, 6], [6], -1"},
    .batch = batch_along_dims};
const OpDef kChunk{
    .schema = "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]",
    .types = split_types,
    .lower = reindex<kPieceIndex>,
    .vjp = split_vjp,
    .scatter_part = split_scatter,
    .samples = {"$[6, 4], 3", "$[5, 4], 2", "$[2, 12], 3, 1", "$[5], 4", "$[0, 2], 2"},
    .batch = batch_along_dims};
const OpDef kUnbind{
    .schema = "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
    .types =
        [](const Call& c) {
          if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to unbind");
          Sizes sizes = self_sizes(c);
          const Expr size = sizes[self_dim(c)];
          std::optional<int64_t> count = size.constant();
          if (!count)
            c.fail_unknown(fmt::format("dimension {} of {}", self_dim(c), c.describe("self")),
                           size);
          sizes.erase(sizes.begin() + self_dim(c));
          return Types(static_cast<size_t>(checked_count(c, *count)), self_with(c, sizes));
        },
    .lower = reindex<[](const Call& c, size_t result, const Index& index) {
      Index at = index;
      at.insert(at.begin() + self_dim(c), Expr(static_cast<int64_t>(result)));
      return at;
    }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.stack", {all_grads(b, c, g), self_dim(c)})}};
    },
    .scatter_part =
        [](Builder& b, const Call& c, size_t result, Tensor base, Tensor value) {
          return call(b, "aten.select_scatter",
                      {base, value, self_dim(c), static_cast<int64_t>(result)});
        },
    .samples = {"$[3, 4]", "$[3, 4], -1", "$[1]"},
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};

// --- cat, stack
// -----------------------------------------------------------------------------------

/// Operands that take part: a 1-d tensor without elements is dropped, as in eager.
bool takes_part(const ir::Value* value) {
  return value->type.sizes.size() != 1 || value->type.sizes[0] != Expr(0);
}
int64_t joined_rank(const Call& c) {
  for (const ir::Value* value : c.values("tensors"))
    if (takes_part(value)) return value->type.rank();
  return 1;
}
int64_t joined_dim(const Call& c) { return c.dim("dim", joined_rank(c)); }

Types cat_types(const Call& c) {
  const ir::Values& values = c.values("tensors");
  if (values.empty()) c.fail("needs at least one tensor");
  int64_t rank = joined_rank(c);
  int64_t dim = joined_dim(c);
  Promotion promotion;
  Sizes sizes;
  for (const ir::Value* value : values) {
    promotion.add(value->type);
    if (value->type.sizes.empty()) c.fail("a 0-d tensor cannot be joined");
    if (!takes_part(value)) continue;
    const Sizes& own = value->type.sizes;
    bool fits = value->type.rank() == rank;
    for (int64_t i = 0; fits && !sizes.empty() && i < rank; ++i)
      fits = i == dim || own[i] == sizes[i] || sym::known_eq(own[i], sizes[i]);
    if (!fits)
      c.fail(fmt::format("sizes {} and {} differ outside dimension {}", ir::to_string(sizes),
                         ir::to_string(own), dim));
    if (sizes.empty())
      sizes = own;
    else
      sizes[dim] = sizes[dim] + own[dim];
  }
  if (sizes.empty()) sizes = {0};
  return {ir::Type::tensor(promotion.result(c), sizes)};
}

/// Each part is read only where the position lies in it.
loop::Val joined_element(Lowering& lowering, const Call& c, const Index& index, DType dtype) {
  loop::ScalarPool& pool = lowering.scalars();
  int64_t dim = joined_dim(c);
  loop::Val position = pool.index(index[dim]);
  loop::Val result = nullptr;
  Expr start = 0;
  for (const ir::Value* value : c.values("tensors")) {
    if (!takes_part(value) || value->type.sizes[dim] == Expr(0)) continue;
    Expr end = start + value->type.sizes[dim];
    loop::Val inside =
        pool.binary(Opcode::bit_and, pool.binary(Opcode::ge, position, pool.index(start)),
                    pool.binary(Opcode::lt, position, pool.index(end)));
    Index at = index;
    at[dim] = index[dim] - start;
    loop::Val part = pool.cast(lowering.load(value, at, inside), dtype);
    result = result == nullptr ? part : pool.select(inside, part, result);
    start = end;
  }
  return result == nullptr ? pool.constant(dtype, 0) : result;
}

/// An element asks every part whether it lies there, so many parts are joined in groups first.
constexpr size_t kPartsAtOnce = 16;
bool has_many_parts(const Call& c) { return c.values("tensors").size() > kPartsAtOnce; }
Tensors cat_in_groups(Builder& b, const Call& c) {
  const ir::Values& values = c.values("tensors");
  Tensors groups;
  for (size_t start = 0; start < values.size(); start += kPartsAtOnce) {
    Tensors parts;
    for (size_t i = start; i < std::min(start + kPartsAtOnce, values.size()); ++i)
      parts.push_back({b, values[i]});
    groups.push_back(parts.size() == 1 ? parts[0] : call(b, "aten.cat", {parts, c.arg("dim")}));
  }
  return {to(call(b, "aten.cat", {groups, c.arg("dim")}), c.result()->type.dtype)};
}

Gradients cat_vjp(Builder&, const Call& c, Grads g) {
  Gradients grads;
  Expr start = 0;
  int32_t number = 0;
  for (const ir::Value* value : c.values("tensors")) {
    int32_t element = number++;
    if (!takes_part(value)) continue;
    Expr length = value->type.sizes[joined_dim(c)];
    grads.push_back({"tensors",
                     to(slice(g[0], joined_dim(c), start, start + length), value->type.dtype),
                     element});
    start = start + length;
  }
  return grads;
}

const OpDef kCat{
    .schema = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
    .types = cat_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return joined_element(lowering, c, index, compute_type(c.result()->type.dtype));
          });
        },
    .decompose = cat_in_groups,
    .composite = has_many_parts,
    .vjp = cat_vjp,
    .samples = {"[$[3, 4], $[2, 4]]", "[$[3, 4], $[3, 1], $[3, 2]], 1", "[$[3, 4]], -1",
                "[$[0, 4], $[2, 4]]", "[$[0], $[2, 4]]", "[$[3], f32[2]]",
                "[$[65, 33], $[65, 31]], 1", "[$[0], $[0]]",
                "[$[1], $[2], $[1], $[0], $[1], $[1], $[3], $[1], $[1], $[1], $[1], $[1], $[1], "
                "$[1], $[1], $[1], $[1], $[2], $[1]]"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};
Tensors as_cat(Builder& b, const Call& c) {
  return {call(b, "aten.cat", {c.arg("tensors"), c.constant("dim")})};
}
const OpDef kConcat{.schema = "aten::concat(Tensor[] tensors, int dim=0) -> Tensor",
                    .types = cat_types,
                    .decompose = as_cat,
                    .samples = {"[$[3, 4], $[2, 4]]"},
                    .out = true};
const OpDef kConcatenate{.schema = "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor",
                         .types = cat_types,
                         .decompose = as_cat,
                         .samples = {"[$[3, 4], $[2, 4]]"},
                         .out = true};
const OpDef kStack{
    .schema = "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Values& values = c.values("tensors");
      if (values.empty()) c.fail("needs at least one tensor");
      Promotion promotion;
      Sizes sizes = values[0]->type.sizes;
      for (const ir::Value* value : values) {
        promotion.add(value->type);
        if (!same_sizes(value->type.sizes, sizes))
          c.fail(fmt::format("sizes {} and {} differ", ir::to_string(sizes),
                             ir::to_string(value->type.sizes)));
      }
      int64_t dim = c.dim("dim", values[0]->type.rank() + 1);
      sizes.insert(sizes.begin() + dim, Expr(static_cast<int64_t>(values.size())));
      return {ir::Type::tensor(promotion.result(c), sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      int64_t dim = c.dim("dim", c.result()->type.rank());
      Tensors parts;
      for (ir::Value* value : c.values("tensors"))
        parts.push_back(unsqueeze(Tensor{b, value}, dim));
      return {cat(parts, dim)};
    },
    .samples = {"[$[3, 4], $[3, 4]]", "[$[3], $[3], $[3]], -1", "[$[], $[]]", "[$[0, 2]], 1"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .complex = {complex_each}};

// --- flip, roll, repeat
// ---------------------------------------------------------------------------

constexpr auto kFlipIndex = [](const Call& c, size_t, const Index& index) {
  Index at = index;
  if (c.ints("dims").empty() || at.empty()) return at;
  for (int64_t dim : c.dims("dims", c.type("self").rank()))
    at[dim] = self_sizes(c)[dim] - 1 - at[dim];
  return at;
};
const OpDef kFlip{.schema = "aten::flip(Tensor self, int[] dims) -> Tensor",
                  .types =
                      [](const Call& c) {
                        c.dims("dims", c.type("self").rank());
                        return unary_same(c);
                      },
                  .lower = reindex<kFlipIndex>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.flip", {g[0], c.arg("dims")})}};
                  },
                  .samples = {"$[3, 4], [0]", "$[3, 4], [0, -1]", "$[3], []", "$[0, 2], [0]"},
                  .sample_dtypes = DTypes::all,
                  .out = true,
                  .batch = batch_along_dims,
                  .complex = {complex_each}};

/// Dimensions of the shifts; one may be named several times.
std::vector<int64_t> roll_dims(const Call& c) {
  std::vector<int64_t> dims = c.constants("dims");
  for (int64_t& dim : dims) dim = c.wrapped(dim, c.type("self").rank());
  return dims;
}
/// Shift of each dimension, in [0, size).
constexpr auto kRollIndex = [](const Call& c, size_t, const Index& index) {
  const Sizes& sizes = self_sizes(c);
  const ir::Ints& shifts = c.ints("shifts");
  bool flat = c.ints("dims").empty();
  if (flat) {
    Expr total = c.type("self").numel();
    if (total == Expr(0)) return index;
    Index linear = reshape_index({total}, sizes, index);
    linear[0] = sym::mod(linear[0] - shifts[0], total);
    return reshape_index(sizes, {total}, linear);
  }
  Index at = index;
  if (at.empty()) return at;
  std::vector<int64_t> dims = roll_dims(c);
  for (size_t i = 0; i < dims.size(); ++i) {
    size_t dim = static_cast<size_t>(dims[i]);
    if (sizes[dim] != Expr(0)) at[dim] = sym::mod(at[dim] - shifts[i], sizes[dim]);
  }
  return at;
};
const OpDef kRoll{
    .schema = "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
    .types =
        [](const Call& c) {
          size_t dims = c.ints("dims").size();
          size_t shifts = c.ints("shifts").size();
          if (shifts == 0 || (dims == 0 ? shifts != 1 : shifts != dims))
            c.fail(fmt::format("{} shifts do not fit {} dimensions", shifts, dims));
          if (dims > 0 && c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimensions");
          roll_dims(c);
          return unary_same(c);
        },
    .lower = reindex<kRollIndex>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      ir::Ints back;
      for (Expr shift : c.ints("shifts")) back.push_back(-shift);
      return {{"self", call(b, "aten.roll", {g[0], back, c.arg("dims")})}};
    },
    .samples = {"$[3, 4], [1], [0]", "$[3, 4], [1, -2], [0, 1]", "$[3, 4], [5]", "$[0], [1], [0]"},
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};

Sizes repeated_sizes(const Call& c, const ir::Ints& repeats) {
  Sizes sizes = repeats;
  const Sizes& self = self_sizes(c);
  if (repeats.size() < self.size())
    c.fail(fmt::format("{} has more dimensions than repeats", c.describe("self")));
  size_t added = repeats.size() - self.size();
  for (size_t i = 0; i < self.size(); ++i) sizes[added + i] = self[i] * repeats[added + i];
  return sizes;
}
Tensors batch_repeat(const BatchedCall& c) {
  const ir::Ints& repeats = c.row.ints("repeats");
  ir::Ints all{Expr(1)};
  all.insert(all.end(), repeats.begin(), repeats.end());
  const Tensor x = c.aligned(c.row.value("self"), static_cast<int64_t>(repeats.size()));
  return {call(c.builder, "aten.repeat", {x, all})};
}
const OpDef kRepeat{
    .schema = "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor",
    .types = [](const Call& c) -> Types {
      return {self_with(c, repeated_sizes(c, c.ints("repeats")))};
    },
    .lower = reindex<[](const Call& c, size_t, const Index& index) {
      const Sizes& sizes = self_sizes(c);
      Index at(index.end() - static_cast<int64_t>(sizes.size()), index.end());
      for (size_t i = 0; i < at.size(); ++i)
        at[i] = sizes[i] == Expr(0) ? Expr(0) : sym::mod(at[i], sizes[i]);
      return at;
    }>,
    // The copies of an element add up: (r, n) apart, then summed over r.
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      const Sizes& self = self_sizes(c);
      const ir::Ints& repeats = c.ints("repeats");
      Sizes apart;
      std::vector<int64_t> dims;
      for (size_t i = 0; i < repeats.size(); ++i) {
        dims.push_back(static_cast<int64_t>(apart.size()));
        apart.push_back(repeats[i]);
        if (i >= repeats.size() - self.size())
          apart.push_back(self[i - (repeats.size() - self.size())]);
      }
      if (dims.empty()) return {{"self", g[0]}};
      return {{"self", sum(reshape(g[0], apart), dims)}};
    },
    .samples = {"$[3, 4], [2, 1]", "$[3], [2, 3]", "$[], [2]", "$[3], [0]", "$[], []"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .batch = batch_repeat,
    .complex = {complex_each}};
const OpDef kTile{.schema = "aten::tile(Tensor self, SymInt[] dims) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    ir::Ints repeats = c.ints("dims");
                    while (repeats.size() < self_sizes(c).size())
                      repeats.insert(repeats.begin(), Expr(1));
                    return {self_with(c, repeated_sizes(c, repeats))};
                  },
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    ir::Ints repeats = c.ints("dims");
                    while (repeats.size() < self_sizes(c).size())
                      repeats.insert(repeats.begin(), Expr(1));
                    return {call(b, "aten.repeat", {self_of(b, c), repeats})};
                  },
                  .samples = {"$[3, 4], [2]", "$[3], [2, 2]"}};
const OpDef kRepeatInterleave{
    .schema =
        "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? "
        "output_size=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (!c.has("dim")) return {self_with(c, {c.type("self").numel() * c.integer("repeats")})};
      if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to repeat");
      Sizes sizes = self_sizes(c);
      sizes[self_dim(c)] = sizes[self_dim(c)] * c.integer("repeats");
      return {self_with(c, sizes)};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = self_of(b, c);
      if (!c.has("dim")) self = reshape(self, {self.type().numel()});
      int64_t dim = c.has("dim") ? self_dim(c) : 0;
      Sizes sizes = self.sizes();
      sizes.insert(sizes.begin() + dim + 1, c.integer("repeats"));
      return {reshape(expand(unsqueeze(self, dim + 1), sizes), c.result()->type.sizes)};
    },
    .samples = {"$[3, 4], 2, 1", "$[3, 4], 3", "$[2], 0, 0"}};

// --- pads and triangles
// ---------------------------------------------------------------------------

struct Pad {
  Expr before = 0, after = 0;
};
/// By dimension; `pad` lists pairs from the last dimension on. Negative pads cut.
std::vector<Pad> pads_of(const Call& c) {
  const ir::Ints& pad = c.ints("pad");
  size_t rank = self_sizes(c).size();
  if (pad.size() % 2 != 0 || pad.size() > 2 * rank)
    c.fail(fmt::format("pad {} does not fit {}", ir::to_string(pad), c.describe("self")));
  std::vector<Pad> pads(rank);
  for (size_t i = 0; i < pad.size() / 2; ++i) pads[rank - 1 - i] = {pad[2 * i], pad[2 * i + 1]};
  return pads;
}
Types pad_types(const Call& c) { return {self_with(c, padded_sizes(c))}; }
loop::Val padded_element(Lowering& lowering, const Call& c, const Index& index) {
  loop::ScalarPool& pool = lowering.scalars();
  std::vector<Pad> pads = pads_of(c);
  Index at = index;
  loop::Val inside = pool.integer(DType::boolean, 1);
  for (size_t i = 0; i < at.size(); ++i) {
    if (pads[i].before == Expr(0) && pads[i].after == Expr(0)) continue;
    at[i] = index[i] - pads[i].before;
    loop::Val position = pool.index(at[i]);
    inside = pool.binary(Opcode::bit_and, inside,
                         pool.binary(Opcode::ge, position, pool.integer(DType::i64, 0)));
    inside = pool.binary(Opcode::bit_and, inside,
                         pool.binary(Opcode::lt, position, pool.index(self_sizes(c)[i])));
  }
  loop::Val outside = lowering.scalar(c.arg("value"), compute_type(c.result()->type.dtype));
  return pool.select(inside, lowering.load(c.value("self"), at, inside), outside);
}
const OpDef kConstantPad{
    .schema = "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
    .types = pad_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return padded_element(lowering, c, index);
          });
        },
    // The gradient is cut where the operand was padded, and zero where it was cut.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      ir::Ints back;
      for (Expr pad : c.ints("pad")) back.push_back(-pad);
      return {{"self", call(b, "aten.constant_pad_nd", {g[0], back, 0})}};
    },
    .samples = {"$[3, 4], [1, 2]", "$[3, 4], [1, 0, 2, 1], 2", "$[3, 4], [-1, 2], 1", "$[3], []",
                "$[0], [1, 1], 3", "$[2, 3, 4], [0, 0, 1, 1]"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .batch = batch_along_dims,
    .complex = {.rule = complex_each, .terms = "value"}};

const OpDef* const kOps[] = {
    &kSplit,  &kSplitSizes,       &kSplitWithSizes, &kChunk, &kUnbind, &kCat,
    &kConcat, &kConcatenate,      &kStack,          &kFlip,  &kRoll,   &kRepeat,
    &kTile,   &kRepeatInterleave, &kConstantPad};

}  // namespace

Sizes padded_sizes(const Call& c) {
  Sizes sizes = self_sizes(c);
  std::vector<Pad> pads = pads_of(c);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Expr kept = sizes[i] + sym::min(pads[i].before, 0) + sym::min(pads[i].after, 0);
    sizes[i] = sizes[i] + pads[i].before + pads[i].after;
    if (sym::known_lt(kept, 0))
      c.fail(fmt::format("pad makes dimension {} of {} negative", i, c.describe("self")));
  }
  return sizes;
}

Family shape_family() { return kOps; }

}  // namespace tandem::ops
