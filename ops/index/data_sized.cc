// Problem: how many elements are not 0, or different, is known only while a program runs. Approach:
// these ops make a symbol (ir/data_sizes.h) and come down to one primitive, tandem::read_scalar,
// which gives it its value: a mask is counted, the count is read, and from there on all is loops
// over known sizes. The places of the elements that hold are scattered by their numbers, which are
// running sums; what does not hold is written to one place more than there are.
#include "ops/index/data_sized.h"

#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ir/data_sizes.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Tensor self_of(Builder& b, const Call& c) { return {b, c.value("self")}; }
Tensor flat(Tensor x) { return reshape(x, {x.type().numel()}); }
int64_t first_dim(const Call&) { return 0; }
Expr size_made_by(const Call& c) { return c.result()->type.sizes[0]; }
std::string never(const Call&, const Target&) { return ""; }

// --- numbers
// --------------------------------------------------------------------------------------

ir::Type number_type(DType dtype) {
  return ir::Type::scalar(is_float(dtype) ? DType::f64 : DType::i64);
}

Types item_types(const Call& c) {
  if (!sym::known_eq(c.type("self").numel(), 1))
    c.fail(c.describe("self") + " is read as a number: it must be one value");
  return {number_type(c.type("self").dtype)};
}

ir::Value* read_scalar(Tensor x, std::string name) {
  ir::Node* node = x.builder().call("tandem.read_scalar", {x.value()});
  node->results[0]->name = std::move(name);
  return node->results[0];
}

/// A number that no text names has a name that no other one has.
std::string number_name(Builder& b, const Call& c) {
  if (!c.result()->name.empty()) return c.result()->name;
  return b.graph().free_input_name(fmt::format("number{}", c.result()->id));
}

Tensors read_item(Builder& b, const Call& c) {
  Tensor one = reshape(self_of(b, c), {});
  return {{b, read_scalar(to(one, c.result()->type.dtype), number_name(b, c))}};
}

constexpr std::string_view kNumber = "a number that the program reads has no gradient";

/// The value of a number of the program: of the symbol that has the result's name, where it is an
/// i64 and there is one; it must be in the symbol's range.
const OpDef kReadScalar{
    .schema = "tandem::read_scalar(Tensor self) -> Scalar",
    .types = [](const Call& c) -> Types {
      const ir::Type& self = c.type("self");
      if (self.rank() != 0 || (self.dtype != DType::i64 && self.dtype != DType::f64))
        c.fail(c.describe("self") + " must be i64[] or f64[]");
      return {number_type(self.dtype)};
    },
    .no_grad = kNumber,
    .fast = {{RouteKind::read_scalar, never}},
    .can_fail = true,
    .opaque = true};
const OpDef kLocalScalar{.schema = "aten::_local_scalar_dense(Tensor self) -> Scalar",
                         .types = item_types,
                         .decompose = read_item,
                         .can_fail = true};
const OpDef kItem{.schema = "aten::item(Tensor self) -> Scalar",
                  .types = item_types,
                  .decompose = read_item,
                  .can_fail = true};

// --- masks
// ----------------------------------------------------------------------------------------

Types nonzero_types(const Call& c, Expr size) {
  return {ir::Type::tensor(DType::i64, {size, Expr(c.type("self").rank())})};
}

Tensor truth(Tensor x) {
  return x.dtype() == DType::boolean ? x : call(x.builder(), "aten.ne.Scalar", {x, 0});
}

const OpDef kNonzero{
    .schema = "aten::nonzero(Tensor self) -> Tensor",
    .data_sized = {first_dim, nonzero_types},
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const Tensors columns = columns_where(truth(self_of(b, c)), size_made_by(c));
      if (columns.empty())  // of one value: no coordinates, so no elements
        return {reshape(slice(places_where(truth(self_of(b, c)), size_made_by(c)), 0, 0, 0),
                        {size_made_by(c), Expr(0)})};
      Tensors parts;
      for (Tensor column : columns) parts.push_back(unsqueeze(column, 1));
      return {cat(parts, 1)};
    },
    .samples = {"$[3, 4]", "$[7]:special", "bool[2, 3, 2]", "i64[40]:index(2)", "$[0]", "$[3, 0]"},
    .sample_dtypes = DTypes::numbers,
    .can_fail = true};
const OpDef kArgwhere{.schema = "aten::argwhere(Tensor self) -> Tensor",
                      .data_sized = {first_dim, nonzero_types},
                      .decompose = kNonzero.decompose,
                      .samples = {"$[3, 4]", "bool[5]"},
                      .can_fail = true};

/// The same by dimension; a value without dimensions counts as a list of one.
Tensor as_list(Tensor x) { return x.rank() == 0 ? reshape(x, {1}) : x; }
Types where_types(const Call& c, Expr size) {
  const ir::Type& self = c.type(c.op().schema.params[0].name);
  return Types(static_cast<size_t>(std::max<int64_t>(self.rank(), 1)),
               ir::Type::tensor(DType::i64, {size}));
}
Tensors where_holds(Builder& b, const Call& c) {
  Tensor self{b, c.value(c.op().schema.params[0].name)};
  return columns_where(as_list(truth(self)), size_made_by(c));
}
const OpDef kWhere{.schema = "aten::where(Tensor condition) -> Tensor[]",
                   .data_sized = {first_dim, where_types},
                   .decompose = where_holds,
                   .samples = {"$[3, 4]", "bool[5]", "$[]"},
                   .can_fail = true};
const OpDef kNonzeroNumpy{.schema = "aten::nonzero_numpy(Tensor self) -> Tensor[]",
                          .data_sized = {first_dim, where_types},
                          .decompose = where_holds,
                          .samples = {"$[3, 4]", "bool[5]"},
                          .can_fail = true};

Types masked_select_types(const Call& c, Expr size) {
  if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
  broadcast(c, c.type("self").sizes, c.type("mask").sizes);
  return {ir::Type::tensor(c.type("self").dtype, {size})};
}
/// The gradient is that of reading at these places: sums of one term.
const OpDef kMaskedSelect{
    .schema = "aten::masked_select(Tensor self, Tensor mask) -> Tensor",
    .data_sized = {first_dim, masked_select_types},
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const Sizes sizes = broadcast(c, c.type("self").sizes, c.type("mask").sizes);
      Tensor mask = expand(Tensor{b, c.value("mask")}, sizes);
      Tensor places = places_where(flat(mask), size_made_by(c));
      return {call(b, "aten.index_select", {flat(expand(self_of(b, c), sizes)), 0, places})};
    },
    .samples = {"$[3, 4], bool[3, 4]", "$[3, 4], bool[4]", "$[4], bool[3, 1]", "$[], bool[]",
                "$[0], bool[0]"},
    .can_fail = true};

// --- different values
// -----------------------------------------------------------------------------

Types unique_types(const Call& c, Expr size) {
  const Sizes inverse = c.type("self").sizes;
  return {ir::Type::tensor(c.type("self").dtype, {size}),
          ir::Type::tensor(DType::i64, c.boolean("return_inverse") ? inverse : Sizes{0}),
          ir::Type::tensor(DType::i64, {c.boolean("return_counts") ? size : Expr(0)})};
}

/// Neighbours in `sorted` that differ begin a group: first[i]. The group of an element is the
/// number of those up to it, and a group's count the distance to the next one.
struct Groups {
  Tensor starts;  // places of the first elements, i64[size]
  Tensor number;  // of each element's group
  Expr size, all;

  Groups(Tensor sorted, Expr made) : size(made), all(sorted.size(0)) {
    Builder& b = sorted.builder();
    Tensor before = call(b, "aten.roll", {sorted, ir::Ints{1}, ir::Ints{0}});
    Tensor differs = compare("ne", sorted, before);
    Tensor is_first = compare("eq", arange(b, all, DType::i64), 0);
    Tensor first = call(b, "aten.logical_or", {differs, is_first});
    number =
        call(b, "aten.sub.Scalar", {call(b, "aten.cumsum", {to(first, DType::i64), 0}), Expr(1)});
    starts = places_where(first, made);
  }

  Tensor counts() const {
    Builder& b = starts.builder();
    Tensor end = call(b, "aten.full", {ir::Ints{Expr(1)}, all, DType::i64});
    Tensor ends = slice(cat({starts, end}, 0), 0, 1, size + 1);
    return ends - starts;
  }
};

Tensor empty_of(Builder& b) { return full(b, {Expr(0)}, 0, DType::i64); }

/// Eager has no gradient of which values differ.
Tensor without_gradient(Builder& b, const Call& c) {
  return call(b, "aten.detach", {self_of(b, c)});
}

Tensors unique(Builder& b, const Call& c) {
  Tensor x = flat(without_gradient(b, c));
  const Tensors sorted = call_many(b, "aten.sort", {x, 0, false});
  const Groups groups(sorted[0], size_made_by(c));
  Tensor values = call(b, "aten.index_select", {sorted[0], 0, groups.starts});
  Tensor inverse = empty_of(b);
  if (c.boolean("return_inverse")) {
    Tensor none = full(b, {groups.all}, 0, DType::i64);
    Tensor placed =
        call(b, "tandem.scatter", {none, 0, sorted[1], groups.number, false, "aten::_unique2"});
    inverse = reshape(placed, c.type("self").sizes);
  }
  return {values, inverse, c.boolean("return_counts") ? groups.counts() : empty_of(b)};
}

const OpDef kUnique2{.schema =
                         "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, "
                         "bool return_counts=False) -> (Tensor, Tensor, Tensor)",
                     .data_sized = {first_dim, unique_types},
                     .decompose = unique,
                     .samples = {"i64[20]:index(5)", "$[7]:halves, true, true, true",
                                 "i64[3, 4]:index(3), true, true", "$[5], true, false, true",
                                 "i64[0], true, true, true"},
                     .sample_dtypes = DTypes::f32_only,
                     .can_fail = true};

/// Runs of equal neighbours, of all elements or, with a dimension, of a list.
Tensors unique_consecutive(Builder& b, const Call& c) {
  Tensor x = flat(without_gradient(b, c));
  const Groups groups(x, size_made_by(c));
  Tensor inverse =
      c.boolean("return_inverse") ? reshape(groups.number, c.type("self").sizes) : empty_of(b);
  return {call(b, "aten.index_select", {x, 0, groups.starts}), inverse,
          c.boolean("return_counts") ? groups.counts() : empty_of(b)};
}
const OpDef kUniqueConsecutive{
    .schema =
        "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool "
        "return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)",
    .data_sized = {first_dim,
                   [](const Call& c, Expr size) -> Types {
                     if (c.has("dim") && c.type("self").rank() != 1)
                       throw Unsupported(fmt::format(
                           "[aten::unique_consecutive] of {} along a dimension: lists, and all "
                           "elements (dim=None), are accepted",
                           to_string(c.type("self"))));
                     return unique_types(c, size);
                   }},
    .decompose = unique_consecutive,
    .samples = {"i64[20]:index(2)", "i64[3, 4]:index(2), true, true",
                "i64[9]:index(2), true, true, 0"},
    .sample_dtypes = DTypes::f32_only,
    .can_fail = true};

const OpDef* const kOps[] = {&kReadScalar,   &kLocalScalar,      &kItem,    &kNonzero,
                             &kArgwhere,     &kMaskedSelect,     &kUnique2, &kWhere,
                             &kNonzeroNumpy, &kUniqueConsecutive};

}  // namespace

void make_size(Tensor count, Expr size) {
  const std::optional<int64_t> known = size.constant();
  sym::Pool& pool = count.builder().graph().pool();
  read_scalar(count, (known ? ir::new_size(pool, {*known, *known}) : size).name());
}

Tensor places_where(Tensor mask, Expr size) {
  Builder& b = mask.builder();
  Tensor holds = flat(mask);
  Tensor ones = to(holds, DType::i64);
  make_size(call(b, "aten.sum", {ones}), size);
  Tensor number = call(b, "aten.sub.Scalar", {call(b, "aten.cumsum", {ones, 0}), Expr(1)});
  Tensor place = call(b, "aten.where.ScalarOther", {holds, number, size});
  Tensor all = arange(b, holds.size(0), DType::i64);
  Tensor none = full(b, {size + 1}, 0, DType::i64);
  Tensor placed = call(b, "tandem.scatter", {none, 0, place, all, false, "aten::nonzero"});
  return slice(placed, 0, 0, size);
}

Tensors columns_where(Tensor mask, Expr size) {
  const Sizes& sizes = mask.sizes();
  Tensors columns(sizes.size());
  if (columns.empty()) return columns;
  Builder& b = mask.builder();
  Tensor rest = places_where(mask, size);
  for (size_t dim = sizes.size(); dim-- > 1;) {
    const Expr width = sym::max(sizes[dim], 1);
    columns[dim] = call(b, "aten.remainder.Scalar", {rest, width});
    rest = call(b, "aten.floor_divide.Scalar", {rest, width});
  }
  columns[0] = rest;
  return columns;
}

Family data_sized_family() { return kOps; }

}  // namespace tandem::ops
