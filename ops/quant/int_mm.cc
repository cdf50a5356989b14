// Products of 8-bit integers with sums of 32 bits:
//   C[m, n] = sum_k i32(A[m, k]) i32(B[k, n])      A is i8 or u8, B is i8; sums wrap
#include <fmt/format.h>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Types product_types(const Call& c) {
  for (std::string_view param : {"self", "mat2"}) need_rank(c, param, 2, 2);
  const ir::Type& a = c.type("self");
  const ir::Type& b = c.type("mat2");
  if (a.dtype != DType::i8 && a.dtype != DType::u8)
    c.fail(c.describe("self") + " must have dtype i8 or u8");
  if (b.dtype != DType::i8) c.fail(c.describe("mat2") + " must have dtype i8");
  if (a.sizes[1] != b.sizes[0] && !sym::known_eq(a.sizes[1], b.sizes[0]))
    c.fail(fmt::format("{} and {}: inner sizes {} and {} differ", c.describe("self"),
                       c.describe("mat2"), sym::to_string(a.sizes[1]), sym::to_string(b.sizes[0])));
  return {ir::Type::tensor(DType::i32, {a.sizes[0], b.sizes[1]})};
}

Definition product(Lowering& lowering, const Call& c) {
  Definition definition;
  definition.kind = Definition::Kind::reduce;
  definition.combiner = loop::Combiner::dot;
  definition.reduce_sizes = {c.type("self").sizes[1]};
  definition.input = [&lowering, c](const Index& out, const Index& r) {
    loop::ScalarPool& pool = lowering.scalars();
    loop::Val x = pool.cast(lowering.load(c.value("self"), {out[0], r[0]}), DType::i32);
    loop::Val y = pool.cast(lowering.load(c.value("mat2"), {r[0], out[1]}), DType::i32);
    return std::vector<loop::Val>{x, y};
  };
  return definition;
}

const OpDef kIntMm{.schema = "aten::_int_mm(Tensor self, Tensor mat2) -> Tensor",
                   .types = product_types,
                   .lower = product,
                   .no_grad = "the operands are integers",
                   .samples = {"i8[3, 4]:bytes, i8[4, 5]:bytes", "u8[3, 4]:bytes, i8[4, 5]:bytes",
                               "i8[0, 4], i8[4, 5]", "i8[3, 0], i8[0, 5]", "i8[4, 0], i8[0, 0]",
                               "i8[4, 3]{1, 4}:bytes, i8[3, 2]{1, 3}:bytes",
                               "u8[65, 130]:bytes, i8[130, 33]:bytes",
                               "i8[17, 65]{1, 17}:bytes, i8[65, 40]{1, 65}:bytes",
                               "i8[1, 1500]:bytes, i8[1500, 9]:bytes", "$[3, 4], $[4, 5]",
                               "i8[3, 4], u8[4, 5]", "i8[3, 4], i8[3, 5]", "i8[4], i8[4, 5]"},
                   .sample_dtypes = DTypes::all,
                   .out = true,
                   .multiplies = ProductKind::matrix};

const OpDef* const kOps[] = {&kIntMm};

}  // namespace

Family int_mm_family() { return kOps; }

}  // namespace tandem::ops
