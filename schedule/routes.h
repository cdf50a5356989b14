// Which nodes a library computes. Ops say what it can do (ops::Route); whether it should is decided
// here.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

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
