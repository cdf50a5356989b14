// Ops that are another op under their own name: its type rule and itself, for given arguments.
#pragma once

#include "ops/families.h"

namespace tandem::ops {

inline std::vector<ir::Type> types_of(std::string_view op, const std::vector<ir::Arg>& args) {
  const ir::Op& other = *op_table().find(op);
  return other.types(Call(other, args));
}

/// The name of an op as a template argument.
struct OpName {
  template <size_t n>
  constexpr OpName(const char (&literal)[n]) {  // NOLINT(google-explicit-constructor)
    for (size_t i = 0; i < n; ++i) text[i] = literal[i];
  }
  char text[48] = {};
};
template <OpName other>
std::vector<ir::Type> other_types(const Call& c) {
  return types_of(other.text, c.args());
}
template <OpName other>
Tensors other_call(Builder& b, const Call& c) {
  size_t count = op_table().find(other.text)->schema.params.size();
  std::vector<Operand> args(c.args().begin(), c.args().begin() + static_cast<int64_t>(count));
  return call_many(b, other.text, args);
}

}  // namespace tandem::ops
