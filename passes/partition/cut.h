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

/// Of a price in bytes: what takes time weighs less than a byte, where bytes decide.
inline constexpr int64_t kPartsOfByte = 64;

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
/// with each question, of all nodes or of one.
class CutNetwork {
 public:
  CutNetwork(const ir::Graph& graph, const Halves& halves,
             const std::function<int64_t(const ir::Value*)>& keeping,
             const Tuning::Saving& limits = {});

  /// The values to keep are those of a minimum cut that backward reads. Of several minimum cuts the
  /// one nearest to the inputs. InternalError, with names, where prices forbid each.
  Cut cheapest(const std::function<int64_t(const ir::Node*)>& again);

  /// From here on, of one node, which leads to what backward reads.
  void set_again(const ir::Node* node, int64_t price);
  /// Prices as they stand: what is set from here on is forgotten by `recall`.
  void remember();
  void recall() { network_->recall(); }
  /// Of a minimum cut at the prices as they stand.
  int64_t weight();
  /// That cut; `weight` was asked since the last price was set.
  Cut read() const;
  /// A node whose price makes no difference is none that a cut has.
  bool has(const ir::Node* node) const { return vertex_.at(node) != 0; }
  /// Work so far, in edges looked at.
  int64_t steps() const { return steps_ + network_->steps(); }

 private:
  struct Tie {
    const ir::Node* node = nullptr;
    size_t edge = 0;  // from the source
  };
  /// The vertices of a value: before and behind the edge of keeping it.
  struct Place {
    uint32_t in = 0;
    uint32_t out = 0;
  };
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  static constexpr size_t kSource = 0;
  static constexpr size_t kSink = 1;

  void find_vertices();
  void connect(const ir::Node& node);
  void connect(const ir::Value& value, int64_t keeping);
  bool is_read_behind(const ir::Value& value) const;
  std::string dead_end(const std::function<int64_t(const ir::Node*)>& again) const;
  const Place& place_of(const ir::Value& value) const;
  void add_operands(const ir::Node& node);
  Cut read_of(const std::vector<char>& above) const;

  const ir::Graph& graph_;
  const Halves& halves_;
  ir::Values values_;  // that may be kept, in graph order
  std::vector<Place> places_;
  DenseMap<ir::Value, uint32_t> number_;  // of these, from 1 on
  std::vector<const ir::Node*> nodes_;
  std::vector<uint32_t> starts_;  // by node: its vertex
  std::vector<Range> results_;    // by node: numbers of values
  std::vector<Range> operands_;   // by node: places in read_
  std::vector<uint32_t> read_;    // numbers of values
  DenseMap<ir::Node, size_t> vertex_;
  DenseMap<ir::Value, char> never_kept_;
  size_t vertices_ = 2;
  std::unique_ptr<FlowNetwork> network_;
  std::vector<Tie> ties_;
  mutable int64_t steps_ = 0;
  DenseMap<ir::Node, size_t> tie_;  // its number, where the graph has the node
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
