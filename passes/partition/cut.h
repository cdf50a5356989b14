// The cheapest way to give backward what it reads of forward, where keeping a value has a price and
// so has computing a node again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/flow_network.h"
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

struct Cut {
  ir::Values saved;                    // in graph order
  std::vector<const ir::Node*> again;  // forward nodes that backward runs then, in graph order
};

/// A graph to be cut more than once: prices of keeping stay, prices of computing again are given
/// with each question.
class CutNetwork {
 public:
  CutNetwork(const ir::Graph& graph, const Halves& halves,
             const std::function<int64_t(const ir::Value*)>& keeping);

  /// The values to keep are those of a minimum cut that backward reads. Of several minimum cuts the
  /// one nearest to the inputs. InternalError, with names, where prices forbid each.
  Cut cheapest(const std::function<int64_t(const ir::Node*)>& again);

 private:
  struct Tie {
    const ir::Node* node;
    size_t edge;  // from the source
  };
  static constexpr size_t kSource = 0;
  static constexpr size_t kSink = 1;

  void find_vertices();
  void connect(const ir::Node& node);
  void connect(const ir::Value& value, int64_t keeping);
  bool is_read_behind(const ir::Value& value) const;
  std::string dead_end(const std::function<int64_t(const ir::Node*)>& again) const;
  Cut read_of(const std::vector<char>& above) const;

  const ir::Graph& graph_;
  const Halves& halves_;
  ir::Values values_;  // that may be kept, in graph order
  std::vector<const ir::Node*> nodes_;
  DenseMap<ir::Value, size_t> in_;  // vertices; of values that are not asked about the source
  DenseMap<ir::Value, size_t> out_;
  DenseMap<ir::Node, size_t> vertex_;
  DenseMap<ir::Value, char> never_kept_;
  size_t vertices_ = 2;
  std::unique_ptr<FlowNetwork> network_;
  std::vector<Tie> ties_;
};

/// What is saved then, of a graph that is cut once.
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
