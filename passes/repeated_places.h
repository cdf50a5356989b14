// Writes to tensors of which several elements are one place in memory.
#pragma once

#include <vector>

#include "ops/opdef.h"

namespace tandem::passes {

/// What is written to a tensor: values of its sizes, and which of them are written; empty: all.
struct Part {
  ops::Tensor value;
  ops::Tensor written;
};

/// The part of `base` that is written where `part` is written to what result `number` of the view
/// shows. Along the dimensions `repeated` the view shows the same places again.
Part carry_up(const ir::Node& view, uint32_t number, ops::Tensor base, Part part,
              const std::vector<int64_t>& repeated);

/// The new value of a view's base after `updated` was written through the view.
ops::Tensor write_through(const ir::Node& view, uint32_t number, ops::Tensor base,
                          ops::Tensor updated);

/// What `write` writes to a tensor that shows places several times; `value` is its functional
/// form's. Unsupported where it may be several numbers: eager refuses those.
Part of_one_number(const ir::Node& write, ops::Tensor value);

}  // namespace tandem::passes
