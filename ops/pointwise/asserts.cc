// Asserts on data. The check is an op with a result, so that what must not go on without it can
// read it; where nothing does, it is computed all the same.
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

const OpDef* const kOps[] = {&kAssertTrue};

}  // namespace

bool is_asserted(const ir::Node& node) { return &def_of(node) == &kAssertTrue && !node.backward; }

Family asserts_family() { return kOps; }

}  // namespace tandem::ops
