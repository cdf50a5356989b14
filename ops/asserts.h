// Asserts on data: nodes that are computed whether anything reads them or not.
#pragma once

#include "ops/opdef.h"

namespace tandem::ops {

/// Its result is a truth that a call must not end without. Reverse mode writes such nodes for those
/// that read them alone.
bool is_asserted(const ir::Node& node);

/// tandem::checked_places: it is stored, never computed where it is read, so that its check comes
/// before what its readers write.
bool is_checked_first(const ir::Node& node);

/// x, or an error of the call where an element is not from `low` to `high`. For what a
/// decomposition reads: unread, it asks nothing.
Tensor checked_range(Tensor x, double low, double high, const std::string& message);

}  // namespace tandem::ops
