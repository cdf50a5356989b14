// Element formulas: scalar expressions that read as arithmetic, and the pointwise lowerings built
// from them.
#pragma once

#include <array>

#include "base/called.h"
#include "ops/opdef.h"
#include "ops/types.h"

namespace tandem::ops {

/// A scalar of the loop IR with its pool. Numbers in formulas take the element's dtype.
class Element {
 public:
  Element(loop::ScalarPool& pool, loop::Val value) : pool_(&pool), value_(value) {}
  loop::ScalarPool& pool() const { return *pool_; }
  loop::Val value() const { return value_; }
  DType dtype() const { return value_->dtype; }
  Element number(double x) const { return {*pool_, pool_->constant(value_->dtype, x)}; }
  Element apply(loop::Opcode opcode) const { return {*pool_, pool_->unary(opcode, value_)}; }
  Element apply(loop::Opcode opcode, Element other) const {
    return {*pool_, pool_->binary(opcode, value_, other.value_)};
  }
  Element cast(DType dtype) const { return {*pool_, pool_->cast(value_, dtype)}; }
  Element bitcast(DType dtype) const { return {*pool_, pool_->bitcast(value_, dtype)}; }
  Element integer(int64_t x) const { return {*pool_, pool_->integer(value_->dtype, x)}; }

 private:
  loop::ScalarPool* pool_;
  loop::Val value_;
};

inline Element operator+(Element a, Element b) { return a.apply(loop::Opcode::add, b); }
inline Element operator-(Element a, Element b) { return a.apply(loop::Opcode::sub, b); }
inline Element operator*(Element a, Element b) { return a.apply(loop::Opcode::mul, b); }
inline Element operator/(Element a, Element b) { return a.apply(loop::Opcode::div, b); }
inline Element operator+(Element a, double b) { return a + a.number(b); }
inline Element operator-(Element a, double b) { return a - a.number(b); }
inline Element operator*(Element a, double b) { return a * a.number(b); }
inline Element operator/(Element a, double b) { return a / a.number(b); }
inline Element operator+(double a, Element b) { return b.number(a) + b; }
inline Element operator-(double a, Element b) { return b.number(a) - b; }
inline Element operator*(double a, Element b) { return b.number(a) * b; }
inline Element operator/(double a, Element b) { return b.number(a) / b; }
inline Element operator-(Element a) { return a.apply(loop::Opcode::neg); }
inline Element operator<(Element a, Element b) { return a.apply(loop::Opcode::lt, b); }
inline Element operator<=(Element a, Element b) { return a.apply(loop::Opcode::le, b); }
inline Element operator>(Element a, Element b) { return a.apply(loop::Opcode::gt, b); }
inline Element operator>=(Element a, Element b) { return a.apply(loop::Opcode::ge, b); }
inline Element operator<(Element a, double b) { return a < a.number(b); }
inline Element operator<=(Element a, double b) { return a <= a.number(b); }
inline Element operator>(Element a, double b) { return a > a.number(b); }
inline Element operator>=(Element a, double b) { return a >= a.number(b); }
inline Element equal(Element a, Element b) { return a.apply(loop::Opcode::eq, b); }
inline Element not_equal(Element a, Element b) { return a.apply(loop::Opcode::ne, b); }
inline Element both(Element a, Element b) { return a.apply(loop::Opcode::bit_and, b); }
inline Element either(Element a, Element b) { return a.apply(loop::Opcode::bit_or, b); }
inline Element choose(Element cond, Element a, Element b) {
  return {cond.pool(), cond.pool().select(cond.value(), a.value(), b.value())};
}
inline Element min(Element a, Element b) { return a.apply(loop::Opcode::min, b); }
inline Element max(Element a, Element b) { return a.apply(loop::Opcode::max, b); }
inline Element fma(Element a, Element b, Element c) {
  return {a.pool(), a.pool().fma(a.value(), b.value(), c.value())};
}
inline Element exp(Element x) { return x.apply(loop::Opcode::exp); }
inline Element log(Element x) { return x.apply(loop::Opcode::log); }
inline Element log1p(Element x) { return x.apply(loop::Opcode::log1p); }
inline Element expm1(Element x) { return x.apply(loop::Opcode::expm1); }
inline Element sqrt(Element x) { return x.apply(loop::Opcode::sqrt); }
inline Element tanh(Element x) { return x.apply(loop::Opcode::tanh); }
inline Element erf(Element x) { return x.apply(loop::Opcode::erf); }
inline Element abs(Element x) { return x.apply(loop::Opcode::abs); }
/// 1 / (1 + exp(-x)): exact limits 0 and 1, NaN stays.
inline Element sigmoid(Element x) { return 1.0 / (1.0 + exp(-x)); }

/// Element of operand `name` at the index of a result that it broadcasts to, converted to `dtype`.
Element operand(Lowering& lowering, const ir::Call& call, std::string_view name, const Index& index,
                DType dtype);
/// Index of a broadcast operand: trailing dimensions aligned, 0 where its size is 1.
Index broadcast_index(const ir::Sizes& sizes, const Index& index);
/// Index into `from` of the element whose row-major number in `to` is at `index`. Equal leading and
/// trailing parts map dimension by dimension, so most indices stay free of divisions.
Index reshape_index(const ir::Sizes& from, const ir::Sizes& to, const Index& index);
/// A map definition from a function of (result number, index); results are rounded to their dtype.
Definition map_definition(const ir::Call& call, std::function<loop::Val(size_t, const Index&)> map);

/// Lowering that reads self at Map(call, number of the result, index of the result).
template <auto Map>
Definition reindex(Lowering& lowering, const ir::Call& call) {
  return map_definition(call, [&lowering, call](size_t result, const Index& index) {
    return lowering.load(call.value("self"), called<Map>(call, result, index));
  });
}

/// Lowering of F(self): computes in the result's compute type (a comparison: in self's).
template <auto F>
Definition unary(Lowering& lowering, const ir::Call& call) {
  DType result = call.result()->type.dtype;
  std::string_view self = call.op().schema.params[0].name;
  DType source = call.type(self).dtype;
  DType compute = compute_type(is_float(result) ? result : source);
  return map_definition(call, [&lowering, call, self, compute](size_t, const Index& index) {
    return called<F>(operand(lowering, call, self, index, compute)).value();
  });
}

/// A number that an op is given (a Scalar, a flag, a size) in `dtype`; null where it is a value of
/// the graph.
loop::Val number_of(loop::ScalarPool& pool, const ir::Arg& arg, DType dtype);

/// `value` was read at the place `position`. What is read may be alike at every place (a dimension
/// of one element, a constant); then the check of the place, which must not be lost, goes along.
loop::Val with_check(loop::ScalarPool& pool, loop::Val value, loop::Val position);

/// Lowering of F(self, other), computed in the operands' common type (or the result's, when it is a
/// float).
template <auto F>
Definition binary_map(Lowering& lowering, const ir::Call& call) {
  DType result = call.result()->type.dtype;
  DType common = is_float(result) ? result : common_dtype(call, {"self", "other"});
  return map_definition(
      call, [&lowering, call, compute = compute_type(common)](size_t, const Index& index) {
        Element a = operand(lowering, call, "self", index, compute);
        Element b = operand(lowering, call, "other", index, compute);
        return called<F>(a, b).value();
      });
}

}  // namespace tandem::ops
