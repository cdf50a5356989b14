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

#include "base/check.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

CutNetwork::CutNetwork(const ir::Graph& graph, const Halves& halves,
                       const std::function<int64_t(const Value*)>& keeping,
                       const Tuning::Saving& limits)
    : graph_(graph), halves_(halves) {
  find_vertices();
  network_ = std::make_unique<FlowNetwork>(vertices_, limits.edges_of_repair);
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
    const size_t out = is_read_behind(*value) ? kSink : vertices_++;
    places_.push_back({static_cast<uint32_t>(in), static_cast<uint32_t>(out)});
    values_.push_back(value);
    number_[value] = static_cast<uint32_t>(values_.size());
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
    if (!ir::comes_with_backward(input->role)) add(input, kSource);
  for (const Node* node = graph_.first(); node != nullptr; node = node->next) {
    if (leads.at(node) == 0) continue;
    nodes_.push_back(node);
    starts_.push_back(static_cast<uint32_t>(vertices_));
    vertex_[node] = vertices_++;
    const bool is_one = node->results.size() == 1;
    const uint32_t first = static_cast<uint32_t>(values_.size()) + 1;
    for (Value* result : node->results) add(result, is_one ? vertex_.at(node) : vertices_++);
    results_.push_back({first, static_cast<uint32_t>(values_.size()) + 1});
    add_operands(*node);
  }
}

void CutNetwork::add_operands(const Node& node) {
  const uint32_t first = static_cast<uint32_t>(read_.size());
  ir::for_each_operand(node.args, [&](const Value* operand) {
    if (number_.at(operand) != 0) read_.push_back(number_.at(operand));
  });
  operands_.push_back({first, static_cast<uint32_t>(read_.size())});
}

const CutNetwork::Place& CutNetwork::place_of(const Value& value) const {
  return places_.at(number_.at(&value) - 1);
}

void CutNetwork::connect(const Node& node) {
  tie_[&node] = ties_.size();
  ties_.push_back({&node, network_->connect(kSource, vertex_.at(&node), kNever)});
  if (node.results.size() == 1) return;
  for (const Value* result : node.results)
    network_->connect(vertex_.at(&node), place_of(*result).in, kNever);
}

void CutNetwork::connect(const Value& value, int64_t keeping) {
  const Place place = place_of(value);
  network_->connect(place.in, place.out, keeping);
  never_kept_[&value] = keeping >= kNever;
  if (place.out == kSink) return;  // no cut parts the sink from what it reads
  for (const ir::Use& use : value.uses)
    if (use.node != nullptr && vertex_.at(use.node) != 0)
      network_->connect(place.out, vertex_.at(use.node), kNever);
}

Cut CutNetwork::cheapest(const std::function<int64_t(const Node*)>& again) {
  for (const Tie& tie : ties_) network_->set_capacity(tie.edge, again(tie.node));
  TD_CHECK(weight() < kNever) << dead_end(again);
  return read();
}

void CutNetwork::set_again(const Node* node, int64_t price) {
  TD_CHECK(has(node)) << "no cut has " << ir::to_string(*node);
  network_->set_capacity(ties_[tie_.at(node)].edge, price);
}

void CutNetwork::remember() {
  weight();
  network_->remember();
}

int64_t CutNetwork::weight() { return network_->flow(kSource, kSink); }

Cut CutNetwork::read() const { return read_of(network_->source_side(kSource)); }

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
    if (why != nullptr && place_of(*value).out == kSink)
      return fmt::format(
          "backward reads %{}, which must not be saved, and %{} must not be computed "
          "again for it",
          names.at(value), names.at(why));
  }
  return "a value can be neither saved nor computed again";
}

/// What backward reads of the cut: an edge that weighs nothing may be cut for no reader. From the
/// sink up, so that whoever reads a value is known before it. A node above the cut does not run:
/// nor do readers of what it makes, unless that is kept.
Cut CutNetwork::read_of(const std::vector<char>& above) const {
  steps_ += static_cast<int64_t>(values_.size() + read_.size());
  std::vector<char> read(values_.size() + 1, 0);
  Cut cut;
  const auto is_kept = [&](uint32_t value) {
    const Place& place = places_[value - 1];
    return above[place.in] != 0 && above[place.out] == 0;
  };
  const auto is_read = [&](uint32_t value) {
    return places_[value - 1].out == kSink || read[value] != 0;
  };
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (above[starts_[i]] != 0) continue;
    bool runs = false;
    for (uint32_t v = results_[i].begin; v < results_[i].end; ++v)
      runs |= is_read(v) && !is_kept(v);
    if (!runs) continue;
    if (halves_.is_forward(nodes_[i])) cut.again.push_back(nodes_[i]);
    for (uint32_t k = operands_[i].begin; k < operands_[i].end; ++k) read[read_[k]] = 1;
  }
  std::ranges::reverse(cut.again);
  for (uint32_t v = 1; v <= values_.size(); ++v)
    if (is_read(v) && is_kept(v)) cut.saved.push_back(values_[v - 1]);
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
