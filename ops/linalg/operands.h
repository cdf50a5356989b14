// What products of vectors, matrices and more dimensions share: operands, and sizes that must
// agree.
#pragma once

#include <fmt/format.h>

#include "ops/families.h"
#include "ops/types.h"

namespace tandem::ops::linalg {

inline Tensor tensor(Builder& b, const Call& c, std::string_view name) {
  return {b, c.value(name)};
}
inline Tensor self_of(Builder& b, const Call& c) { return tensor(b, c, "self"); }
inline Tensor widened(Tensor x) { return to(x, compute_type(x.dtype())); }
inline bool equal_sizes(Expr a, Expr b) { return a == b || sym::known_eq(a, b); }

inline void need_equal(const Call& c, Expr a, Expr b) {
  if (!equal_sizes(a, b))
    c.fail(fmt::format("sizes {} and {} differ", sym::to_string(a), sym::to_string(b)));
}
inline void need_factor(const Call& c, std::string_view name, int64_t rank) {
  need_rank(c, name, rank, rank);
  need_number(c, name);
}

}  // namespace tandem::ops::linalg
