// A joint graph for people: forward beside the backward that it caused.
#pragma once

#include <string>

#include "ir/graph.h"

namespace tandem::passes {

/// By line of the model, in forward's order: its nodes on the left, those of backward that come of
/// them on the right, `*` at values of `saved`, which backward reads. Inputs that are saved come
/// first. Where nodes have no place, halves stand one below the other's end.
std::string joint_text(const ir::Graph& joint, const ir::Values& saved);

}  // namespace tandem::passes
