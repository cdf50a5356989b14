// Which inputs a functional graph writes at its end, and what it writes there. A write is a node
// that mutates its argument 0, an input, by its argument 1, which has the same type.
#pragma once

#include "ir/graph.h"

namespace tandem::ir {

/// Whether a write changes the input.
bool is_written(const Value* input);

/// Whether a write, of whichever input, takes the value.
bool is_written_back(const Value* value);

/// The input that the first write of the value changes; null where there is none.
const Value* write_back_target(const Value* value);

/// Whether some write changes just that input by the value: one value may go to several.
bool is_written_back_to(const Value* value, const Value* input);

}  // namespace tandem::ir
