// The cheapest way to give backward what it reads of forward, where keeping a value has a price and
// so has computing a node again.
#pragma once

#include <functional>

#include "passes/partition/partition.h"

namespace tandem::passes {

/// More than all prices together: what costs so much is not done.
inline constexpr int64_t kNever = int64_t{1} << 60;
/// No finite price exceeds this, so that a million of them stay below kNever.
inline constexpr int64_t kMostPrice = int64_t{1} << 40;

struct Prices {
  /// Of keeping a value.
  std::function<int64_t(const ir::Value*)> keeping;
  /// Of computing a node again, beside making its operands available.
  std::function<int64_t(const ir::Node*)> again;
};

/// The values to keep, those of a minimum cut that backward reads, in graph order. Of several
/// minimum cuts the one nearest to the inputs.
ir::Values cheapest_cut(const ir::Graph& graph, const Halves& halves, const Prices& prices);

/// Values that backward reads, itself or to compute again what is not saved.
DenseMap<ir::Value, char> read_by_backward(const ir::Graph& graph, const Halves& halves,
                                           const std::function<bool(const ir::Value*)>& is_saved);

/// Forward nodes that backward runs where these are kept, in graph order.
std::vector<const ir::Node*> computed_again(const ir::Graph& graph, const Halves& halves,
                                            const ir::Values& saved);

/// It could only be saved as its base, which is no larger.
bool shows_all_of_base(const ir::Value& value);

}  // namespace tandem::passes
