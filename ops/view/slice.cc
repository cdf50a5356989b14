// Views of a part along one dimension, select and slice, and the inverse maps: a part written into
// a whole, or into zeros. Where a slice begins and ends is clamped as Python does; an index must
// lie in its dimension.
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

int64_t view_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }

/// `index` counted from the front of a dimension of that size. It must lie in it whatever the
/// symbols are, because nothing checks it at a call.
Expr index_in(const Call& c, Expr size, const std::string& whole) {
  Expr index = c.integer("index");
  Expr at = sym::known_lt(index, 0) ? index + size : index;
  if (sym::known_le(0, at) && sym::known_lt(at, size)) return at;
  bool never = sym::known_le(size, at) || sym::known_lt(at, 0);
  c.fail(fmt::format("index {} {} out of range for dimension {} of {}", sym::to_string(index),
                     never ? "is" : "may be", c.constant("dim"), whole));
}
/// Position that select reads.
Expr select_index(const Call& c) {
  return index_in(c, self_sizes(c)[view_dim(c)], c.describe("self"));
}

const OpDef kSelect{
    .schema = "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
    .types =
        [](const Call& c) {
          if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to select from");
          Sizes sizes = self_sizes(c);
          select_index(c);
          sizes.erase(sizes.begin() + view_dim(c));
          return self_with_sizes(c, sizes);
        },
    .lower = reindex<[](const Call& c, size_t, const Index& index) {
      Index result = index;
      result.insert(result.begin() + view_dim(c), select_index(c));
      return result;
    }>,
    // The gradient is zero but at the selected place.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      return {{"self", call(b, "aten.select_backward",
                            {g[0], self_sizes(c), view_dim(c), select_index(c)})}};
    },
    .scatter =
        [](Builder& b, const Call& c, Tensor base, Tensor value) {
          return call(b, "aten.select_scatter", {base, value, view_dim(c), select_index(c)});
        },
    .samples = {"$[3, 4], 0, 1", "$[3, 4], 1, -1", "$[2, 0], 0, 1"},
    .batch = batch_along_dims};

/// start and length of a slice, clamped as in Python. A size is never negative, whatever is known
/// of its symbols: what is at 0 or at the size is there, and 0 is before any end, the size behind
/// any start.
struct SliceRange {
  Expr start, length;
  int64_t step;
};
SliceRange slice_range(const Call& c, Expr size) {
  auto clamp = [&](std::string_view name, Expr otherwise) {
    if (!c.has(name)) return otherwise;
    Expr at = c.integer(name);
    if (sym::known_lt(at, 0)) at = at + size;
    if (at == Expr(0) || sym::known_eq(at, size)) return at;
    return sym::min(sym::max(at, 0), size);
  };
  SliceRange range{clamp("start", 0), 0, c.constant("step")};
  if (range.step <= 0) c.fail("step must be positive");
  Expr end = c.has("end") && c.integer("end") == Expr(INT64_MAX) ? size : clamp("end", size);
  const bool in_order = range.start == Expr(0) || sym::known_eq(end, size);
  const Expr length = end - range.start;
  range.length = sym::ceil_div(in_order ? length : sym::max(length, 0), range.step);
  return range;
}

const OpDef kSlice{
    .schema =
        "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, "
        "SymInt step=1) -> Tensor(a)",
    .types =
        [](const Call& c) {
          if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to slice");
          Sizes sizes = self_sizes(c);
          sizes[view_dim(c)] = slice_range(c, sizes[view_dim(c)]).length;
          return self_with_sizes(c, sizes);
        },
    .lower = reindex<[](const Call& c, size_t, const Index& index) {
      int64_t dim = view_dim(c);
      SliceRange range = slice_range(c, self_sizes(c)[dim]);
      Index result = index;
      result[dim] = range.start + index[dim] * range.step;
      return result;
    }>,
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      SliceRange range = slice_range(c, self_sizes(c)[view_dim(c)]);
      return {{"self", call(b, "aten.slice_backward",
                            {g[0], self_sizes(c), view_dim(c), range.start,
                             range.start + range.length * range.step, range.step})}};
    },
    .scatter =
        [](Builder& b, const Call& c, Tensor base, Tensor value) {
          return call(b, "aten.slice_scatter",
                      {base, value, view_dim(c), c.arg("start"), c.arg("end"), c.arg("step")});
        },
    .samples = {"$[5, 4], 0, 1, 4", "$[5, 4], 1, 0, -1, 2", "$[5], 0, -3", "$[3], 0, 2, 1",
                "$[7], 0, 1, 100, 3"},
    .batch = batch_along_dims};

/// select and slice as "position p of dimension dim maps to view position v, if any": what the
/// scatter forms read. Returns the mask and the view's index.
struct Placed {
  loop::Val mask;
  Index index;
};
Placed placed_slice(Lowering& lowering, const SliceRange& range, int64_t dim, const Index& index) {
  loop::ScalarPool& pool = lowering.scalars();
  Expr offset = index[dim] - range.start;
  Expr position = sym::floor_div(offset, range.step);
  loop::Val mask = pool.binary(loop::Opcode::ge, pool.index(offset), pool.integer(DType::i64, 0));
  auto also = [&](loop::Val cond) { mask = pool.binary(loop::Opcode::bit_and, mask, cond); };
  also(pool.binary(loop::Opcode::lt, pool.index(position), pool.index(range.length)));
  if (range.step != 1)
    also(pool.binary(loop::Opcode::eq, pool.index(sym::mod(offset, range.step)),
                     pool.integer(DType::i64, 0)));
  Index view = index;
  view[dim] = position;
  return {mask, view};
}
Placed placed_select(Lowering& lowering, Expr at, int64_t dim, const Index& index) {
  loop::ScalarPool& pool = lowering.scalars();
  loop::Val mask = pool.binary(loop::Opcode::eq, pool.index(index[dim]), pool.index(at));
  Index view = index;
  view.erase(view.begin() + dim);
  return {mask, view};
}

/// value where the mask holds, else base (or zero).
Definition place(Lowering& lowering, const Call& c, const ir::Value* value, const ir::Value* base,
                 const std::function<Placed(const Index&)>& where) {
  return map_definition(c, [&lowering, value, base, where](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    Placed placed = where(index);
    loop::Val inside = lowering.load(value, placed.index, placed.mask);
    loop::Val outside =
        base == nullptr ? pool.constant(inside->dtype, 0) : lowering.load(base, index);
    return pool.select(placed.mask, inside, outside);
  });
}

/// self, after src was found to have the sizes of what is overwritten.
Types overwritten(const Call& c, const Sizes& part) {
  if (!same_sizes(c.type("src").sizes, part))
    c.fail(fmt::format("{} must have the sizes {} of what it overwrites", c.describe("src"),
                       ir::to_string(part)));
  return unary_same(c);
}

const OpDef kSelectScatter{
    .schema = "aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
    .types =
        [](const Call& c) {
          if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to select from");
          select_index(c);
          Sizes part = self_sizes(c);
          part.erase(part.begin() + view_dim(c));
          return overwritten(c, part);
        },
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t dim = view_dim(c);
          Expr at = select_index(c);
          return place(lowering, c, c.value("src"), c.value("self"),
                       [&lowering, at, dim](const Index& index) {
                         return placed_select(lowering, at, dim, index);
                       });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zero = zeros_like(Tensor{b, c.value("src")});
      return {{"self", call(b, "aten.select_scatter", {g[0], zero, view_dim(c), select_index(c)})},
              {"src", select(g[0], view_dim(c), select_index(c))}};
    },
    .samples = {"$[3, 4], $[4], 0, 1", "$[3, 4], $[3], 1, -1"},
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};
const OpDef kSliceScatter{
    .schema =
        "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? "
        "end=None, "
        "SymInt step=1) -> Tensor",
    .types =
        [](const Call& c) {
          if (c.type("self").rank() == 0) c.fail("a 0-d tensor has no dimension to slice");
          Sizes part = self_sizes(c);
          part[view_dim(c)] = slice_range(c, part[view_dim(c)]).length;
          return overwritten(c, part);
        },
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t dim = view_dim(c);
          SliceRange range = slice_range(c, self_sizes(c)[dim]);
          return place(lowering, c, c.value("src"), c.value("self"),
                       [&lowering, range, dim](const Index& index) {
                         return placed_slice(lowering, range, dim, index);
                       });
        },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zero = zeros_like(Tensor{b, c.value("src")});
      std::vector<Operand> rest = {g[0],           zero,         view_dim(c),
                                   c.arg("start"), c.arg("end"), c.arg("step")};
      std::vector<Operand> back = {g[0], view_dim(c), c.arg("start"), c.arg("end"), c.arg("step")};
      return {{"self", call(b, "aten.slice_scatter", rest)},
              {"src", call(b, "aten.slice.Tensor", back)}};
    },
    .samples = {"$[5, 4], $[3, 4], 0, 1, 4", "$[5, 4], $[5, 2], 1, 0, 4, 2"},
    .out = true,
    .batch = batch_along_dims,
    .complex = {complex_each}};

/// Dimension of input_sizes that a backward op of a view means.
int64_t input_dim(const Call& c) {
  int64_t rank = static_cast<int64_t>(c.ints("input_sizes").size());
  if (rank == 0) c.fail("input_sizes needs a dimension");
  return c.dim("dim", rank);
}
/// A gradient of input_sizes from one of the `part` that was seen.
Types backward_types(const Call& c, const Sizes& part) {
  if (!same_sizes(c.type("grad_output").sizes, part))
    c.fail(fmt::format("{} must have the sizes {} of the view", c.describe("grad_output"),
                       ir::to_string(part)));
  return {ir::Type::tensor(c.type("grad_output").dtype, c.ints("input_sizes"))};
}
Types select_backward_types(const Call& c) {
  Sizes part = c.ints("input_sizes");
  index_in(c, part[input_dim(c)], c.describe("input_sizes"));
  part.erase(part.begin() + input_dim(c));
  return backward_types(c, part);
}
Types slice_backward_types(const Call& c) {
  Sizes part = c.ints("input_sizes");
  part[input_dim(c)] = slice_range(c, part[input_dim(c)]).length;
  return backward_types(c, part);
}
const OpDef kSelectBackward{
    .schema =
        "aten::select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> "
        "Tensor",
    .types = select_backward_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t dim = input_dim(c);
          Expr at = index_in(c, c.ints("input_sizes")[dim], c.describe("input_sizes"));
          return place(lowering, c, c.value("grad_output"), nullptr,
                       [&lowering, at, dim](const Index& index) {
                         return placed_select(lowering, at, dim, index);
                       });
        },
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"grad_output", select(g[0], input_dim(c), c.integer("index"))}};
    },
    .samples = {"$[4], [3, 4], 0, 1", "$[3], [3, 4], 1, 2"},
    .out = true,
    .batch = batch_along_dims};
const OpDef kSliceBackward{
    .schema =
        "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, "
        "SymInt "
        "end, SymInt step) -> Tensor",
    .types = slice_backward_types,
    .lower =
        [](Lowering& lowering, const Call& c) {
          int64_t dim = input_dim(c);
          SliceRange range = slice_range(c, c.ints("input_sizes")[dim]);
          range.length = c.type("grad_output").sizes[dim];
          return place(lowering, c, c.value("grad_output"), nullptr,
                       [&lowering, range, dim](const Index& index) {
                         return placed_slice(lowering, range, dim, index);
                       });
        },
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"grad_output", slice(g[0], input_dim(c), c.integer("start"), c.integer("end"),
                                    c.constant("step"))}};
    },
    .samples = {"$[3, 4], [5, 4], 0, 1, 4, 1", "$[5, 2], [5, 4], 1, 0, 4, 2"},
    .out = true,
    .batch = batch_along_dims};

const OpDef* const kOps[] = {
    &kSelect, &kSlice, &kSelectScatter, &kSliceScatter, &kSelectBackward, &kSliceBackward,
};

}  // namespace

Family slice_family() { return kOps; }

}  // namespace tandem::ops
