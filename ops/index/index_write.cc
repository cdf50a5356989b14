// Writes at computed places besides scatter and index_put: fills, copies, reductions, and the
// forms that count elements in row-major order. All come down to scatters.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/index/index_batch.h"

namespace tandem::ops {
namespace {

Tensor tensor(Builder& b, const Call& c, std::string_view name) { return {b, c.value(name)}; }
Tensor self_of(Builder& b, const Call& c) { return tensor(b, c, "self"); }
int64_t self_dim(const Call& c) { return c.dim("dim", c.type("self").rank()); }
Tensor flat(Tensor x) { return reshape(x, {x.type().numel()}); }
std::string name_of_op(const Call& c) { return c.op().schema.full_name(); }

void need_index(const Call& c, std::string_view name, bool allow_i32 = false) {
  DType dtype = c.type(name).dtype;
  if (dtype != DType::i64 && !(allow_i32 && dtype == DType::i32))
    c.fail(fmt::format("{} must have dtype i64{}", c.describe(name), allow_i32 ? " or i32" : ""));
}
/// Positions along a dimension of `extent`, negative ones counted from its end, flat.
Tensor wrapped_index(const Call& c, Tensor index, Expr extent) {
  return call(index.builder(), "tandem.wrapped_index",
              {flat(index), extent, name_of_op(c).c_str()});
}

// --- index_fill
// -----------------------------------------------------------------------------------

Types fill_types(const Call& c) {
  need_index(c, "index");
  if (c.type("index").rank() > 1) c.fail(c.describe("index") + " must have at most 1 dimension");
  self_dim(c);
  bool has_tensor = c.op().schema.overload == "int_Tensor";
  if (has_tensor && c.type("value").rank() != 0)
    c.fail(c.describe("value") + " must have 0 dimensions");
  return unary_same(c);
}
Tensors index_fill(Builder& b, const Call& c) {
  Tensor self = self_of(b, c);
  const Sizes& sizes = self.sizes();
  Tensor rows = self.rank() == 0 ? reshape(self, {1}) : self;
  int64_t dim = self_dim(c);
  Tensor index = wrapped_index(c, tensor(b, c, "index"), rows.size(dim));
  Sizes part = rows.sizes();
  part[dim] = index.size(0);
  Tensor src = c.op().schema.overload == "int_Tensor"
                   ? expand(to(tensor(b, c, "value"), self.dtype()), part)
                   : call(b, "aten.full", {part, c.arg("value"), self.dtype()});
  Tensor filled = call(b, "tandem.scatter", {rows, dim, index, src, false, name_of_op(c).c_str()});
  return {reshape(filled, sizes)};
}
// What was overwritten has no gradient; the value has that of all its copies, each place once.
Gradients index_fill_vjp(Builder& b, const Call& c, Grads g) {
  Gradients grads{
      {"self", call(b, "aten.index_fill.int_Scalar", {g[0], self_dim(c), c.arg("index"), 0})}};
  if (c.op().schema.overload == "int_Tensor") {
    Tensor ones = call(b, "aten.ones", {g[0].sizes(), DType::boolean});
    Tensor kept = call(b, "aten.index_fill.int_Scalar", {ones, self_dim(c), c.arg("index"), 0});
    Tensor copies = call(b, "aten.masked_fill.Scalar", {g[0], kept, 0});
    grads.push_back({"value", to(sum_all(copies), c.type("value").dtype)});
  }
  return grads;
}
const OpDef kIndexFillScalar{
    .schema =
        "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
    .types = fill_types,
    .decompose = index_fill,
    .vjp = index_fill_vjp,
    .samples = {"$[3, 4], 0, i64[2]:index(3), 2", "$[3, 4], -1, i64[2]:index(4), 0",
                "$[5], 0, i64[0], 1", "$[], 0, i64[1]:index(1), 3",
                "$[3, 40], 1, i64[]:index(5), 1", "$[3], 0, i32[1], 1", "$[2, 2], 0, i64[1, 1], 1"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .can_fail = true};
const OpDef kIndexFillTensor{
    .schema =
        "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
    .types = fill_types,
    .decompose = index_fill,
    .vjp = index_fill_vjp,
    .samples = {"$[3, 4], 0, i64[2]:index(3), $[]", "$[3, 4], -1, i64[1]:index(4), $[]",
                "$[3, 4], 0, i64[1]:index(3), $[1]", "$[3, 4], 1, i64[9]:index(4), $[]"},
    .inplace = true,
    .can_fail = true};

// --- index_copy, index_reduce
// ---------------------------------------------------------------------

/// A slice of `source` for each index.
Types slices_types(const Call& c) {
  need_index(c, "index", true);
  need_same_dtype(c, {"self", "source"});
  if (c.type("index").rank() > 1) c.fail(c.describe("index") + " must have at most 1 dimension");
  Sizes sizes = c.type("self").sizes;
  int64_t dim = self_dim(c);
  if (!sizes.empty()) sizes[dim] = c.type("index").numel();
  const Sizes& source = c.type("source").sizes;
  bool one = source.empty() && (c.type("index").numel() == Expr(1));
  if (!one && !same_sizes(source, sizes))
    c.fail(fmt::format("{} must have sizes {}", c.describe("source"), ir::to_string(sizes)));
  return unary_same(c);
}
const OpDef kIndexCopy{
    .schema = "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
    .types =
        [](const Call& c) {
          need_index(c, "index");
          return slices_types(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = self_of(b, c);
      Tensor rows = self.rank() == 0 ? reshape(self, {1}) : self;
      Tensor index = flat(tensor(b, c, "index"));
      Sizes part = rows.sizes();
      part[self_dim(c)] = index.size(0);
      Tensor source = reshape(tensor(b, c, "source"), part);
      Tensor copied = call(b, "tandem.scatter",
                           {rows, self_dim(c), index, source, false, name_of_op(c).c_str()});
      return {reshape(copied, self.sizes())};
    },
    .vjp = [](Builder& b, const Call& c, Grads g) -> Gradients {
      Tensor rest = call(b, "aten.index_fill.int_Scalar", {g[0], self_dim(c), c.arg("index"), 0});
      Tensor read = call(b, "aten.index_select", {g[0], self_dim(c), c.arg("index")});
      return {{"self", rest}, {"source", reshape(read, c.type("source").sizes)}};
    },
    .samples = {"$[3, 4], 0, i64[1]:index(3), $[1, 4]", "$[3, 4], 1, i64[1]:index(4), $[3, 1]",
                "$[5], 0, i64[0], $[0]", "$[9], 0, i64[]:index(5), $[]",
                "$[], 0, i64[1]:index(1), $[]", "$[3, 4], 0, i64[2]:index(3), $[2, 5]",
                "$[3], 0, i32[1]:index(3), $[1]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .out = true,
    .can_fail = true};

const OpDef kIndexReduce{
    .schema =
        "aten::index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, "
        "*, bool include_self=True) -> Tensor",
    .types =
        [](const Call& c) {
          std::string reduce = c.string("reduce");
          if (reduce != "prod" && reduce != "mean" && reduce != "amax" && reduce != "amin")
            c.fail(fmt::format("reduce \"{}\" is none of prod, mean, amax, amin", reduce));
          if (reduce == "mean" && !c.boolean("include_self")) need_number(c, "self");
          return slices_types(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = self_of(b, c);
      Tensor index = flat(to(tensor(b, c, "index"), DType::i64));
      Tensor source = tensor(b, c, "source");
      if (self.rank() > 0) {
        Sizes row(static_cast<size_t>(self.rank()), Expr(1));
        row[self_dim(c)] = index.size(0);
        Sizes part = self.sizes();
        part[self_dim(c)] = index.size(0);
        source = reshape(source, part);
        index = expand(reshape(index, row), part);
      }
      return {call(b, "aten.scatter_reduce.two",
                   {self, self_dim(c), index, source, c.arg("reduce"), c.arg("include_self")})};
    },
    .samples = {"$[3, 4], 0, i64[5]:index(3), $[5, 4], \"prod\"",
                "$[3, 4], 1, i64[3]:index(4), $[3, 3], \"mean\", include_self=false",
                "$[3, 40], 0, i64[5]:index(3), $[5, 40], \"amax\"",
                "$[5], 0, i64[7]:index(5), $[7], \"amin\", include_self=false",
                "$[3], 0, i64[1]:index(3), $[1], \"sum\""},
    .inplace = true,
    .out = true,
    .can_fail = true};

// --- scatter_reduce
// -------------------------------------------------------------------------------

std::string reduction_of(const Call& c) {
  std::string reduce = c.string("reduce");
  if (reduce == "add") return "sum";
  if (reduce == "max" || reduce == "min") return "a" + reduce;
  return reduce == "multiply" ? "prod" : reduce;
}
Types scatter_reduce_types(const Call& c) {
  std::string reduce = c.string("reduce");
  bool two = c.op().schema.find("include_self") >= 0;
  std::vector<std::string> names{"add", "multiply"};
  if (two) names = {"sum", "prod", "mean", "amax", "amin", "max", "min"};
  if (std::find(names.begin(), names.end(), reduce) == names.end())
    c.fail(fmt::format("reduce \"{}\" is not known", reduce));
  const ir::Op& plain =
      *op_table().find(c.op().schema.find("src") < 0 ? "aten.scatter.value" : "aten.scatter.src");
  return plain.types(Call(plain, {c.args().begin(), c.args().begin() + 4}));
}

/// The call's operands with one dimension at least, src cut to the index.
struct Scatter {
  Tensor self, index, src;
  int64_t dim;
};
Scatter scatter_of(Builder& b, const Call& c) {
  auto with_dim = [](Tensor x) { return x.rank() == 0 ? reshape(x, {1}) : x; };
  Scatter s{with_dim(self_of(b, c)), with_dim(tensor(b, c, "index")), {}, self_dim(c)};
  if (c.op().schema.find("src") < 0) {
    s.src = call(b, "aten.full", {s.index.sizes(), c.arg("value"), s.self.dtype()});
    return s;
  }
  s.src = with_dim(tensor(b, c, "src"));
  for (int64_t i = 0; i < s.src.rank(); ++i)
    if (s.src.size(i) != s.index.size(i)) s.src = slice(s.src, i, 0, s.index.size(i));
  return s;
}
Tensor combine(const Call& c, const Scatter& s, Tensor base, Tensor src, const char* how) {
  return call(base.builder(), "tandem.scatter",
              {base, s.dim, s.index, src, true, name_of_op(c).c_str(), how});
}
Tensor overwrite(const Call& c, const Scatter& s, Tensor base, Tensor src) {
  return call(base.builder(), "tandem.scatter",
              {base, s.dim, s.index, src, false, name_of_op(c).c_str()});
}
bool includes_self(const Call& c) {
  return c.op().schema.find("include_self") < 0 || c.boolean("include_self");
}
Tensor constant_like(Tensor x, double value) {
  return full(x.builder(), x.sizes(), value, x.dtype());
}
/// How many values meet at each place, at least 1.
Tensor meeting(const Call& c, const Scatter& s) {
  Tensor ones = constant_like(s.self, 1);
  Tensor base = includes_self(c) ? ones : overwrite(c, s, ones, constant_like(s.src, 0));
  return combine(c, s, base, constant_like(s.src, 1), "sum");
}
/// What is reduced into each place, in the compute type, where s holds wide tensors.
Tensor reduced(const Call& c, const Scatter& s) {
  std::string how = reduction_of(c);
  bool is_extremum = how == "amax" || how == "amin";
  Tensor base = s.self;
  // Of extrema it does not matter that one of the sources counts twice.
  if (!includes_self(c))
    base = overwrite(c, s, base, is_extremum ? s.src : constant_like(s.src, how == "prod"));
  Tensor result = combine(c, s, base, s.src, how == "mean" ? "sum" : how.c_str());
  if (how != "mean") return result;
  Tensor count = call(result.builder(), "aten.clamp", {meeting(c, s), 1});
  if (is_float(result.dtype())) return result / count;
  Tensor quotient = to(result, DType::f64) / to(count, DType::f64);
  return to(call(result.builder(), "aten.floor", {quotient}), result.dtype());
}
Scatter widened(Scatter s) {
  DType dtype = s.self.dtype() == DType::boolean ? DType::i64 : compute_type(s.self.dtype());
  s.self = to(s.self, dtype);
  s.src = to(s.src, dtype);
  return s;
}
/// An index without elements may have any number of dimensions.
bool writes_nothing(const Call& c) { return c.type("index").numel() == Expr(0); }
Tensors scatter_reduce(Builder& b, const Call& c) {
  if (writes_nothing(c)) return {self_of(b, c)};
  Tensor result = reduced(c, widened(scatter_of(b, c)));
  return {reshape(to(result, c.type("self").dtype), c.type("self").sizes)};
}

/// Gradients of base and sources, of wide operands.
struct Shares {
  Tensor self, src;
};
Tensor read(const Scatter& s, Tensor x) {
  return call(x.builder(), "aten.gather", {x, s.dim, s.index});
}
/// By the operator, which has a gradient of its own.
Tensor product_of(const Call& c, const Scatter& s) {
  return call(s.self.builder(), "aten.scatter_reduce.two",
              {s.self, s.dim, s.index, s.src, c.arg("reduce"), c.arg("include_self")});
}
// The product without the zero, where there is one; the quotient else.
Shares product_shares(const Call& c, const Scatter& s, Tensor grad, Tensor result) {
  Builder& b = grad.builder();
  Scatter other = s;
  other.self = where(compare("eq", s.self, 0.0), 1.0, s.self);
  Tensor of_self = grad * product_of(c, other) / other.self;
  Tensor is_zero = compare("eq", s.src, 0.0);
  Tensor zeros = combine(c, s, constant_like(s.self, 0), to(is_zero, s.src.dtype()), "sum");
  Tensor single = call(b, "aten.logical_and", {is_zero, compare("eq", read(s, zeros), 1.0)});
  other = s;
  other.src = where(single, 1.0, s.src);
  Tensor without = read(s, grad * product_of(c, other));
  Tensor with = read(s, grad * result) / where(is_zero, 1.0, s.src);
  return {of_self, where(single, without, with)};
}
// Shared equally between all that reach the extremum.
Shares extremum_shares(const Call& c, const Scatter& s, Tensor grad, Tensor result) {
  Tensor self_reaches = to(eq(s.self, result), grad.dtype());
  Tensor src_reaches = to(eq(s.src, read(s, result)), grad.dtype());
  Tensor share = grad / combine(c, s, self_reaches, src_reaches, "sum");
  return {self_reaches * share, src_reaches * read(s, share)};
}
Shares shares_of(const Call& c, const Scatter& s, Tensor grad, Tensor result) {
  std::string how = reduction_of(c);
  if (how == "prod") return product_shares(c, s, grad, result);
  if (how == "amax" || how == "amin") return extremum_shares(c, s, grad, result);
  if (how == "mean") grad = grad / call(grad.builder(), "aten.clamp", {meeting(c, s), 1});
  return {grad, read(s, grad)};
}
Gradients scatter_reduce_vjp(Builder& b, const Call& c, Grads g) {
  if (writes_nothing(c)) return {{"self", g[0]}, {"src", zeros_like(tensor(b, c, "src"))}};
  Scatter s = widened(scatter_of(b, c));
  Tensor grad = reshape(to(g[0], s.self.dtype()), s.self.sizes());
  Tensor result = reshape(to(Tensor{b, c.result()}, s.self.dtype()), s.self.sizes());
  Shares shares = shares_of(c, s, grad, result);
  if (!includes_self(c)) shares.self = overwrite(c, s, shares.self, constant_like(s.src, 0));
  const ir::Type& src = c.type("src");
  Sizes whole = src.sizes.empty() ? Sizes{1} : src.sizes;
  for (int64_t i = 0; i < shares.src.rank(); ++i) {
    if (shares.src.size(i) == whole[i]) continue;
    Sizes wider = shares.src.sizes();
    wider[i] = whole[i];
    shares.src = call(b, "aten.slice_backward", {shares.src, wider, i, 0, shares.src.size(i), 1});
  }
  return {{"self", reshape(to(shares.self, c.type("self").dtype), c.type("self").sizes)},
          {"src", reshape(to(shares.src, src.dtype), src.sizes)}};
}
const OpDef kScatterReduce{
    .schema =
        "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str "
        "reduce, *, bool include_self=True) -> Tensor",
    .types = scatter_reduce_types,
    .decompose = scatter_reduce,
    .vjp = scatter_reduce_vjp,
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4), $[3, 2], \"sum\"",
                "$[3, 4], 0, i64[5, 4]:index(3), $[5, 4], \"sum\", include_self=false",
                "$[3, 4], 0, i64[5, 4]:index(3), $[5, 4], \"prod\"",
                "$[3, 4], 0, i64[5, 4]:index(3), $[5, 4], \"prod\", include_self=false",
                "$[3, 4], 0, i64[5, 3]:index(3), $[5, 3], \"mean\"",
                "$[6], 0, i64[9]:index(6), $[9], \"mean\", include_self=false",
                "$[3, 40], 0, i64[5, 40]:index(3), $[5, 40], \"amax\"",
                "$[6], 0, i64[9]:index(6), $[9], \"amax\", include_self=false",
                "$[6], 0, i64[9]:index(6), $[9]:special, \"amin\"",
                "$[3, 4], 1, i64[3, 6]:index(4), $[3, 6], \"amin\", include_self=false",
                "$[], 0, i64[]:index(1), $[], \"amax\"", "$[3, 4], 0, i64[0, 4], $[0, 4], \"prod\"",
                "$[3], 0, i64[3]:index(3), $[3], \"none\"",
                "i64[3], 0, i64[5]:index(3), i64[5], \"max\""},
    .sample_dtypes = DTypes::numbers,
    .inplace = true,
    .can_fail = true,
    .batch = batch_by_elements};
constexpr std::string_view kNoReduceGradient = "PyTorch defines none; scatter_reduce has one";
const OpDef kScatterSrcReduce{
    .schema =
        "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str "
        "reduce) -> Tensor",
    .types = scatter_reduce_types,
    .decompose = scatter_reduce,
    .no_grad = kNoReduceGradient,
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4), $[3, 2], reduce=\"add\"",
                "$[3, 4], 0, i64[5, 4]:index(3), $[5, 4], reduce=\"multiply\"",
                "$[3], 0, i64[3]:index(3), $[3], reduce=\"sum\""},
    .inplace = true,
    .can_fail = true,
    .batch = batch_by_elements};
const OpDef kScatterValueReduce{
    .schema =
        "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str "
        "reduce) -> Tensor",
    .types = scatter_reduce_types,
    .decompose = scatter_reduce,
    .no_grad = kNoReduceGradient,
    .samples = {"$[3, 4], 1, i64[3, 2]:index(4), 2, reduce=\"add\"",
                "$[3, 4], 0, i64[5, 4]:index(3), 0.5, reduce=\"multiply\""},
    .inplace = true,
    .can_fail = true,
    .batch = batch_by_elements};

// --- by row-major number
// --------------------------------------------------------------------------

const OpDef kTake{.schema = "aten::take(Tensor self, Tensor index) -> Tensor",
                  .types = [](const Call& c) -> Types {
                    need_index(c, "index");
                    return {ir::Type::tensor(c.type("self").dtype, c.type("index").sizes)};
                  },
                  .decompose = [](Builder& b, const Call& c) -> Tensors {
                    Tensor self = flat(self_of(b, c));
                    Tensor places = wrapped_index(c, tensor(b, c, "index"), self.size(0));
                    Tensor read = call(b, "aten.index_select", {self, 0, places});
                    return {reshape(read, c.type("index").sizes)};
                  },
                  .samples = {"$[3, 4], i64[2, 3]:index(12)", "$[5], i64[]:index(5)",
                              "$[], i64[3]:index(1)", "$[3, 4], i64[0]", "$[4], i32[1]"},
                  .sample_dtypes = DTypes::all,
                  .out = true,
                  .can_fail = true};
const OpDef kPut{
    .schema =
        "aten::put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    .types =
        [](const Call& c) {
          need_index(c, "index");
          need_same_dtype(c, {"self", "source"});
          Expr places = c.type("index").numel();
          Expr values = c.type("source").numel();
          if (places != values && !sym::known_eq(places, values))
            c.fail(c.describe("source") + " must have as many elements as index");
          return unary_same(c);
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self = flat(self_of(b, c));
      Tensor places = wrapped_index(c, tensor(b, c, "index"), self.size(0));
      Tensor source = flat(tensor(b, c, "source"));
      std::string_view op = c.boolean("accumulate") ? "aten.index_add" : "aten.scatter.src";
      return {reshape(call(b, op, {self, 0, places, source}), c.type("self").sizes)};
    },
    .samples = {"$[3, 4], i64[2]:index(12), $[2], true", "$[3, 4], i64[1]:index(12), $[1]",
                "$[5], i64[0], $[0]", "$[5], i64[2]:index(5), $[3]",
                "$[3, 4], i64[2, 3]:index(12), $[6], true"},
    .inplace = true,
    .out = true,
    .can_fail = true};

/// dim none: both flat. Else all other dimensions broadcast.
Sizes along_sizes(const Call& c, std::string_view name) {
  const ir::Type& self = c.type("self");
  const ir::Type& indices = c.type("indices");
  if (!c.has("dim")) return {c.type(name).numel()};
  if (self.rank() != indices.rank())
    c.fail(fmt::format("{} and {} must have the same number of dimensions", c.describe("self"),
                       c.describe("indices")));
  int64_t dim = self_dim(c);
  Sizes left = self.sizes;
  Sizes right = indices.sizes;
  if (left.empty()) return {};
  left[dim] = right[dim] = 1;
  Sizes sizes = broadcast(c, left, right);
  sizes[dim] = c.type(name).sizes[dim];
  return sizes;
}
const OpDef kTakeAlongDim{
    .schema = "aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_index(c, "indices");
      along_sizes(c, "self");
      return {ir::Type::tensor(c.type("self").dtype, along_sizes(c, "indices"))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      bool along = c.has("dim");
      auto spread = [&](std::string_view name) {
        Tensor x = tensor(b, c, name);
        return along ? expand(x, along_sizes(c, name)) : flat(x);
      };
      Tensor self = spread("self");
      Tensor indices = spread("indices");
      if (!along) return {call(b, "aten.gather", {self, 0, indices})};
      // Along a dimension, and only there, eager counts negative indices from the end.
      Tensor wrapped = call(b, "aten.add.Scalar", {indices, self.size(self_dim(c))});
      indices = where(compare("lt", indices, 0.0), wrapped, indices);
      return {call(b, "aten.gather", {self, self_dim(c), indices})};
    },
    .samples = {"$[3, 4], i64[3, 2]:index(4), 1", "$[3, 4], i64[1, 4]:index(3), 0",
                "$[1, 4], i64[5, 2]:index(4), 1", "$[3, 4], i64[2, 3]:index(12)",
                "$[3, 4], i64[4]:index(3), 0", "$[9, 9], i64[2, 9], 0", "$[9], i64[3]"},
    .out = true,
    .can_fail = true};

/// Element n of source goes to the n-th place of the mask.
const OpDef kMaskedScatter{
    .schema = "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_same_dtype(c, {"self", "source"});
      if (c.type("mask").dtype != DType::boolean) c.fail(c.describe("mask") + " must be bool");
      return {ir::Type::tensor(c.type("self").dtype,
                               broadcast(c, c.type("self").sizes, c.type("mask").sizes))};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      const Sizes& sizes = c.result()->type.sizes;
      Tensor self = expand(self_of(b, c), sizes);
      Tensor mask = expand(tensor(b, c, "mask"), sizes);
      Tensor source = flat(tensor(b, c, "source"));
      if (source.size(0) == Expr(0)) return {call(b, "aten.clone", {self})};
      Tensor count = call(b, "aten.cumsum", {to(flat(mask), DType::i64), 0});
      Tensor number = call(b, "aten.sub.Scalar", {count, 1});
      Tensor place = call(b, "aten.where.ScalarOther", {flat(mask), number, 0});
      Tensor read = call(b, "aten.index_select", {source, 0, place});
      return {where(mask, reshape(read, sizes), self)};
    },
    .samples = {"$[3, 4], bool[3, 4], $[12]", "$[3, 4], bool[4], $[3, 4]",
                "$[4], bool[3, 4], $[20]", "$[0], bool[0], $[2]", "$[3], bool[3], $[3]"},
    .inplace = true,
    .out = true,
    .can_fail = true};

const OpDef* const kOps[] = {
    &kIndexFillScalar,  &kIndexFillTensor,    &kIndexCopy, &kIndexReduce, &kScatterReduce,
    &kScatterSrcReduce, &kScatterValueReduce, &kTake,      &kPut,         &kTakeAlongDim,
    &kMaskedScatter};

}  // namespace

Family index_write_family() { return kOps; }

}  // namespace tandem::ops
