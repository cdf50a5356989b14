// What factories share: the options at the end of their schemas, why they have no gradient, sizes.
#pragma once

#include "ops/families.h"

#define TANDEM_FACTORY_OPTIONS \
  "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"

namespace tandem::ops {

inline constexpr std::string_view kNoOperand = "a factory has no differentiable operand";

inline void need_sizes(const Call& c, const ir::Ints& sizes) {
  for (Expr size : sizes)
    if (size.range().hi < 0) c.fail("sizes " + ir::to_string(sizes) + " are negative");
}

}  // namespace tandem::ops
