// Asserts on data. The check is an op with a result, so that what must not go on without it can
// read it; where nothing does, an assert of the program is computed all the same.
#include "ops/asserts.h"

#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

/// True, or an error of the call. 0 is false; NaN is true, as in eager.
const OpDef kAssertTrue{
    .schema = "tandem::assert_true(Tensor self, str message) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (!sym::known_eq(c.type("self").numel(), 1))
        c.fail(c.describe("self") + " is asserted: it must be one value");
      return {ir::Type::tensor(DType::boolean, {})};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(c, [&lowering, c](size_t, const Index&) {
        const Index only(c.type("self").sizes.size(), sym::Expr(0));
        loop::ScalarPool& pool = lowering.scalars();
        const Element x{pool, lowering.load(c.value("self"), only)};
        const Element holds = not_equal(x, x.number(0));
        const int32_t error = lowering.error(
            fmt::format("[aten::_assert_async] assertion failed: {}", c.string("message")));
        return lowering.check(holds.value(), holds.value(), error);
      });
    },
    .no_grad = "a truth is not differentiable",
    .samples = {"f32[]:positive, \"must hold\"", "i64[1, 1]:positive, \"must hold\""},
    .sample_dtypes = DTypes::f32_only,
    .can_fail = true};

/// self, whose elements lie from low to high, or an error of the call; NaN is one.
const OpDef kCheckedRange{
    .schema = "tandem::checked_range(Tensor self, float low, float high, str message) -> Tensor",
    .types = [](const Call& c) -> Types {
      if (!is_float(c.type("self").dtype)) c.fail(c.describe("self") + " must be a float");
      return {c.type("self")};
    },
    .lower = [](Lowering& lowering, const Call& c) -> Definition {
      return map_definition(c, [&lowering, c](size_t, const Index& index) {
        const Element x = operand(lowering, c, "self", index, compute_type(c.type("self").dtype));
        const Element holds = both(x >= c.floating("low"), x <= c.floating("high"));
        return lowering.check(holds.value(), x.value(), lowering.error(c.string("message")));
      });
    },
    .no_grad = "what it is asked for has no gradient",
    .samples = {"f32[3, 4]:unit, 0.0, 1.0, \"must be a probability\"",
                "f64[3]:positive, 0.0, 1e9, \"must be positive\""},
    .sample_dtypes = DTypes::f32_only,
    .pointwise = true,
    .can_fail = true};

const OpDef* const kOps[] = {&kAssertTrue, &kCheckedRange};

}  // namespace

bool is_asserted(const ir::Node& node) { return &def_of(node) == &kAssertTrue && !node.backward; }

Tensor checked_range(Tensor x, double low, double high, const std::string& message) {
  return call(x.builder(), "tandem.checked_range", {x, low, high, ir::Arg(message)});
}

Family asserts_family() { return kOps; }

}  // namespace tandem::ops
