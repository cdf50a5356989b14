// A minimum cut: the source stands for what forward has at hand, the sink for what only backward
// computes. A value is an edge of what it takes to keep it, reading is an edge that cannot be cut,
// and each node is tied to the source by an edge of what it takes to run it again: what lies below
// the cut runs in backward, so that edge is cut exactly where the node is computed again. Vertices
// that an edge which cannot be cut joins are one: inputs begin at the source, what backward reads
// ends in the sink, a node is where its only result begins. Nodes that lead to nothing that
// backward reads are left out.
#include "passes/partition/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

CutNetwork::CutNetwork(const ir::Graph& graph, const Halves& halves,
                       const std::function<int64_t(const Value*)>& keeping)
    : graph_(graph), halves_(halves) {
  find_vertices();
  network_ = std::make_unique<FlowNetwork>(vertices_);
  for (const Node* node : nodes_) connect(*node);
  for (const Value* value : values_) connect(*value, keeping(value));
}

/// By what cannot be computed in forward, or leaves the graph as a gradient.
bool CutNetwork::is_read_behind(const Value& value) const {
  for (const ir::Use& use : value.uses) {
    const bool is_behind = use.node != nullptr
                               ? halves_.needs_tangent(use.node)
                               : graph_.outputs()[use.arg].kind == ir::OutputKind::gradient;
    if (is_behind) return true;
  }
  return false;
}

void CutNetwork::find_vertices() {
  const auto add = [&](Value* value, size_t in) {
    in_[value] = in;
    out_[value] = is_read_behind(*value) ? kSink : vertices_++;
    values_.push_back(value);
  };
  DenseMap<Node, char> leads;  // to what backward reads
  for (const Node* node = graph_.last(); node != nullptr; node = node->prev) {
    if (halves_.needs_tangent(node) || node->op->mutates()) continue;
    for (const Value* result : node->results) {
      leads[node] |= is_read_behind(*result);
      for (const ir::Use& use : result->uses)
        leads[node] |= use.node == nullptr ? char{0} : leads.at(use.node);
    }
  }
  for (Value* input : graph_.inputs())
    if (input->role != ir::Role::tangent) add(input, kSource);
  for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
    if (leads.at(node) == 0) continue;
    nodes_.push_back(node);
    vertex_[node] = vertices_++;
    const bool is_one = node->results.size() == 1;
    for (Value* result : node->results) add(result, is_one ? vertex_.at(node) : vertices_++);
  }
}

void CutNetwork::connect(const Node& node) {
  ties_.push_back({&node, network_->connect(kSource, vertex_.at(&node), kNever)});
  if (node.results.size() == 1) return;
  for (const Value* result : node.results)
    network_->connect(vertex_.at(&node), in_.at(result), kNever);
}

void CutNetwork::connect(const Value& value, int64_t keeping) {
  network_->connect(in_.at(&value), out_.at(&value), keeping);
  never_kept_[&value] = keeping >= kNever;
  if (out_.at(&value) == kSink) return;  // no cut parts the sink from what it reads
  for (const ir::Use& use : value.uses)
    if (use.node != nullptr && vertex_.at(use.node) != 0)
      network_->connect(out_.at(&value), vertex_.at(use.node), kNever);
}

Cut CutNetwork::cheapest(const std::function<int64_t(const Node*)>& again) {
  for (const Tie& tie : ties_) network_->set_capacity(tie.edge, again(tie.node));
  const int64_t flow = network_->flow(kSource, kSink);
  TD_CHECK(flow < kNever) << dead_end(again);
  return read_of(network_->source_side(kSource));
}

/// No program asks for this: what a policy wants and cannot have is saved (asked_to_recompute).
std::string CutNetwork::dead_end(const std::function<int64_t(const Node*)>& again) const {
  const DenseMap<Value, std::string> names = ir::value_names(graph_);
  DenseMap<Value, const Value*> stuck;  // of what backward cannot have: what must not run again
  for (const Value* value : values_) {
    if (never_kept_.at(value) == 0) continue;
    const Value*& why = stuck[value];
    if (value->node == nullptr || again(value->node) >= kNever) why = value;
    if (value->node != nullptr && why == nullptr)
      ir::for_each_operand(value->node->args, [&](const Value* operand) {
        if (stuck.at(operand) != nullptr) why = stuck.at(operand);
      });
    if (why != nullptr && out_.at(value) == kSink)
      return fmt::format(
          "backward reads %{}, which must not be saved, and %{} must not be computed "
          "again for it",
          names.at(value), names.at(why));
  }
  return "a value can be neither saved nor computed again";
}

/// What backward reads of the cut: an edge that weighs nothing may be cut for no reader. From the
/// sink up, so that whoever reads a value is known before it.
Cut CutNetwork::read_of(const std::vector<char>& above) const {
  DenseMap<Value, char> read(graph_.value_ids());
  Cut cut;
  const auto is_kept = [&](const Value* value) {
    return above[in_.at(value)] != 0 && above[out_.at(value)] == 0;
  };
  const auto is_read = [&](const Value* value) {
    return out_.at(value) == kSink || read.at(value) != 0;
  };
  for (size_t i = nodes_.size(); i-- > 0;) {
    const bool runs = std::ranges::any_of(nodes_[i]->results, [&](const Value* result) {
      return is_read(result) && !is_kept(result);
    });
    if (!runs) continue;
    if (halves_.is_forward(nodes_[i])) cut.again.push_back(nodes_[i]);
    ir::for_each_operand(nodes_[i]->args, [&](const Value* operand) { read[operand] = 1; });
  }
  std::ranges::reverse(cut.again);
  std::ranges::copy_if(values_, std::back_inserter(cut.saved),
                       [&](const Value* value) { return is_read(value) && is_kept(value); });
  return cut;
}

ir::Values cheapest_cut(const ir::Graph& graph, const Halves& halves, const Prices& prices) {
  return CutNetwork(graph, halves, prices.keeping).cheapest(prices.again).saved;
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
