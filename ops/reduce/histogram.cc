// Counts of elements in bins of equal width. The bin of x in [low, high] is the whole part of
//   (x - low) bins / (high - low)
// computed in x's dtype as eager does; high itself is in the last bin, what lies outside of the
// range, NaN too, in none. Counts are whole until the end: eager's stop at 2^24 in f32.
#include <fmt/format.h>

#include <cmath>

#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

/// The bin of each element, `bins` where it has none; fails where the range is not finite.
Definition bins_lower(Lowering& lowering, const Call& c) {
  return map_definition(c, [&lowering, c](size_t, const Index& index) {
    loop::ScalarPool& pool = lowering.scalars();
    Element x{pool, lowering.load(c.value("self"), index)};
    Element low{pool, lowering.load(c.value("low"), {})};
    Element high{pool, lowering.load(c.value("high"), {})};
    Element width = high - low;
    Element finite = equal(width - width, width.number(0));
    width = {pool, lowering.check(finite.value(), width.value(),
                                  lowering.error("[aten::histc] the range is not finite"))};
    const int64_t bins = c.constant("bins");
    Element inside = both(x >= low, x <= high);
    Element place = (x - low) * static_cast<double>(bins) / width;
    Element bin = choose(inside, place, place.number(0)).cast(DType::i64);
    bin = min(bin, bin.integer(bins - 1));
    return choose(inside, bin, bin.integer(bins)).value();
  });
}
const OpDef kBins{
    .schema = "tandem::bins(Tensor self, Tensor low, Tensor high, int bins) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "self");
      need_same_dtype(c, {"self", "low", "high"});
      need_rank(c, "low", 0, 0);
      need_rank(c, "high", 0, 0);
      const int64_t bins = c.constant("bins");
      if (bins < 1 || bins > INT32_MAX) c.fail("bins must be positive and below 2**31");
      return {ir::Type::tensor(DType::i64, c.type("self").sizes)};
    },
    .lower = bins_lower,
    .no_grad = "a position is not differentiable",
    .samples = {"f32[40], f32[]:unit, f32[], 7"},
    .can_fail = true};

struct Range {
  Tensor low, high;
};

/// min and max; where they are equal those of the elements; where these are equal too, one less and
/// one more.
Range range_of(Builder& b, const Call& c, Tensor x) {
  auto number = [&](std::string_view name) { return full(b, {}, c.floating(name), x.dtype()); };
  Range range{number("min"), number("max")};
  if (c.floating("min") != c.floating("max")) return range;
  if (x.type().numel() != Expr(0)) range = {call(b, "aten.amin", {x}), call(b, "aten.amax", {x})};
  Tensor same = eq(range.low, range.high);
  return {where(same, range.low - 1.0, range.low), where(same, range.high + 1.0, range.high)};
}

/// Whether the range is that of the elements depends on the numbers, so they must be known: a door
/// that has them only at a call compiles for their values and guards these.
void check_range(const Call& c) {
  for (std::string_view name : {"min", "max"}) {
    if (std::holds_alternative<ir::Value*>(c.arg(name)))
      throw Unsupported(
          fmt::format("[aten::histc] {} that is not known: not implemented (ops)", name));
    if (!std::isfinite(c.floating(name))) c.fail(fmt::format("{} must be finite", name));
  }
  if (c.floating("min") > c.floating("max")) c.fail("max must not be less than min");
}
const OpDef kHistc{
    .schema = "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor",
    .types = [](const Call& c) -> Types {
      need_float(c, "self");
      if (c.constant("bins") < 1) c.fail("bins must be positive");
      if (c.constant("bins") > INT32_MAX) c.fail("bins must be below 2**31");
      check_range(c);
      return {ir::Type::tensor(c.type("self").dtype, {Expr(c.constant("bins"))})};
    },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor self{b, c.value("self")};
      Tensor x = reshape(self, {self.type().numel()});
      const int64_t bins = c.constant("bins");
      Range range = range_of(b, c, x);
      Tensor places = call(b, "tandem.bins", {x, range.low, range.high, bins});
      Tensor counts = full(b, {Expr(bins + 1)}, 0, DType::i64);
      Tensor ones = full(b, x.sizes(), 1, DType::i64);
      counts = call(b, "aten.scatter_add", {counts, 0, places, ones});
      return {to(slice(counts, 0, 0, bins), x.dtype())};
    },
    .no_grad = "eager has no gradient of it either",
    .samples = {"f32[300]", "f64[300], 7", "f32[5, 70], 10, -1, 1", "f32[40]:special, 6, -1, 1",
                "f32[0], 5", "f32[0], 4, 1, 2", "f32[], 3", "f32[3], 1", "f32[40]:special, 6",
                "f64[9, 9]{1, 9}, 12, -0.5, 2.25", "f32[7], 0", "f32[7], 3, 2, 1", "i64[7], 3",
                "f32[7], 3, 1.5, 1.5"},
    .out = true,
    .can_fail = true};

const OpDef* const kOps[] = {&kBins, &kHistc};

}  // namespace

Family histogram_family() { return kOps; }

}  // namespace tandem::ops
