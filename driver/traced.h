// A function of the C++ API as a graph. Internal to this room.
#pragma once

#include "driver/api.h"

namespace tandem::driver {

/// Writes what `function` computes of plain inputs. UserError for a gradient of integers, and for a
/// parameter, which has no place there.
void trace_function(ir::Graph& graph, const ModelFunction& function,
                    const std::vector<AotInput>& inputs);

}  // namespace tandem::driver
