// Complex numbers: how they are made of real ones and taken apart. No loop and no gradient knows
// them: passes/complex_parts.cc writes each as two real tensors, by the rules that stand here and
// at the ops that real tensors have, too. Real parts, conjugates and angles of real tensors are in
// parts.cc.
#include <fmt/format.h>

#include "base/diagnostic.h"
#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops {
namespace {

void need_complex(const Call& c) {
  if (!is_complex(c.type("self").dtype)) c.fail("needs complex numbers, not " + c.describe("self"));
}

DType whole_type(const Call& c, DType part) {
  if (part != DType::f32 && part != DType::f64)
    c.fail(fmt::format("complex numbers have parts of f32 or f64, not of {}", name_of(part)));
  return complex_type(part);
}

// --- views ---

Types imag_types(const Call& c) {
  need_complex(c);
  return {ir::Type::tensor(part_type(c.type("self").dtype), c.type("self").sizes)};
}
Types as_real_types(const Call& c) {
  Types types = imag_types(c);
  types[0].sizes.emplace_back(2);
  return types;
}
Types as_complex_types(const Call& c) {
  ir::Sizes sizes = c.type("self").sizes;
  if (sizes.empty() || sizes.back() != sym::Expr(2))
    c.fail(c.describe("self") + " must have two parts along its last dimension");
  sizes.pop_back();
  return {ir::Type::tensor(whole_type(c, c.type("self").dtype), sizes)};
}

const OpDef kImag{
    .schema = "aten::imag(Tensor(a) self) -> Tensor(a)",
    .types = imag_types,
    .scatter =
        [](Builder& b, const Call&, Tensor base, Tensor value) {
          return call(b, "aten.complex", {call(b, "aten.real", {base}), value});
        },
    .complex = {[](const ComplexCall& c) -> ComplexResults { return {{c.given("self").im, {}}}; }}};
const OpDef kViewAsReal{
    .schema = "aten::view_as_real(Tensor(a) self) -> Tensor(a)",
    .types = as_real_types,
    .scatter = [](Builder& b, const Call&, Tensor,
                  Tensor value) { return call(b, "aten.view_as_complex", {value}); },
    .complex = {
        [](const ComplexCall& c) -> ComplexResults { return {{stacked(c.given("self")), {}}}; }}};
const OpDef kViewAsComplex{
    .schema = "aten::view_as_complex(Tensor(a) self) -> Tensor(a)",
    .types = as_complex_types,
    .scatter = [](Builder& b, const Call&, Tensor,
                  Tensor value) { return call(b, "aten.view_as_real", {value}); },
    .complex = {[](const ComplexCall& c) -> ComplexResults {
      const Tensor x = c.given("self").re;
      return {{select(x, -1, 0), select(x, -1, 1)}};
    }}};
/// A view that negates imaginary parts where it is read.
const OpDef kConjView{.schema = "aten::_conj(Tensor(a) self) -> Tensor(a)",
                      .types = [](const Call& c) -> Types {
                        need_complex(c);
                        return unary_same(c);
                      },
                      .scatter = [](Builder& b, const Call&, Tensor,
                                    Tensor value) { return call(b, "aten._conj", {value}); },
                      .complex = {complex_conjugate}};

// --- made of real tensors ---

Types pair_types(const Call& c, std::string_view first, std::string_view second) {
  if (c.type(first).dtype != c.type(second).dtype)
    c.fail(
        fmt::format("{} and {} must have the same dtype", c.describe(first), c.describe(second)));
  return {ir::Type::tensor(whole_type(c, c.type(first).dtype), broadcast_of(c, {first, second}))};
}

Tensor given(const ComplexCall& c, std::string_view param) {
  return expand(c.given(param).re, c.whole.result()->type.sizes);
}

const OpDef kComplex{.schema = "aten::complex(Tensor real, Tensor imag) -> Tensor",
                     .types = [](const Call& c) { return pair_types(c, "real", "imag"); },
                     .complex = {[](const ComplexCall& c) -> ComplexResults {
                       return {{given(c, "real"), given(c, "imag")}};
                     }}};
const OpDef kPolar{.schema = "aten::polar(Tensor abs, Tensor angle) -> Tensor",
                   .types = [](const Call& c) { return pair_types(c, "abs", "angle"); },
                   .complex = {[](const ComplexCall& c) -> ComplexResults {
                     const Tensor magnitude = given(c, "abs");
                     const Tensor angle = given(c, "angle");
                     return {{magnitude * cos(angle), magnitude * sin(angle)}};
                   }}};

const OpDef* const kOps[] = {&kImag, &kViewAsReal, &kViewAsComplex, &kConjView, &kComplex, &kPolar};

}  // namespace

Family complex_numbers_family() { return kOps; }

}  // namespace tandem::ops
