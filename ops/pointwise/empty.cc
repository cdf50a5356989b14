// Factories by sizes alone: `empty` in its forms and new_*. `empty` and its kin are zeros: what
// eager leaves there is whatever the memory held.
#include <fmt/format.h>

#include <algorithm>

#include "ops/elements.h"
#include "ops/families.h"
#include "ops/pointwise/factory.h"

namespace tandem::ops {
namespace {

Types sized_as(const Call& c, DType otherwise) {
  need_sizes(c, c.ints("size"));
  return {ir::Type::tensor(c.dtype("dtype", otherwise), c.ints("size"))};
}
Types sized(const Call& c) { return sized_as(c, DType::f32); }
Types sized_like_self(const Call& c) { return sized_as(c, c.type("self").dtype); }
Types like(const Call& c) {
  return {ir::Type::tensor(c.dtype("dtype", c.type("self").dtype), c.type("self").sizes)};
}

Tensors filled(Builder& b, const Call& c, const Operand& value) {
  const ir::Type& type = c.result()->type;
  return {call(b, "aten.full", {type.sizes, value, type.dtype})};
}
template <int value>
Tensors filled_with(Builder& b, const Call& c) {
  return filled(b, c, value);
}

const OpDef kEmpty{.schema = "aten::empty.memory_format(SymInt[] size, *, " TANDEM_FACTORY_OPTIONS
                             ", MemoryFormat? memory_format=None) -> Tensor",
                   .types = sized,
                   .decompose = filled_with<0>,
                   .no_grad = kNoOperand,
                   .samples = {"[2, 3]", "[0]", "[]", "[2], dtype=i64", "[2], dtype=bool", "[-1]"}};
const OpDef kEmptyLike{.schema = "aten::empty_like(Tensor self, *, " TANDEM_FACTORY_OPTIONS
                                 ", MemoryFormat? memory_format=None) -> Tensor",
                       .types = like,
                       .decompose = filled_with<0>,
                       .no_grad = kNoOperand,
                       .samples = {"$[2, 3]", "$[0]", "$[]", "$[3, 2]{1, 3}", "$[2], dtype=i32"},
                       .sample_dtypes = DTypes::all};

void need_strides(const Call& c) {
  if (c.ints("size").size() != c.ints("stride").size())
    c.fail(fmt::format("size {} and stride {} differ in length", ir::to_string(c.ints("size")),
                       ir::to_string(c.ints("stride"))));
  for (Expr stride : c.ints("stride"))
    if (stride.range().hi < 0) c.fail(c.describe("stride") + " must not be negative");
}
const OpDef kEmptyStrided{
    .schema = "aten::empty_strided(SymInt[] size, SymInt[] stride, *, " TANDEM_FACTORY_OPTIONS
              ") -> Tensor",
    .types =
        [](const Call& c) {
          need_strides(c);
          return sized(c);
        },
    .decompose = filled_with<0>,
    .no_grad = kNoOperand,
    .samples = {"[2, 3], [3, 1]", "[2, 3], [1, 2], dtype=i64", "[0], [1]", "[2, 3], [1]"}};
const OpDef kEmptyPermuted{
    .schema =
        "aten::empty_permuted(SymInt[] size, int[] physical_layout, *, " TANDEM_FACTORY_OPTIONS
        ") -> Tensor",
    .types =
        [](const Call& c) {
          std::vector<int64_t> layout = c.constants("physical_layout");
          std::sort(layout.begin(), layout.end());
          bool fits = layout.size() == c.ints("size").size();
          for (size_t i = 0; fits && i < layout.size(); ++i)
            fits = layout[i] == static_cast<int64_t>(i);
          if (!fits) c.fail("physical_layout must name every dimension of size once");
          return sized(c);
        },
    .decompose = filled_with<0>,
    .no_grad = kNoOperand,
    .samples = {"[2, 3], [1, 0]", "[2, 3, 4], [0, 2, 1], dtype=f64", "[2, 3], [0]"}};

const Samples kNewSamples = {"$[2], [2, 3]", "$[2], [0]", "$[0], []", "$[2], [3], dtype=f32"};
#define TANDEM_NEW(Name, text, value)                                                          \
  const OpDef Name {                                                                           \
    .schema =                                                                                  \
        "aten::" text "(Tensor self, SymInt[] size, *, " TANDEM_FACTORY_OPTIONS ") -> Tensor", \
    .types = sized_like_self, .decompose = filled_with<value>, .no_grad = kNoOperand,          \
    .samples = kNewSamples, .sample_dtypes = DTypes::all                                       \
  }
TANDEM_NEW(kNewEmpty, "new_empty", 0);
TANDEM_NEW(kNewZeros, "new_zeros", 0);
TANDEM_NEW(kNewOnes, "new_ones", 1);
#undef TANDEM_NEW
const OpDef kNewFull{
    .schema =
        "aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, " TANDEM_FACTORY_OPTIONS
        ") -> Tensor",
    .types = sized_like_self,
    .decompose = [](Builder& b, const Call& c) { return filled(b, c, c.arg("fill_value")); },
    .no_grad = kNoOperand,
    .samples = {"$[2], [2, 3], 2", "$[2], [0], 1", "$[2], [], 1, dtype=f64"},
    .sample_dtypes = DTypes::all};
const OpDef kNewEmptyStrided{
    .schema =
        "aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, "
        "*, " TANDEM_FACTORY_OPTIONS ") -> Tensor",
    .types =
        [](const Call& c) {
          need_strides(c);
          return sized_like_self(c);
        },
    .decompose = filled_with<0>,
    .no_grad = kNoOperand,
    .samples = {"$[2], [2, 3], [3, 1]", "$[2], [2, 3], [1, 2]", "$[2], [2], [1, 2]"}};

const OpDef* const kOps[] = {&kEmpty,    &kEmptyLike, &kEmptyStrided, &kEmptyPermuted,  &kNewEmpty,
                             &kNewZeros, &kNewOnes,   &kNewFull,      &kNewEmptyStrided};

}  // namespace

Family empty_family() { return kOps; }

}  // namespace tandem::ops
