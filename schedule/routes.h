// Which nodes a library computes. Ops say what it can do (ops::Route); whether it should is decided
// here.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// A convolution in bf16 whose windows are single places, of one group of channels: a product of
/// all places by the channels. Where vector registers sum it in packs of channels that is .94
/// to 3.1 times as fast as by the library (of few results more: docs/measured.md) and takes its
/// epilogue along. With tile registers the library sums it.
bool sums_places_in_packs(KernelGraph& graph, const ir::Node& node);

/// Rows of a matrix that a task reads, of a product by loops of one row with a large matrix whose
/// rows lie one behind the other; nothing where they do not come out even. A task reads them whole:
/// what lies in one piece comes from memory twice as fast as a strip of each row
/// (docs/measured.md, "One row").
std::optional<int64_t> rows_of_part(KernelGraph& graph, const ir::Node& node);

/// Decides when asked, once a node, and notes why a route is declined.
class Routes {
 public:
  explicit Routes(KernelGraph& graph);
  /// Nothing: loops.
  std::optional<ops::RouteKind> of(const ir::Node& node);

 private:
  std::optional<ops::RouteKind> choose(const ir::Node& node);

  KernelGraph& graph_;
  std::map<const ir::Node*, std::optional<ops::RouteKind>> known_;  // only looked up
  DenseMap<ir::Value, char> made_of_convolution_;
  DenseMap<ir::Value, char> for_convolution_;
};

}  // namespace tandem::schedule
