// What a call over complex numbers is over their real and imaginary parts.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ir/op.h"
#include "ops/tensor.h"

namespace tandem::ops {

/// `re + i im`; without `im`, real numbers.
struct ComplexParts {
  Tensor re, im;
};

struct ComplexForm;

/// A call some of whose operands or results are complex.
class ComplexCall {
 public:
  using Find = std::function<ComplexParts(const ir::Value*)>;

  /// `find` gives the parts of a value that the call names.
  ComplexCall(ir::Builder& at, const ir::Call& call, const ComplexForm& said, Find find)
      : builder(at), whole(call), form(said), find_(std::move(find)) {}

  ComplexParts given(const ir::Value* value) const { return find_(value); }
  ComplexParts given(std::string_view param) const { return given(whole.value(param)); }

  ir::Builder& builder;
  const ir::Call& whole;
  const ComplexForm& form;

 private:
  Find find_;
};

using ComplexResults = std::vector<ComplexParts>;
/// Of each result its parts, a complex one with both.
using ComplexRule = ComplexResults (*)(const ComplexCall&);
/// The call in other ops over complex numbers.
using ComplexComposition = Tensors (*)(ir::Builder&, const ir::Call&);

/// What an op says of complex numbers: a rule, or what it is made of.
struct ComplexForm {
  ComplexRule rule = nullptr;
  /// For complex_each, names of parameters, with spaces between them: tensors that say where, and
  /// are no numbers to compute with.
  std::string_view places{};
  /// Numbers that a result is made of: their imaginary part is 0. Other numbers are factors.
  std::string_view terms{};
  ComplexComposition composition = nullptr;

  bool is_said() const { return rule != nullptr || composition != nullptr; }
};

/// The same call of each part, as of what is linear over the reals or moves elements. Real tensors
/// have zeros as imaginary parts.
ComplexResults complex_each(const ComplexCall& c);
/// The call of real parts, and imaginary ones of 0.
ComplexResults complex_real(const ComplexCall& c);
/// The second operand is divided by; it may be a number.
ComplexResults complex_quotient(const ComplexCall& c);
/// |z| and the angle of z, of `self`. At 0 their gradients are 0, as in eager.
ComplexResults complex_magnitude(const ComplexCall& c);
ComplexResults complex_angle(const ComplexCall& c);
/// z / |z| of `self`, and 0 of 0.
ComplexResults complex_sign(const ComplexCall& c);
/// 1 / z
ComplexResults complex_reciprocal(const ComplexCall& c);
/// Of `self`; of what is real nothing changes.
ComplexResults complex_conjugate(const ComplexCall& c);
/// (a + i b)(c + i d) = (a c - b d) + i (a d + b c), of the first two operands, or with a number.
ComplexResults complex_product(const ComplexCall& c);
/// True where the call is of either part, or of both.
ComplexResults complex_either(const ComplexCall& c);
ComplexResults complex_both(const ComplexCall& c);
/// The same of `self` != 0, and of `other` where there is one.
Tensors truth_of_complex(ir::Builder& b, const ir::Call& c);

/// One real tensor, with both parts along a last dimension.
Tensor stacked(const ComplexParts& z);

/// Of whole numbers: what more than one formula wants.
ComplexParts product(const ComplexParts& x, const ComplexParts& y);
ComplexParts quotient(const ComplexParts& z, const ComplexParts& w);

}  // namespace tandem::ops
