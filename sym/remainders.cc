// Which remainders an expression can have. Problem: a loop cut into tiles needs code for what is
// left only where something is left, and extents of cut loops are minima (of a block's size and of
// what the last block has), which no rule of divisibility sees through. Approach: symbols that
// count blocks have few values, so all are tried.
#include "sym/steps.h"
#include "sym/sym.h"

namespace tandem::sym {
namespace {

constexpr int64_t kMostTried = 1024;

/// How many assignments the symbols have; nothing where they are too many.
std::optional<int64_t> count_of(const std::vector<Expr>& symbols) {
  int64_t count = 1;
  for (const Expr symbol : symbols) {
    const Range range = symbol.range();
    if (range.hi < range.lo || range.lo < -kMostTried || range.hi > kMostTried) return std::nullopt;
    count *= range.hi - range.lo + 1;
    if (count > kMostTried) return std::nullopt;
  }
  return count;
}

}  // namespace

uint64_t possible_remainders(Expr e, int64_t divisor) {
  const uint64_t all = (uint64_t{1} << divisor) - 1;
  Steps steps(e);
  const std::optional<int64_t> count = count_of(steps.symbols());
  if (!count) return all;
  uint64_t found = 0;
  for (int64_t number = 0; number < *count; ++number) {
    int64_t rest = number;
    for (size_t i = 0; i < steps.symbols().size(); ++i) {
      const Range range = steps.symbols()[i].range();
      const int64_t values = range.hi - range.lo + 1;
      steps.set(i, range.lo + rest % values);
      rest /= values;
    }
    const std::optional<int64_t> value = steps.run();
    if (!value || *value < 0) return all;
    found |= uint64_t{1} << (*value % divisor);
  }
  return found;
}

}  // namespace tandem::sym
