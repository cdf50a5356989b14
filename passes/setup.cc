// What depends on constants alone need not be computed at every call. It moves to a second graph of
// the module, its setup, whose inputs are constants of the first and whose results become new
// ones. Moving must pay: a value that costs nothing where it is read stays there and is computed
// from what was moved. Such are views, values made from nothing, and pointwise or one-operand ops
// that have more elements than they read, which would only take memory (a broadcast mask). So is a
// table that is only gathered from, where it is wider than what it is made of (bytes that are
// dequantized): its elements are made where they are read. Results of the graph stay too: each call
// gives the caller memory of its own.
//
// Readers are visited before producers, so that what is needed at every call is known when a node
// is decided.
#include "passes/known.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

sym::Expr elements(const ir::Values& values) {
  sym::Expr sum = 0;
  for (const Value* value : values) sum = sum + value->type.numel();
  return sum;
}

sym::Expr bytes(const ir::Values& values) {
  sym::Expr sum = 0;
  for (const Value* value : values)
    sum = sum + value->type.numel() * static_cast<int64_t>(size_of(value->type.dtype));
  return sum;
}

bool is_gathered(const Value* value) {
  return std::ranges::all_of(value->uses, [&](const ir::Use& use) {
    if (use.node == nullptr) return false;
    const std::string_view table = ops::def_of(*use.node).gathers;
    return !table.empty() && use.node->call().arg(table) == ir::Arg(const_cast<Value*>(value));
  });
}

bool is_free(const Node& node) {
  ir::Values operands;
  ir::for_each_operand(node.args, [&](Value* operand) { operands.push_back(operand); });
  if (node.op->is_view() || operands.empty()) return true;
  const ops::OpDef& def = ops::def_of(node);
  const bool is_cheap =
      operands.size() == 1 || def.pointwise || def.dequantizes != ops::Scales::none;
  if (is_cheap && std::ranges::all_of(node.results, is_gathered))
    return sym::known_lt(bytes(operands), bytes(node.results));
  return is_cheap && sym::known_lt(elements(operands), elements(node.results));
}

class Setup {
 public:
  explicit Setup(ir::Graph& graph) : graph_(graph), known_(graph) {}

  void run(GraphCtx& ctx) {
    for (const Node* node = graph_.last(); node != nullptr; node = node->prev) decide(*node);
    if (!moved_results_.empty()) move();
    drop_unused();
    ctx.notes.push_back(fmt::format("setup: {} nodes run once, {} results are kept", moved_nodes_,
                                    moved_results_.size()));
  }

 private:
  bool is_read_here(const Value* value) const {
    return std::ranges::any_of(value->uses, [&](const ir::Use& use) {
      return use.node == nullptr || stays_.at(use.node);
    });
  }

  static bool leaves(const Value* value) {
    return std::ranges::any_of(value->uses, [](const ir::Use& use) { return use.node == nullptr; });
  }

  void decide(const Node& node) {
    bool stays = !known_.has(node);
    if (!stays && std::ranges::any_of(node.results, [&](Value* v) { return is_read_here(v); }))
      stays = is_free(node) || std::ranges::any_of(node.results, leaves);
    stays_[&node] = stays;
    if (stays) return;
    for (Value* result : node.results)
      if (is_read_here(result)) moved_results_.push_back(result);
  }

  void move() {
    std::reverse(moved_results_.begin(), moved_results_.end());
    ir::Module& module = graph_.module();
    ir::Graph& setup = module.add_graph(module.free_name(graph_.name() + ".setup"));
    setup.set_role({ir::GraphRole::Kind::setup, graph_.name()});
    copy_into(setup);
    for (Value* result : moved_results_) {
      Value* input = graph_.add_input(graph_.free_input_name(fmt::format("setup{}", kept_++)),
                                      ir::Type::tensor(result->type.dtype, result->type.sizes),
                                      ir::Role::buffer);
      input->constant = true;
      setup.add_output(copies_.at(result), ir::OutputKind::output, input->name);
      graph_.replace_all_uses(result, input);
    }
  }

  /// Nodes that the moved results depend on, in their order; inputs first.
  void copy_into(ir::Graph& setup) {
    DenseMap<Value, char> wanted;
    for (const Value* result : moved_results_) wanted[result] = true;
    for (const Node* node = graph_.last(); node != nullptr; node = node->prev)
      if (std::ranges::any_of(node->results, [&](const Value* v) { return wanted.at(v); }))
        ir::for_each_operand(node->args, [&](const Value* operand) { wanted[operand] = true; });
    for (const Value* input : graph_.inputs())
      if (wanted.at(input))
        copies_[input] = setup.add_input(input->name, input->type, input->role, input->target);
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (std::ranges::any_of(node->results, [&](const Value* v) { return wanted.at(v); }))
        copy(setup, *node);
  }

  void copy(ir::Graph& setup, const Node& node) {
    Node* made = ir::clone_node(
        setup, node, [&](const Value* operand) { return copies_.at(operand); }, nullptr);
    for (size_t i = 0; i < node.results.size(); ++i) copies_[node.results[i]] = made->results[i];
    ++moved_nodes_;
  }

  /// Constants that only setup reads are its own. What is known to be 0 stays, for what is given to
  /// be asked; so do those that nobody reads, because they are given, too.
  void drop_unused() {
    for (Node* node = graph_.last(); node != nullptr;) {
      Node* previous = node->prev;
      if (!stays_.at(node)) graph_.erase(node);
      node = previous;
    }
    const ir::Values inputs = graph_.inputs();
    for (Value* input : inputs)
      if (input->constant && input->uses.empty() && !input->zeros && copies_.at(input) != nullptr)
        graph_.erase_input(input);
  }

  ir::Graph& graph_;
  KnownValues known_;
  DenseMap<Node, char> stays_;
  ir::Values moved_results_;  // in program order once `move` runs
  DenseMap<Value, Value*> copies_;
  int kept_ = 0;
  int moved_nodes_ = 0;
};

}  // namespace

void setup(ir::Graph& graph, GraphCtx& ctx) {
  bool is_done = graph.module().find(ir::GraphRole::Kind::setup, graph) != nullptr;
  if (has_constants(graph) && !is_done) Setup(graph).run(ctx);
}

}  // namespace tandem::passes
