// An item's computation as loops, for the text form: one stage for each thing that it says,
// elements where a kernel would have loads, results at their row-major positions.
#pragma once

#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

struct DefinitionText {
  loop::Kernel kernel;                   // canonical; its sizes are `sizes`
  std::vector<const ir::Value*> values;  // by number of its elements
  std::vector<sym::Expr> sizes;          // symbols of the graph
};
DefinitionText definition_of(const KernelGraph& graph, const Item& item);

/// What the loops say, as the item's computation. Its kind, its slots and what Computation says
/// beside scalars must be there. False where the loops are no definition of such an item.
bool read_definition(KernelGraph& graph, Item& item, const DefinitionText& text);

/// A group's kernel, canonical, and the symbols behind its sizes.
struct KernelText {
  loop::Kernel kernel;
  std::vector<sym::Expr> sizes;
};
KernelText canonical_of(const loop::Kernel& kernel);

}  // namespace tandem::schedule
