// Indexing by tensors of integers, as in x[i, :, j]. The index tensors broadcast together; their
// dimensions stand where the first index stood when all indices are neighbours, else in front.
// Negative indices count from the end. A write moves the indexed dimensions to the front and is a
// scatter over one linear index.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"
#include "ops/index/data_sized.h"
#include "ops/index/index_batch.h"
#include "ops/index/index_plan.h"

namespace tandem::ops {
namespace {

/// The element of an index as a position in [0, extent): negative ones wrapped, others checked.
loop::Val wrapped(Lowering& lowering, const ir::Value* index, const Index& at, Expr extent,
                  std::string_view op) {
  loop::ScalarPool& pool = lowering.scalars();
  loop::Val value =
      pool.cast(lowering.load(index, broadcast_index(index->type.sizes, at)), DType::i64);
  loop::Val negative = pool.binary(Opcode::lt, value, pool.integer(DType::i64, 0));
  value = pool.select(negative, pool.binary(Opcode::add, value, pool.index(extent)), value);
  loop::Val inside =
      pool.binary(Opcode::bit_and, pool.binary(Opcode::ge, value, pool.integer(DType::i64, 0)),
                  pool.binary(Opcode::lt, value, pool.index(extent)));
  std::string text = fmt::format("[{}] index out of range: an index is not in [-{}, {})", op,
                                 sym::to_string(extent), sym::to_string(extent));
  return lowering.check(inside, value, lowering.error(text));
}

loop::Val element(Lowering& lowering, const Call& c, const IndexPlan& plan, const Index& index) {
  int64_t width = static_cast<int64_t>(plan.broadcast.size());
  Index at(plan.indexed.size() + plan.kept.size());
  std::vector<loop::Val> places;
  for (size_t i = 0; i < plan.kept.size(); ++i) {
    int64_t number = static_cast<int64_t>(i);
    at[plan.kept[i]] = index[number < plan.place ? number : number + width];
  }
  Index read(index.begin() + plan.place, index.begin() + plan.place + width);
  for (int64_t dim : plan.indexed) {
    Expr extent = c.type("self").sizes[dim];
    loop::Val value =
        wrapped(lowering, c.values("indices")[dim], read, extent, c.op().schema.full_name());
    at[dim] = lowering.scalars().as_index(value, extent);
    places.push_back(value);
  }
  loop::Val result = lowering.load(c.value("self"), at);
  for (loop::Val place : places) result = with_check(lowering.scalars(), result, place);
  return result;
}

// --- reading by a mask: by the coordinates of its elements that hold

const ir::Value* mask_among(const Call& c) {
  const ir::Value* mask = nullptr;
  for (const ir::Value* index : c.values("indices")) {
    if (index == nullptr || index->type.dtype != DType::boolean) continue;
    if (mask != nullptr)
      throw Unsupported(
          fmt::format("[{}] two masks as indices: not implemented (ops); one mask beside indices "
                      "of i64 or i32 is accepted",
                      c.op().schema.full_name()));
    mask = index;
  }
  return mask;
}

/// Its sizes are those of self at its place.
void check_mask(const Call& c, const ir::Type& mask, size_t first) {
  const ir::Type& self = c.type("self");
  for (size_t i = 0; i < mask.sizes.size(); ++i)
    if (first + i >= self.sizes.size() || sym::known_ne(self.sizes[first + i], mask.sizes[i]))
      c.fail(fmt::format("the mask {} at dimension {} does not fit {}", to_string(mask), first,
                         c.describe("self")));
}

/// Sizes of the indices, with `size` for the coordinates that stand for a mask.
IndexSizes sizes_by_coordinates(const Call& c, Expr size) {
  IndexSizes sizes;
  for (const ir::Value* index : c.values("indices")) {
    if (index == nullptr) {
      sizes.emplace_back();
    } else if (index->type.dtype == DType::boolean) {
      check_mask(c, index->type, sizes.size());
      sizes.insert(sizes.end(), index->type.sizes.size(), Sizes{size});
    } else {
      check_index_tensor(c, *index, static_cast<int64_t>(sizes.size()));
      sizes.emplace_back(index->type.sizes);
    }
  }
  return sizes;
}

/// Where the number of elements that the mask chooses is in the result; -1 without a mask.
int64_t chosen_dim(const Call& c) {
  const ir::Value* mask = mask_among(c);
  if (mask == nullptr) return -1;
  if (mask->type.rank() == 0)
    throw Unsupported(fmt::format("[{}] a mask of one value as index: not implemented (ops)",
                                  c.op().schema.full_name()));
  const IndexPlan plan = index_plan(c, sizes_by_coordinates(c, 1));
  return plan.place + static_cast<int64_t>(plan.broadcast.size()) - 1;
}

Types masked_types(const Call& c, Expr size) {
  const IndexPlan plan = index_plan(c, sizes_by_coordinates(c, size));
  return {ir::Type::tensor(c.type("self").dtype, indexed_sizes(c, plan))};
}

Tensors index_by_mask(Builder& b, const Call& c) {
  const Expr size = c.result()->type.sizes[static_cast<size_t>(chosen_dim(c))];
  ir::Values indices;
  for (ir::Value* index : c.values("indices")) {
    if (index == nullptr || index->type.dtype != DType::boolean)
      indices.push_back(index);
    else
      for (Tensor column : columns_where({b, index}, size)) indices.push_back(column.value());
  }
  return {call(b, "aten.index.Tensor", {c.arg("self"), ir::Arg(indices)})};
}

const OpDef kIndex{
    .schema = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
    .types = [](const Call& c) -> Types {
      return {ir::Type::tensor(c.type("self").dtype, indexed_sizes(c, index_plan(c)))};
    },
    .data_sized = {chosen_dim, masked_types},
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c,
                                [&lowering, c, plan = index_plan(c)](size_t, const Index& index) {
                                  return element(lowering, c, plan, index);
                                });
        },
    .decompose = index_by_mask,
    .composite = [](const Call& c) { return mask_among(c) != nullptr; },
    // Elements read several times add up.
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor zeros = zeros_like(Tensor{b, c.value("self")});
      return {{"self", call(b, "aten.index_put", {zeros, c.arg("indices"), g[0], true})}};
    },
    .samples = {"$[5, 4], [i64[3]:index(5)]", "$[5, 4], [i64[3]:index(5), i64[3]:index(4)]",
                "$[5, 4], [none, i64[2, 3]:index(4)]",
                "$[5, 4, 3], [i64[2]:index(5), none, i64[2]:index(3)]",
                "$[5, 4], [i64[2, 1]:index(5), i64[3]:index(4)]", "$[5, 4], [i64[0]]",
                "$[5, 4], [bool[5]]", "$[5, 4], [bool[5, 4]]", "$[2, 5, 4], [none, bool[5]]"},
    .sample_dtypes = DTypes::all,
    .gathers = "self",
    .can_fail = true,
    .batch = batch_index,
    .complex = {.rule = complex_each, .places = "indices"}};

const OpDef kWrapped{
    .schema = "tandem::wrapped_index(Tensor self, SymInt extent, str op) -> Tensor",
    .types = [](const Call& c) -> Types {
      return {ir::Type::tensor(DType::i64, c.type("self").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return wrapped(lowering, c.value("self"), index, c.integer("extent"), c.string("op"));
          });
        },
    .no_grad = "indices are integers",
    .samples = {"i64[3]:index(5), 5, \"aten::index\""},
    .can_fail = true,
    .batch = [](const BatchedCall& c) -> Tensors {
      return {call(c.builder, "tandem.wrapped_index",
                   {c.given("self"), c.row.integer("extent"), c.row.arg("op")})};
    }};

/// One i64 position an element of the broadcast indices, flat: the row-major number over the
/// indexed dimensions.
Tensor linear_index(Builder& b, const Call& c, const IndexPlan& plan) {
  Tensor linear;
  std::string name = c.op().schema.full_name();
  for (int64_t dim : plan.indexed) {
    Expr extent = c.type("self").sizes[dim];
    Tensor index = call(b, "tandem.wrapped_index",
                        {Tensor{b, c.values("indices")[dim]}, extent, name.c_str()});
    linear = linear ? call(b, "aten.mul.Scalar", {linear, extent}) + index : index;
  }
  return reshape(expand(linear, plan.broadcast), {sym::product(plan.broadcast)});
}

/// rows[index[i], :] = (or +=) values[i, :]
Tensor write_rows(Tensor rows, Tensor index, Tensor values, bool accumulate) {
  if (accumulate) return call(rows.builder(), "aten.index_add", {rows, 0, index, values});
  return call(rows.builder(), "aten.scatter.src",
              {rows, 0, expand(unsqueeze(index, 1), values.sizes()), values});
}

Tensors put(Builder& b, const Call& c) {
  IndexPlan plan = index_plan(c);
  Tensor self{b, c.value("self")};
  std::vector<int64_t> order = plan.indexed;
  order.insert(order.end(), plan.kept.begin(), plan.kept.end());
  Tensor front = permute(self, order);
  Expr rows = 1;
  for (int64_t dim : plan.indexed) rows = rows * self.size(dim);
  Expr width = 1;
  for (int64_t dim : plan.kept) width = width * self.size(dim);
  Tensor values = expand(Tensor{b, c.value("values")}, indexed_sizes(c, plan));
  int64_t many = static_cast<int64_t>(plan.broadcast.size());
  std::vector<int64_t> values_order;  // broadcast dimensions first
  for (int64_t i = 0; i < many; ++i) values_order.push_back(plan.place + i);
  for (int64_t i = 0; i < values.rank(); ++i)
    if (i < plan.place || i >= plan.place + many) values_order.push_back(i);
  values = reshape(permute(values, values_order), {sym::product(plan.broadcast), width});
  Tensor written = write_rows(reshape(front, {rows, width}), linear_index(b, c, plan), values,
                              c.boolean("accumulate"));
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return {permute(reshape(written, front.sizes()), inverse)};
}

// --- masks
// ---------------------------------------------------------------------------------------

/// The only index, when it is a mask; how many of its elements hold is then of no account to a
/// write of values that are the same for all of them.
struct Mask {
  ir::Value* value = nullptr;
  int64_t first = 0;  // the dimension of self that it starts at
};
Mask mask_of(const Call& c) {
  Mask mask;
  const ir::Values& indices = c.values("indices");
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == nullptr) continue;
    if (mask.value != nullptr || indices[i]->type.dtype != DType::boolean) return {};
    mask = {indices[i], static_cast<int64_t>(i)};
  }
  return mask;
}
/// The dimension of `values` that the chosen elements are along; negative where there is none.
int64_t values_dim(const Call& c, const Mask& mask) {
  const int64_t behind = c.type("self").rank() - mask.first - mask.value->type.rank();
  return c.type("values").rank() - behind - 1;
}
/// Whether there is a value for each chosen element.
bool has_value_for_each(const Call& c, const Mask& mask) {
  const int64_t at = values_dim(c, mask);
  return at >= 0 && c.type("values").sizes[static_cast<size_t>(at)] != Expr(1);
}
/// Sizes of `values` with the dimension of the chosen elements, which has size 1 or is not there,
/// replaced by those of the mask.
Sizes masked_values_sizes(const Call& c, const Mask& mask) {
  const int64_t at = values_dim(c, mask);
  Sizes sizes = c.type("values").sizes;
  if (at < 0) return sizes;
  sizes[at] = 1;
  sizes.insert(sizes.begin() + at, mask.value->type.sizes.size(), Expr(1));
  sizes.erase(sizes.begin() + at);
  return sizes;
}
Tensors put_masked(Builder& b, const Call& c, const Mask& mask) {
  Tensor self{b, c.value("self")};
  Tensor values = reshape(Tensor{b, c.value("values")}, masked_values_sizes(c, mask));
  Sizes aligned = mask.value->type.sizes;
  while (static_cast<int64_t>(aligned.size()) < self.rank() - mask.first) aligned.emplace_back(1);
  Tensor chosen = reshape(Tensor{b, mask.value}, aligned);
  return {where(chosen, c.boolean("accumulate") ? self + values : values, self)};
}

/// Sizes of what a mask reads, where it chooses `count` elements.
Sizes chosen_sizes(const Call& c, const Mask& mask, Expr count) {
  const Sizes& self = c.type("self").sizes;
  Sizes sizes(self.begin(), self.begin() + mask.first);
  sizes.push_back(count);
  sizes.insert(sizes.end(), self.begin() + mask.first + mask.value->type.rank(), self.end());
  return sizes;
}
bool fits_chosen(const Call& c, const Mask& mask) {
  const Expr count = c.type("values").sizes[static_cast<size_t>(values_dim(c, mask))];
  const Sizes sizes = chosen_sizes(c, mask, count);
  return broadcast(c, c.type("values").sizes, sizes) == sizes;
}
/// Dimensions [first, first + count) in front of the others.
std::vector<int64_t> brought_to_front(int64_t first, int64_t count, int64_t rank) {
  std::vector<int64_t> order;
  for (int64_t dim = 0; dim < count; ++dim) order.push_back(first + dim);
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim < first || dim >= first + count) order.push_back(dim);
  return order;
}

/// Which row of the values a row of the mask takes: the number of those before it that hold, or one
/// behind the last, which is zeros. False in `holds` is an error where the count is another one.
struct Numbered {
  Tensor holds, row;
  Numbered(Tensor mask, Expr count) {
    Builder& b = mask.builder();
    Tensor flat = reshape(mask, {mask.type().numel()});
    Tensor ones = to(flat, DType::i64);
    Tensor fits = call(b, "aten.eq.Scalar", {call(b, "aten.sum", {ones}), count});
    const std::string text = fmt::format(
        "shape mismatch: the mask chooses another number of elements than the {} that have values",
        sym::to_string(count));
    Tensor checked = call(b, "tandem.assert_true", {fits, text.c_str()});
    holds = call(b, "aten.logical_and", {flat, checked});
    Tensor number = call(b, "aten.sub.Scalar", {call(b, "aten.cumsum", {ones, 0}), Expr(1)});
    row = call(b, "aten.where.ScalarOther", {holds, number, count});
  }
};

/// A row of self that is chosen gets the row of the values that has its number.
Tensors put_chosen(Builder& b, const Call& c, const Mask& mask) {
  Tensor self{b, c.value("self")};
  const int64_t many = mask.value->type.rank();
  const Expr count = c.type("values").sizes[static_cast<size_t>(values_dim(c, mask))];
  const Sizes sizes = chosen_sizes(c, mask, count);
  const Expr rows = mask.value->type.numel();
  Tensor values = expand(Tensor{b, c.value("values")}, sizes);
  Tensor moved = permute(values, brought_to_front(mask.first, 1, values.rank()));
  Expr width = 1;
  for (int64_t dim = 1; dim < moved.rank(); ++dim) width = width * moved.size(dim);
  Tensor front = permute(self, brought_to_front(mask.first, many, self.rank()));
  Tensor old = reshape(front, {rows, width});
  Tensor none = full(b, {Expr(1), width}, 0, self.dtype());
  const Numbered numbered(Tensor{b, mask.value}, count);
  Tensor read = call(b, "aten.index_select",
                     {cat({reshape(moved, {count, width}), none}, 0), 0, numbered.row});
  Tensor updated = c.boolean("accumulate") ? old + read : read;
  Tensor made = reshape(where(unsqueeze(numbered.holds, 1), updated, old), front.sizes());
  std::vector<int64_t> inverse(static_cast<size_t>(self.rank()));
  const std::vector<int64_t> order = brought_to_front(mask.first, many, self.rank());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return {permute(made, inverse)};
}

Tensors put_any(Builder& b, const Call& c) {
  Mask mask = mask_of(c);
  if (mask.value == nullptr) return put(b, c);
  return has_value_for_each(c, mask) ? put_chosen(b, c, mask) : put_masked(b, c, mask);
}

const OpDef kIndexPut{
    .schema =
        "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> "
        "Tensor",
    .types = [](const Call& c) -> Types {
      Mask mask = mask_of(c);
      if (mask.value != nullptr) {
        const Sizes& self = c.type("self").sizes;
        need_same_dtype(c, {"self", "values"});
        check_mask(c, mask.value->type, static_cast<size_t>(mask.first));
        const bool fits = has_value_for_each(c, mask)
                              ? fits_chosen(c, mask)
                              : broadcast(c, masked_values_sizes(c, mask), self) == self;
        if (!fits) c.fail(c.describe("values") + " does not broadcast to what the mask chooses");
        return unary_same(c);
      }
      Sizes sizes = indexed_sizes(c, index_plan(c));
      if (c.type("values").dtype != c.type("self").dtype)
        c.fail(fmt::format("{} and {} must have the same dtype", c.describe("self"),
                           c.describe("values")));
      if (broadcast(c, c.type("values").sizes, sizes) != sizes)
        c.fail(
            fmt::format("{} does not broadcast to {}", c.describe("values"), ir::to_string(sizes)));
      return unary_same(c);
    },
    .decompose = put_any,
    .samples = {"$[5, 4], [i64[3]:index(5)], $[3, 4], true",
                "$[5, 4], [i64[3]:index(5), i64[3]:index(4)], $[3], true",
                "$[5, 4], [none, i64[2, 3]:index(4)], $[5, 2, 3], true",
                "$[5, 4, 3], [i64[2]:index(5), none, i64[2]:index(3)], $[2, 4], true",
                "$[5, 4], [i64[1]:index(5)], $[4], false",
                "$[5, 4], [i64[1]:index(5), i64[1]:index(4)], $[], false",
                "$[5, 4], [bool[5, 4]], $[], false", "$[5, 4], [bool[5, 4]], $[1], true",
                "$[5, 4], [bool[5]], $[4], false", "$[2, 5, 4], [none, bool[5]], $[4], true",
                "$[2, 5, 4], [none, bool[5]], $[2, 1, 4], false",
                "$[5, 4], [bool[5]], $[1, 4], false", "$[5, 4], [bool[4]], $[], false"},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .out = true,
    .can_fail = true,
    .batch = batch_index_put};

// --- without checks
// ------------------------------------------------------------------------------ The caller vouches
// for the indices; we check them all the same, it costs little.

const OpDef kUnsafeIndex{
    .schema = "aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
    .types = kIndex.types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call(b, "aten.index.Tensor", {c.arg("self"), c.arg("indices")})};
    },
    .samples = {"$[5, 4], [i64[3]:index(5)]", "$[5, 4], [none, i64[2, 3]:index(4)]"},
    .can_fail = true};
const OpDef kUnsafeIndexPut{
    .schema =
        "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool "
        "accumulate=False) -> Tensor",
    .types = kIndexPut.types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call(b, "aten.index_put",
                   {c.arg("self"), c.arg("indices"), c.arg("values"), c.arg("accumulate")})};
    },
    .samples = {"$[5, 4], [i64[3]:index(5)], $[3, 4], true",
                "$[5, 4], [i64[1]:index(5)], $[4], false"},
    .can_fail = true};

/// Indices brought into range: what is out of it is masked.
ir::Arg clamped_indices(Builder& b, const Call& c) {
  ir::Values clamped;
  int64_t dim = 0;
  for (ir::Value* index : c.values("indices")) {
    Expr last = c.type("self").sizes[dim++] - 1;
    clamped.push_back(
        index == nullptr ? nullptr : call(b, "aten.clamp", {Tensor{b, index}, 0, last}).value());
  }
  return clamped;
}
const OpDef kUnsafeMaskedIndex{
    .schema =
        "aten::_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar "
        "fill) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
      return {ir::Type::tensor(c.type("self").dtype, indexed_sizes(c, index_plan(c)))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor hidden = logical_not(Tensor{b, c.value("mask")});
      Tensor read = call(b, "aten.index.Tensor", {c.arg("self"), clamped_indices(b, c)});
      return {call(b, "aten.masked_fill.Scalar", {read, hidden, c.arg("fill")})};
    },
    .samples = {"$[5, 4], bool[3, 1], [i64[3]:index(9)], 0.5",
                "$[5, 4], bool[3], [i64[3]:index(7), i64[3]:index(6)], 0"},
    .can_fail = true};
const OpDef kUnsafeMaskedPut{
    .schema =
        "aten::_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] "
        "indices, Tensor values) -> Tensor",
    .types = [](const Call& c) -> Types {
      index_plan(c);
      need_same_dtype(c, {"self", "values"});
      return unary_same(c);
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor hidden = logical_not(Tensor{b, c.value("mask")});
      Tensor values = call(b, "aten.masked_fill.Scalar", {c.arg("values"), hidden, 0});
      return {call(b, "aten.index_put", {c.arg("self"), clamped_indices(b, c), values, true})};
    },
    .samples = {"$[5, 4], bool[3, 1], [i64[3]:index(9)], $[3, 4]"},
    .can_fail = true};

const OpDef* const kOps[] = {&kIndex,          &kWrapped,           &kIndexPut,       &kUnsafeIndex,
                             &kUnsafeIndexPut, &kUnsafeMaskedIndex, &kUnsafeMaskedPut};

}  // namespace

Family index_tensor_family() { return kOps; }

}  // namespace tandem::ops
