// Diagonals and sliding windows as views, and triangles. A diagonal shows elements (i, j) with j -
// i = offset of two dimensions as one dimension behind the others; its inverse puts a vector there.
// `unfold` shows overlapping windows, so its gradient sums over the windows that hold an element.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/window.h"

namespace tandem::ops {
namespace {

std::string_view first_param(const Call& c) { return c.op().schema.params[0].name; }
const ir::Type& first_type(const Call& c) { return c.type(first_param(c)); }
Tensor first(Builder& b, const Call& c) { return {b, c.value(first_param(c))}; }

/// No matrix is as far from its diagonal as 2**63, whose negative is no number.
int64_t offset_of(const Call& c, std::string_view name) {
  return std::max(c.constant(name), -INT64_MAX);
}
struct Diagonal {
  int64_t dim1, dim2, offset;
};
/// The diagonal of a tensor of that rank that the call names.
Diagonal diagonal_of(const Call& c, int64_t rank) {
  if (rank < 2) c.fail("a diagonal needs at least 2 dimensions");
  Diagonal diagonal{c.dim("dim1", rank), c.dim("dim2", rank), offset_of(c, "offset")};
  if (diagonal.dim1 == diagonal.dim2)
    c.fail(fmt::format("dim1 and dim2 are both dimension {}", diagonal.dim1));
  return diagonal;
}

/// Index of the matrices without their two dimensions.
Index without(const Diagonal& d, Index index) {
  index.erase(index.begin() + std::max(d.dim1, d.dim2));
  index.erase(index.begin() + std::min(d.dim1, d.dim2));
  return index;
}
Sizes diagonal_sizes(const Diagonal& d, const Sizes& whole) {
  Expr rows = whole[d.dim1] + std::min<int64_t>(d.offset, 0);
  Expr columns = whole[d.dim2] - std::max<int64_t>(d.offset, 0);
  Sizes sizes = without(d, whole);
  sizes.push_back(sym::max(sym::min(rows, columns), 0));
  return sizes;
}
/// Where the element of the diagonal at `index` is in the matrices.
Index in_matrices(const Diagonal& d, const Index& index) {
  Index at(index.begin(), index.end() - 1);
  Expr row = index.back() + std::max<int64_t>(-d.offset, 0);
  Expr column = index.back() + std::max<int64_t>(d.offset, 0);
  bool row_first = d.dim1 < d.dim2;
  at.insert(at.begin() + std::min(d.dim1, d.dim2), row_first ? row : column);
  at.insert(at.begin() + std::max(d.dim1, d.dim2), row_first ? column : row);
  return at;
}
/// `part` on the diagonal, elsewhere `base` (0 where there is none).
Definition placed(Lowering& lowering, const Call& c, const Diagonal& d, const ir::Value* part,
                  const ir::Value* base) {
  return map_definition(c, [&lowering, d, part, base](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    Expr row = index[d.dim1];
    Expr column = index[d.dim2];
    loop::Val on = pool.binary(Opcode::eq, pool.index(column - row), pool.index(d.offset));
    Index at = without(d, index);
    at.push_back(d.offset >= 0 ? row : column);
    loop::Val inside = lowering.load(part, at, on);
    loop::Val outside =
        base == nullptr ? pool.constant(inside->dtype, 0) : lowering.load(base, index);
    return pool.select(on, inside, outside);
  });
}

// --- diagonal and its inverses
// --------------------------------------------------------------------

Diagonal viewed(const Call& c) { return diagonal_of(c, first_type(c).rank()); }
Types diagonal_types(const Call& c) {
  return {ir::Type::tensor(first_type(c).dtype, diagonal_sizes(viewed(c), first_type(c).sizes))};
}
Definition diagonal_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    return lowering.load(c.value(first_param(c)), in_matrices(viewed(c), index));
  });
}
Gradients diagonal_vjp(Builder& b, const Call& c, Grads g) {
  Diagonal d = viewed(c);
  return {{first_param(c), call(b, "aten.diagonal_backward",
                                {g[0], first_type(c).sizes, d.offset, d.dim1, d.dim2})}};
}
Tensor diagonal_write(Builder& b, const Call& c, Tensor base, Tensor value) {
  Diagonal d = viewed(c);
  return call(b, "aten.diagonal_scatter", {base, value, d.offset, d.dim1, d.dim2});
}
const OpDef kDiagonal{
    .schema = "aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
    .types = diagonal_types,
    .lower = diagonal_lower,
    .vjp = diagonal_vjp,
    .scatter = diagonal_write,
    .samples = {"$[3, 4]", "$[4, 3], 1", "$[4, 3], -2", "$[3, 4], 7", "$[2, 3, 4], 1, 2, 0",
                "$[2, 3, 4], -1, -1, -2", "$[0, 3]", "$[4, 3]{1, 4}, 1", "$[3]", "$[3, 3], 0, 1, 1",
                "$[3, 4], -7"},
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};
const OpDef kLinalgDiagonal{
    .schema =
        "aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> "
        "Tensor(a)",
    .types = diagonal_types,
    .lower = diagonal_lower,
    .vjp = diagonal_vjp,
    .scatter = diagonal_write,
    .samples = {"$[3, 4]", "$[2, 3, 4], offset=1", "$[2, 3, 4], dim1=0, dim2=1", "$[3]"}};

const OpDef kDiagonalScatter{
    .schema =
        "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int "
        "dim2=1) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes part = diagonal_sizes(viewed(c), c.type("self").sizes);
      if (!same_sizes(c.type("src").sizes, part))
        c.fail(fmt::format("{} must have the sizes {} of the diagonal", c.describe("src"),
                           ir::to_string(part)));
      return unary_same(c);
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return placed(lowering, c, viewed(c), c.value("src"), c.value("self"));
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Diagonal d = viewed(c);
      Tensor zero = zeros_like(Tensor{b, c.value("src")});
      return {{"self", call(b, "aten.diagonal_scatter", {g[0], zero, d.offset, d.dim1, d.dim2})},
              {"src", call(b, "aten.diagonal", {g[0], d.offset, d.dim1, d.dim2})}};
    },
    .samples = {"$[3, 4], $[3]", "$[4, 3], $[2], 1", "$[2, 3, 4], $[3, 2], 1, 0, 2",
                "$[3, 4], $[4]"},
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};
const OpDef kDiagonalBackward{
    .schema =
        "aten::diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int "
        "dim1, int dim2) -> Tensor",
    .types = [](const Call& c) -> Types {
      const Sizes& whole = c.ints("input_sizes");
      Diagonal d = diagonal_of(c, static_cast<int64_t>(whole.size()));
      if (!same_sizes(c.type("grad_output").sizes, diagonal_sizes(d, whole)))
        c.fail(c.describe("grad_output") + " does not have the sizes of the diagonal");
      return {ir::Type::tensor(c.type("grad_output").dtype, whole)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          Diagonal d = diagonal_of(c, c.result()->type.rank());
          return placed(lowering, c, d, c.value("grad_output"), nullptr);
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Diagonal d = diagonal_of(c, c.result()->type.rank());
      return {{"grad_output", call(b, "aten.diagonal", {g[0], d.offset, d.dim1, d.dim2})}};
    },
    .samples = {"$[3], [3, 4], 0, 0, 1", "$[3, 2], [2, 3, 4], 1, 0, 2", "$[2], [4, 3], -2, 0, 1"},
    .out = true,
    .batch = batch_along_dims};

/// Of diag_embed: the diagonal of its result.
Diagonal embedded(const Call& c) { return diagonal_of(c, c.type("self").rank() + 1); }
const OpDef kDiagEmbed{
    .schema = "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    .types = [](const Call& c) -> Types {
      Sizes sizes = c.type("self").sizes;
      if (sizes.empty()) c.fail("a 0-d tensor has no dimension to embed");
      Diagonal d = embedded(c);
      Expr length = sizes.back() + std::abs(d.offset);
      sizes.pop_back();
      sizes.insert(sizes.begin() + std::min(d.dim1, d.dim2), length);
      sizes.insert(sizes.begin() + std::max(d.dim1, d.dim2), length);
      return {ir::Type::tensor(c.type("self").dtype, sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return placed(lowering, c, embedded(c), c.value("self"), nullptr);
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Diagonal d = embedded(c);
      return {{"self", call(b, "aten.diagonal", {g[0], d.offset, d.dim1, d.dim2})}};
    },
    .samples = {"$[3]", "$[2, 3]", "$[2, 3], 1", "$[2, 3], -2, 0, 2", "$[2, 3], 1, 1, 0", "$[0]",
                "$[2, 3], 0, 1, 1", "$[5]:special"},
    .sample_dtypes = DTypes::all,
    .out = true,
    .complex = {complex_each}};

// --- by other names
// -------------------------------------------------------------------------------

const OpDef kDiag{
    .schema = "aten::diag(Tensor self, int diagonal=0) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& self = c.type("self");
      int64_t offset = offset_of(c, "diagonal");
      need_rank(c, "self", 1, 2);
      if (self.rank() == 2)
        return {ir::Type::tensor(self.dtype, diagonal_sizes({0, 1, offset}, self.sizes))};
      Expr length = self.sizes[0] + std::abs(offset);
      return {ir::Type::tensor(self.dtype, {length, length})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      bool embeds = c.type("self").rank() == 1;
      return {
          call(b, embeds ? "aten.diag_embed" : "aten.diagonal", {first(b, c), c.arg("diagonal")})};
    },
    .samples = {"$[3]", "$[3], -1", "$[3, 4], 1", "$[0]", "$[2, 2, 2]", "$[]"},
    .sample_dtypes = DTypes::all,
    .out = true};
const OpDef kDiagflat{
    .schema = "aten::diagflat(Tensor self, int offset=0) -> Tensor",
    .types = [](const Call& c) -> Types {
      Expr length = c.type("self").numel() + std::abs(offset_of(c, "offset"));
      return {ir::Type::tensor(c.type("self").dtype, {length, length})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = first(b, c);
      return {call(b, "aten.diag_embed", {reshape(self, {self.type().numel()}), c.arg("offset")})};
    },
    .samples = {"$[3]", "$[2, 2], 1", "$[], -1", "$[0]"}};
const OpDef kTrace{
    .schema = "aten::trace(Tensor self) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("self").rank() != 2) c.fail(c.describe("self") + " must have 2 dimensions");
      need_number(c, "self");
      DType dtype = c.type("self").dtype;
      return {ir::Type::tensor(is_float(dtype) || is_complex(dtype) ? dtype : DType::i64, {})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {sum_all(call(b, "aten.diagonal", {first(b, c)}))};
    },
    .samples = {"$[3, 3]", "$[3, 4]", "$[4, 3]{1, 4}", "$[0, 2]", "$[3]"},
    .sample_dtypes = DTypes::numbers,
    .out = true};

// --- unfold
// ---------------------------------------------------------------------------------------

struct Windowed {
  int64_t dim, size, step;
};
Windowed windowed(const Call& c, std::string_view dim, int64_t rank) {
  Windowed window{c.dim(dim, rank), c.constant("size"), c.constant("step")};
  if (window.size < 0) c.fail(c.describe("size") + " must not be negative");
  if (window.step <= 0) c.fail(c.describe("step") + " must be positive");
  return window;
}
Sizes unfolded_sizes(const Call& c, const Windowed& window, Sizes sizes) {
  Expr length = sizes.empty() ? Expr(1) : sizes[window.dim];
  if (sym::known_lt(length, window.size))
    c.fail(fmt::format("a window of {} is larger than dimension {}, which has {}", window.size,
                       window.dim, sym::to_string(length)));
  if (!sizes.empty()) sizes[window.dim] = sym::floor_div(length - window.size, window.step) + 1;
  sizes.emplace_back(window.size);
  return sizes;
}
Windowed unfolded(const Call& c) { return windowed(c, "dimension", c.type("self").rank()); }

const OpDef kUnfold{
    .schema = "aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
    .types = [](const Call& c) -> Types {
      const ir::Type& self = c.type("self");
      return {ir::Type::tensor(self.dtype, unfolded_sizes(c, unfolded(c), self.sizes))};
    },
    .lower = reindex<[](const Call& c, size_t, const Index& index) {
      Windowed window = unfolded(c);
      Index at(index.begin(), index.end() - 1);
      if (!at.empty()) at[window.dim] = at[window.dim] * window.step + index.back();
      return at;
    }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      const Sizes& sizes = c.type("self").sizes;
      if (sizes.empty()) return {{"self", sum(g[0], {0})}};
      return {{"self", call(b, "aten.unfold_backward",
                            {g[0], sizes, unfolded(c).dim, c.arg("size"), c.arg("step")})}};
    },
    .scatter = [](Builder& b, const Call& c, Tensor base, Tensor value) -> Tensor {
      Windowed window = unfolded(c);
      if (base.rank() == 0) return reshape(value, {});
      if (window.step < window.size && value.sizes()[window.dim] != Expr(1))
        c.fail("writing to overlapping windows: more than one element refers to one memory place");
      ir::Ints strides = ir::contiguous_strides(base.sizes());
      strides.push_back(strides[window.dim]);
      strides[window.dim] = strides[window.dim] * window.step;
      return call(b, "aten.as_strided_scatter", {base, value, value.sizes(), strides, 0});
    },
    .samples = {"$[7], 0, 3, 2", "$[3, 8], 1, 2, 2", "$[3, 8], -2, 2, 1", "$[5], 0, 5, 1",
                "$[5], 0, 0, 1", "$[2, 6, 3], 1, 4, 3", "$[], 0, 1, 1", "$[4], 0, 5, 1",
                "$[4], 0, 2, 0", "$[8, 3]{1, 8}, 0, 3, 1"},
    .sample_dtypes = DTypes::all,
    .batch = batch_along_dims};

/// The window that starts at place - k of the dimension holds it as its element k, if one starts
/// there.
Definition unfold_backward(Lowering& lowering, const Call& c) {
  const Sizes& sizes = c.result()->type.sizes;
  Windowed window = windowed(c, "dim", static_cast<int64_t>(sizes.size()));
  DType wide = accumulate_type(c.type("grad_in").dtype);
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::sum;
  definition.reduce_sizes = {window.size};
  definition.input = [&lowering, c, window, wide](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    Expr start = out[window.dim] - r[0];
    Expr number = sym::floor_div(start, window.step);
    loop::Val held = in_range(pool, number, c.type("grad_in").sizes[window.dim]);
    if (window.step > 1)
      held = all_of(pool, held,
                    pool.binary(Opcode::eq, pool.index(sym::mod(start, window.step)),
                                pool.integer(DType::i64, 0)));
    Index at = out;
    at[window.dim] = number;
    at.push_back(r[0]);
    return std::vector<loop::Val>{pool.cast(lowering.load(c.value("grad_in"), at, held), wide)};
  };
  return definition;
}
const OpDef kUnfoldBackward{
    .schema =
        "aten::unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int "
        "step) -> Tensor",
    .types = [](const Call& c) -> Types {
      const ir::Type& grad = c.type("grad_in");
      const Sizes& sizes = c.ints("input_sizes");
      if (sizes.empty()) c.fail("input_sizes needs a dimension");
      Windowed window = windowed(c, "dim", static_cast<int64_t>(sizes.size()));
      if (!same_sizes(unfolded_sizes(c, window, sizes), grad.sizes))
        c.fail(c.describe("grad_in") + " does not have the sizes of the windows");
      return {ir::Type::tensor(grad.dtype, sizes)};
    },
    .lower = unfold_backward,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      int64_t dim = c.dim("dim", g[0].rank());
      return {{"grad_in", call(b, "aten.unfold", {g[0], dim, c.arg("size"), c.arg("step")})}};
    },
    .samples = {"$[3, 3], [7], 0, 3, 2", "$[3, 4, 2], [3, 8], 1, 2, 2",
                "$[2, 8, 2], [3, 8], -2, 2, "
                "1",
                "$[1, 5], [5], 0, 5, 1", "$[2, 1, 3, 4], [2, 6, 3], 1, 4, 3",
                "$[3, 40, 2], [4, 40], 0, 2, 1"},
    .out = true,
    .batch = batch_along_dims};

// --- triangles
// -----------------------------------------------------------------------------------

/// Elements on one side of a diagonal; the others become zero whatever they were.
template <bool lower>
Definition triangle(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    Expr offset = index[index.size() - 1] - index[index.size() - 2];
    loop::Val keep = pool.binary(lower ? Opcode::le : Opcode::ge, pool.index(offset),
                                 pool.index(c.integer("diagonal")));
    loop::Val x = lowering.load(c.value("self"), index);
    return pool.select(keep, x, pool.constant(x->dtype, 0));
  });
}
Types triangle_types(const Call& c) {
  if (c.type("self").rank() < 2) c.fail(c.describe("self") + " must have at least 2 dimensions");
  return unary_same(c);
}
const Samples kTriangleSamples = {"$[4, 4]", "$[3, 5], 1", "$[2, 5, 3], -1", "$[0, 3]",
                                  "$[4, 4]:special"};
const OpDef kTril{.schema = "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor",
                  .types = triangle_types,
                  .lower = triangle<true>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.tril", {g[0], c.arg("diagonal")})}};
                  },
                  .samples = kTriangleSamples,
                  .sample_dtypes = DTypes::all,
                  .inplace = true,
                  .out = true,
                  .batch = batch_along_dims,
                  .complex = {complex_each}};
const OpDef kTriu{.schema = "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor",
                  .types = triangle_types,
                  .lower = triangle<false>,
                  .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
                    return {{"self", call(b, "aten.triu", {g[0], c.arg("diagonal")})}};
                  },
                  .samples = kTriangleSamples,
                  .sample_dtypes = DTypes::all,
                  .inplace = true,
                  .out = true,
                  .batch = batch_along_dims,
                  .complex = {complex_each}};

const OpDef* const kOps[] = {
    &kDiagonal, &kLinalgDiagonal, &kDiagonalScatter, &kDiagonalBackward, &kDiagEmbed, &kDiag,
    &kDiagflat, &kTrace,          &kUnfold,          &kUnfoldBackward,   &kTril,      &kTriu};

}  // namespace

Family diagonal_family() { return kOps; }

}  // namespace tandem::ops
