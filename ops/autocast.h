// The table of automatic mixed precision.
#pragma once

#include <span>
#include <string_view>

#include "ir/op.h"

namespace tandem::ops {

/// What a call of the op does with its operands in an autocast region.
ir::Autocast autocast_of(const ir::Schema& schema);

}  // namespace tandem::ops
