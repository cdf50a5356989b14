// Quantiles: places in the sorted row that need not be whole. Source of the formula: PyTorch's
// documentation of torch.quantile; q * (n - 1) is rounded in the operand's dtype, as in eager.
// Gradients go through the sort to the elements beside the place.
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

bool ignores_nan(const Call& c) { return c.op().schema.name == "aten::nanquantile"; }
bool is_number(const Call& c) { return !std::holds_alternative<ir::Value*>(c.arg("q")); }

/// Of how many q there is a result; none for a number or a tensor without dimensions.
Sizes asked_sizes(const Call& c) { return is_number(c) ? Sizes() : c.type("q").sizes; }

void check_q(const Call& c) {
  if (is_number(c)) {
    const double q = c.floating("q");
    if (!(q >= 0 && q <= 1)) c.fail(fmt::format("q {} is not in [0, 1]", q));
    return;
  }
  if (c.type("q").rank() > 1) c.fail(c.describe("q") + " must have at most 1 dimension");
  if (c.type("q").dtype != c.type("self").dtype)
    c.fail(fmt::format("{} and {} must have the same dtype", c.describe("q"), c.describe("self")));
}

Types quantile_types(const Call& c) {
  const ir::Type& self = c.type("self");
  if (self.dtype != DType::f32 && self.dtype != DType::f64)
    c.fail(c.describe("self") + " must be of f32 or f64");
  if (self.numel() == Expr(0)) c.fail(c.describe("self") + " has no elements");
  const Expr row = c.has("dim") && self.rank() > 0
                       ? self.sizes[static_cast<size_t>(c.dim("dim", self.rank()))]
                       : self.numel();
  // Places count in the dtype: f32 has all integers up to there. Eager refuses longer rows, too.
  if (row.range().lo > (1 << 24))
    c.fail(fmt::format("rows of {} elements: at most 16777216", sym::to_string(row)));
  check_q(c);
  const std::string how = c.string("interpolation");
  if (how != "linear" && how != "lower" && how != "higher" && how != "midpoint" && how != "nearest")
    c.fail(fmt::format("interpolation \"{}\": linear, lower, higher, midpoint or nearest", how));
  Sizes sizes = asked_sizes(c);
  for (int64_t i = 0; i < self.rank(); ++i) {
    const bool is_row = !c.has("dim") || i == c.dim("dim", self.rank());
    if (is_row && c.boolean("keepdim")) sizes.emplace_back(1);
    if (!is_row) sizes.push_back(self.sizes[static_cast<size_t>(i)]);
  }
  return {ir::Type::tensor(self.dtype, sizes)};
}

/// The rows, as the last dimension.
Tensor rows_of(Builder& b, const Call& c) {
  const Tensor x{b, c.value("self")};
  if (!c.has("dim") || x.rank() == 0) return reshape(x, {sym::product(x.sizes())});
  std::vector<int64_t> order;
  const int64_t dim = c.dim("dim", x.rank());
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != dim) order.push_back(i);
  order.push_back(dim);
  return permute(x, order);
}

/// q of the steps from the first element to the last one of each row, a column for each q. A NaN
/// is the last element, and the result where it counts; a row of nothing else has it, too.
Tensor places_of(Builder& b, const Call& c, Tensor rows) {
  const int64_t last = rows.rank() - 1;
  const Tensor numbers = sum(to(eq(rows, rows), rows.dtype()), {last}, true);
  const Tensor steps = ignores_nan(c) ? call(b, "aten.clamp_min", {numbers - 1, 0}) : numbers - 1;
  Tensor places;
  if (is_number(c)) {
    places = steps * c.floating("q");
  } else {
    Tensor q{b, c.value("q")};
    const Tensor in_range = call(b, "aten.logical_and", {compare("ge", q, 0), compare("le", q, 1)});
    const Tensor checked = call(b, "tandem.assert_true",
                                {call(b, "aten.all", {in_range}), "quantile: q is not in [0, 1]"});
    q = where(checked, q, 0.0);
    places = steps * reshape(q, {sym::product(q.sizes())});
  }
  if (ignores_nan(c)) return places;
  const Tensor length = call(b, "aten.scalar_tensor", {rows.size(last), rows.dtype()});
  return where(eq(numbers, length), places, length - 1);
}

Tensor at(Tensor sorted, Tensor places) {
  return call(sorted.builder(), "aten.gather", {sorted, sorted.rank() - 1, to(places, DType::i64)});
}

Tensor between(Tensor sorted, Tensor places, const std::string& how) {
  Builder& b = sorted.builder();
  if (how == "nearest") return at(sorted, call(b, "aten.round", {places}));
  const Tensor floor = call(b, "aten.floor", {places});
  const Tensor ceil = call(b, "aten.ceil", {places});
  if (how == "lower") return at(sorted, floor);
  if (how == "higher") return at(sorted, ceil);
  if (how == "midpoint")
    return call(b, "aten.lerp.Scalar", {at(sorted, floor), at(sorted, ceil), 0.5});
  return call(b, "aten.lerp.Tensor", {at(sorted, floor), at(sorted, ceil), places - floor});
}

Tensors quantile(Builder& b, const Call& c) {
  const Tensor rows = rows_of(b, c);
  const Tensor sorted = call_many(b, "aten.sort", {rows, -1})[0];
  Tensor found = between(sorted, places_of(b, c, rows), c.string("interpolation"));
  std::vector<int64_t> order{found.rank() - 1};
  for (int64_t i = 0; i + 1 < found.rank(); ++i) order.push_back(i);
  return {reshape(permute(found, order), c.result()->type.sizes)};
}

#define TANDEM_QUANTILE(Name, text, ...)                                                         \
  const OpDef Name {                                                                             \
    .schema = "aten::" text                                                                      \
              ", int? dim=None, bool keepdim=False, *, str interpolation=\"linear\") -> Tensor", \
    .types = quantile_types, .decompose = quantile, .samples = {                                 \
      __VA_ARGS__                                                                                \
    }                                                                                            \
  }
TANDEM_QUANTILE(kQuantileNumber, "quantile.scalar(Tensor self, float q", "f32[3, 5], 0.3",
                "f64[3, 5], 0.5, 0, true", "f32[7], 1.0, interpolation=\"lower\"",
                "f32[4, 9]:special, 0.4, 1", "f64[2, 30], 0.75, -1, interpolation=\"nearest\"",
                "f32[2, 3, 4], 0.1, 1, interpolation=\"higher\"", "f32[], 0.5", "f32[3], 1.5");
TANDEM_QUANTILE(kQuantile, "quantile(Tensor self, Tensor q", "f32[3, 5], f32[3]:unit, 1",
                "f64[3, 5], f64[]:unit", "f32[2, 7, 3], f32[2]:unit, 1, true",
                "f32[6], f32[2]:unit, interpolation=\"midpoint\"", "f32[3], f32[1, 1]:unit",
                "f32[3], f64[1]:unit", "f32[0], f32[1]:unit");
TANDEM_QUANTILE(kNanquantileNumber, "nanquantile.scalar(Tensor self, float q",
                "f32[4, 9]:special, 0.4, 1", "f64[3, 5]:special, 0.5, 0, true");
TANDEM_QUANTILE(kNanquantile, "nanquantile(Tensor self, Tensor q",
                "f32[4, 9]:special, f32[3]:unit, 1", "f64[5]:special, f64[2]:unit");
#undef TANDEM_QUANTILE

const OpDef* const kOps[] = {&kQuantileNumber, &kQuantile, &kNanquantileNumber, &kNanquantile};

}  // namespace

Family quantile_family() { return kOps; }

}  // namespace tandem::ops
