// A minimum cut: the source stands for what forward has at hand, the sink for what only backward
// computes. A value is an edge of what it takes to keep it, reading is an edge that cannot be cut,
// and each node is tied to the source by an edge of what it takes to run it again: what lies below
// the cut runs in backward, so that edge is cut exactly where the node is computed again.
#include "passes/partition/cut.h"

#include "base/check.h"
#include "base/flow_network.h"
#include "ops/opdef.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

class Cut {
 public:
  Cut(const ir::Graph& graph, const Halves& halves, const Prices& prices)
      : graph_(graph), halves_(halves), prices_(prices) {}

  ir::Values run() const {
    FlowNetwork network = build();
    int64_t flow = network.flow(kSource, kSink);
    TD_CHECK(flow < kNever) << "a value can be neither saved nor computed again";
    std::vector<char> above = network.source_side(kSource);
    DenseMap<Value, char> cut;
    for_each_value([&](Value* value) { cut[value] = above[in(value)] && !above[out(value)]; });
    return read_of(cut);
  }

 private:
  static constexpr size_t kSource = 0;
  static constexpr size_t kSink = 1;

  static size_t in(const Value* value) { return 2 + 2 * size_t{value->id}; }
  static size_t out(const Value* value) { return 3 + 2 * size_t{value->id}; }
  size_t vertex(const Node* node) const { return 2 + 2 * graph_.value_ids() + node->id; }

  bool may_run_forward(const Node& node) const {
    return !halves_.needs_tangent(&node) && !node.op->mutates();
  }

  /// What may be kept: inputs, and results that no tangent reaches.
  template <class F>
  void for_each_value(F f) const {
    for (Value* input : graph_.inputs())
      if (input->role != ir::Role::tangent) f(input);
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (may_run_forward(*node))
        for (Value* result : node->results) f(result);
  }

  /// What backward reads of the cut: an edge that weighs nothing may be cut for no reader.
  ir::Values read_of(const DenseMap<Value, char>& cut) const {
    DenseMap<Value, char> read =
        read_by_backward(graph_, halves_, [&](const Value* value) { return cut.at(value) != 0; });
    ir::Values values;
    for_each_value([&](Value* value) {
      if (read.at(value) && cut.at(value)) values.push_back(value);
    });
    return values;
  }

  FlowNetwork build() const {
    FlowNetwork network(2 + 2 * graph_.value_ids() + graph_.node_ids());
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (may_run_forward(*node)) connect_node(network, *node);
    for_each_value([&](const Value* value) {
      if (value->node == nullptr) network.connect(kSource, in(value), kNever);
      network.connect(in(value), out(value), prices_.keeping(value));
      for (const ir::Use& use : value->uses) connect_reader(network, *value, use);
    });
    return network;
  }

  void connect_node(FlowNetwork& network, const Node& node) const {
    network.connect(kSource, vertex(&node), prices_.again(&node));
    for (const Value* result : node.results) network.connect(vertex(&node), in(result), kNever);
  }

  void connect_reader(FlowNetwork& network, const Value& value, const ir::Use& use) const {
    if (use.node == nullptr) {
      bool is_gradient = graph_.outputs()[use.arg].kind == ir::OutputKind::gradient;
      if (is_gradient) network.connect(out(&value), kSink, kNever);
    } else if (halves_.needs_tangent(use.node)) {
      network.connect(out(&value), kSink, kNever);
    } else if (!use.node->op->mutates()) {
      network.connect(out(&value), vertex(use.node), kNever);
    }
  }

  const ir::Graph& graph_;
  const Halves& halves_;
  const Prices& prices_;
};

}  // namespace

ir::Values cheapest_cut(const ir::Graph& graph, const Halves& halves, const Prices& prices) {
  return Cut(graph, halves, prices).run();
}

DenseMap<Value, char> read_by_backward(const ir::Graph& graph, const Halves& halves,
                                       const std::function<bool(const Value*)>& is_saved) {
  DenseMap<Value, char> read;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::gradient && output.value != nullptr)
      read[output.value] = true;
  for (const Node* node = graph.last(); node != nullptr; node = node->prev) {
    bool runs = halves.needs_tangent(node);
    for (const Value* result : node->results) runs |= read.at(result) && !is_saved(result);
    if (runs) ir::for_each_operand(node->args, [&](const Value* v) { read[v] = true; });
  }
  return read;
}

std::vector<const Node*> computed_again(const ir::Graph& graph, const Halves& halves,
                                        const ir::Values& saved) {
  DenseMap<Value, char> is_saved;
  for (const Value* value : saved) is_saved[value] = true;
  DenseMap<Value, char> read =
      read_by_backward(graph, halves, [&](const Value* value) { return is_saved.at(value) != 0; });
  std::vector<const Node*> again;
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    bool runs = false;
    for (const Value* result : node->results) runs |= read.at(result) && !is_saved.at(result);
    if (runs && halves.is_forward(node)) again.push_back(node);
  }
  return again;
}

bool shows_all_of_base(const Value& value) {
  if (value.node == nullptr || !value.node->op->is_view()) return false;
  return typical_bytes(&value) >= typical_bytes(base_of(const_cast<Value*>(&value)));
}

}  // namespace tandem::passes
