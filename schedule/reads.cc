// An item's computation, written at its own axes against a sink that remembers what is asked of it.
#include "schedule/reads.h"

#include "schedule/fuse.h"

namespace tandem::schedule {
namespace {

void write_map(GraphLowering& lowering, const Item& item) {
  lowering.point(item.computation, item.result, item.computation.results[item.result].axes);
}

/// Of partial results there is nothing to write: who holds them is no value.
void write_reduction(GraphLowering& lowering, const Item& item) {
  const Computation& def = item.computation;
  if (def.inputs.empty()) return;
  ops::Index r = def.reduce;
  if (item.kind == Item::Kind::scan) r = {def.out[static_cast<size_t>(def.reduced_dims[0])]};
  std::vector<loop::Val> combined = lowering.inputs(def, def.out, r);
  combined.resize(static_cast<size_t>(loop::results(def.combiner)));
  lowering.finished(def, combined, def.out);
}

void write_scatter(GraphLowering& lowering, const Item& item) {
  lowering.scattered(item.computation, item.computation.source);
  lowering.point(item.computation, 0, item.computation.results[0].axes);
}

void write(GraphLowering& lowering, const Item& item) {
  switch (item.kind) {
    case Item::Kind::map: return write_map(lowering, item);
    case Item::Kind::reduce:
    case Item::Kind::scan: return write_reduction(lowering, item);
    case Item::Kind::scatter: return write_scatter(lowering, item);
    case Item::Kind::library: return;
  }
}

}  // namespace

const ItemReads& ReadsByItem::of(const Item& item) {
  if (known_.size() < plan_->items.size()) known_.resize(plan_->items.size());
  std::optional<ItemReads>& known = known_[item.id];
  if (known) return *known;
  ProbeSink sink(plan_->graph->pool());
  const GraphLowering::Into into(*lowering_, sink);
  write(*lowering_, item);
  known.emplace();
  known->can_fail = sink.can_fail;
  for (const auto& [value, index] : sink.reads)
    known->at.emplace_back(value, linear_index(index, value->type.sizes));
  return *known;
}

}  // namespace tandem::schedule
