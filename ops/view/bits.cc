// The same bytes as numbers of another type. A view in eager, so a write through it writes the bits
// of its base. NaNs of 16-bit floats may lose their payload: they are widened where they are read.
#include "base/diagnostic.h"
#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

Types bits_types(const Call& c) {
  const ir::Type& self = c.type("self");
  const DType dtype = c.dtype("dtype", self.dtype);
  if (is_complex(dtype) || is_complex(self.dtype))
    throw Unsupported("[aten::view.dtype] bits of complex numbers are not supported");
  if (size_of(dtype) != size_of(self.dtype))
    c.fail(std::string("seen as ") + std::string(name_of(dtype)) + ": " + c.describe("self") +
           " has elements of another size; types of one size are accepted");
  if (dtype != self.dtype && (dtype == DType::boolean || self.dtype == DType::boolean))
    c.fail("a bool is 0 or 1, and no other bits: " + c.describe("self"));
  return {ir::Type::tensor(dtype, self.sizes)};
}

const OpDef kViewDtype{
    .schema = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
    .types = bits_types,
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      return {call(b, "tandem.bits_as", {Tensor{b, c.value("self")}, c.arg("dtype")})};
    },
    .no_grad = "bits have no gradient",
    .scatter = [](Builder& b, const Call&, Tensor base, Tensor value) -> Tensor {
      return call(b, "aten.view.dtype", {value, base.dtype()});
    },
    .samples = {"f32[3, 4], i32", "i32[5], f32", "f64[3], i64", "i64[2, 2], f64", "f32[0, 3], i32",
                "u8[4], i8", "f32[4, 3]{1, 4}, i32", "f32[], i32", "f32[3], f32"},
    .sample_dtypes = DTypes::f32_only};
const OpDef kBitsAs{.schema = "tandem::bits_as(Tensor self, ScalarType dtype) -> Tensor",
                    .types = bits_types,
                    .lower = [](Lowering& lowering, const Call& c) -> Definition {
                      return map_definition(c, [&lowering, c](size_t, const Index& index) {
                        const DType from = c.type("self").dtype;
                        const DType to = c.result()->type.dtype;
                        Element x = operand(lowering, c, "self", index, compute_type(from));
                        return x.cast(from).bitcast(to).cast(compute_type(to)).value();
                      });
                    },
                    .no_grad = "bits have no gradient",
                    .samples = {"f32[3, 4], i32", "i32[5], f32", "i64[2, 2], f64"},
                    .sample_dtypes = DTypes::f32_only,
                    .pointwise = true};

const OpDef* const kOps[] = {&kViewDtype, &kBitsAs};

}  // namespace

Family bits_family() { return kOps; }

}  // namespace tandem::ops
