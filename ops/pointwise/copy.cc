// Copies, casts and aliases: every element stays where it is.
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

// --- copies
// ---------------------------------------------------------------------------------------

constexpr auto kSameIndex = [](const Call&, size_t, const Index& index) { return index; };
Gradients same_vjp(Builder&, const Call& c, Grads g) {
  return {{"self", to(g[0], c.type("self").dtype)}};
}

const OpDef kClone{
    .schema = "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    .types = unary_same,
    .lower = reindex<kSameIndex>,
    .vjp = same_vjp,
    .samples = {"$[3, 4]", "$[]", "$[4, 3]{1, 4}"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .out = true,
    .complex = {complex_each}};
const OpDef kContiguous{
    .schema =
        "aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> "
        "Tensor(a)",
    .types = unary_same,
    .lower = reindex<kSameIndex>,
    .vjp = same_vjp,
    .scatter = [](Builder&, const Call&, Tensor, Tensor value) { return value; },
    .samples = {"$[3, 4]", "$[4, 3]{1, 4}"},
    .pointwise = true,
    .complex = {complex_each}};
const OpDef kAlias{.schema = "aten::alias(Tensor(a) self) -> Tensor(a)",
                   .types = unary_same,
                   .lower = reindex<kSameIndex>,
                   .vjp = same_vjp,
                   .scatter = [](Builder&, const Call&, Tensor, Tensor value) { return value; },
                   .samples = {"$[3, 4]"},
                   .pointwise = true,
                   .complex = {complex_each}};
const OpDef kDetach{.schema = "aten::detach(Tensor(a) self) -> Tensor(a)",
                    .types = unary_same,
                    .lower = reindex<kSameIndex>,
                    .no_grad = "detach stops the gradient",
                    .scatter = [](Builder&, const Call&, Tensor, Tensor value) { return value; },
                    .samples = {"$[3, 4]"},
                    .pointwise = true,
                    .inplace = true,
                    .complex = {complex_each}};
/// Of real numbers imaginary parts are 0, and real numbers have none. What is not 0 is true.
ComplexResults converted(const ComplexCall& c) {
  const ComplexParts z = c.given("self");
  const DType dtype = c.whole.result()->type.dtype;
  if (dtype == DType::boolean)
    return {{call(c.builder, "aten.logical_or", {to(z.re, dtype), to(z.im, dtype)}), {}}};
  if (!is_complex(dtype)) return {{to(z.re, dtype), {}}};
  const Tensor re = to(z.re, part_type(dtype));
  return {{re, z.im ? to(z.im, part_type(dtype)) : zeros_like(re)}};
}

const OpDef kToCopy{
    .schema =
        "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
        "device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? "
        "memory_format=None) -> Tensor",
    .types = [](const Call& c) -> Types {
      return {ir::Type::tensor(c.dtype("dtype", c.type("self").dtype), c.type("self").sizes)};
    },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            DType target = c.result()->type.dtype;
            loop::Val x = lowering.load(c.value("self"), index);
            return lowering.scalars().cast(x, compute_type(target));
          });
        },
    .vjp = same_vjp,
    .casts = true,
    .samples = {"$[3, 4], dtype=f32", "$[3, 4], dtype=f64", "$[5], dtype=i64", "$[5], dtype=bf16",
                "$[5], dtype=bool", "$[37], dtype=f8e4m3fn", "$[37], dtype=f8e5m2",
                "f32[99]:special, dtype=f8e4m3fn", "f32[99]:special, dtype=f8e5m2",
                "f8e4m3fn[99]:special, dtype=$", "f8e5m2[99]:special, dtype=$"},
    .sample_dtypes = DTypes::all,
    .pointwise = true,
    .complex = {converted}};
const OpDef kCopy{
    .schema = "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
    .types =
        [](const Call& c) {
          const ir::Sizes& sizes = c.type("self").sizes;
          if (!same_sizes(broadcast(c, sizes, c.type("src").sizes), sizes))
            c.fail(c.describe("src") + " does not fit into " + c.describe("self"));
          return unary_same(c);
        },
    .lower =
        [](Lowering& lowering, const Call& c) {
          return map_definition(c, [&lowering, c](size_t, const Index& index) {
            return operand(lowering, c, "src", index, compute_type(c.result()->type.dtype)).value();
          });
        },
    .vjp = [](Builder&, const Call& c, Grads g) -> Gradients {
      return {{"src", sum_to(g[0], c.type("src"))}};
    },
    .samples = {"$[3, 4], $[4]", "$[3], f32[3]"},
    .sample_dtypes = DTypes::all,
    .inplace = true,
    .complex = {complex_each}};

const OpDef* const kOps[] = {
    &kClone, &kContiguous, &kAlias, &kDetach, &kToCopy, &kCopy,
};

}  // namespace

Family copy_family() { return kOps; }

}  // namespace tandem::ops
