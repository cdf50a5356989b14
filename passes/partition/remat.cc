// After a choice, backward still reads forward values that are not saved. Each gets a copy of the
// node that makes it, and that node's operands in turn, right before the first backward node that
// asks: a copy lives no longer than it must. A forward node is copied at most once.
#include "base/check.h"
#include "ops/opdef.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

class Rematerializer {
 public:
  explicit Rematerializer(ir::Graph& graph) : graph_(graph), halves_(graph) {
    for (const ir::Output& output : graph.outputs())
      if (output.kind == ir::OutputKind::saved) saved_[output.value] = true;
  }

  size_t run() {
    std::vector<Node*> nodes;
    for (Node* node = graph_.first(); node != nullptr; node = node->next) nodes.push_back(node);
    for (Node* node : nodes) {
      node->backward = !halves_.is_forward(node);
      if (node->backward) visit(*node);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::Output& output = graph_.outputs()[i];
      if (output.kind == ir::OutputKind::gradient && output.value != nullptr)
        graph_.set_output(i, available(output.value, first_write_back(graph_)));
    }
    return copies_made_;
  }

 private:
  bool is_available(const Value* value) const {
    return !halves_.is_forward(value) || saved_.at(value) || copies_.at(value) != nullptr;
  }

  Value* now(Value* value) const {
    Value* copy = copies_.at(value);
    return copy == nullptr ? value : copy;
  }

  void visit(Node& node) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      ir::Arg seen = ir::map_operands(node.args[i], [&](Value* v) { return available(v, &node); });
      if (seen != node.args[i]) graph_.set_arg(&node, i, std::move(seen));
    }
  }

  /// The value as backward sees it. Copies what makes it before `before`, operands first, with a
  /// stack of its own: chains are as long as the program.
  Value* available(Value* value, Node* before) {
    std::vector<Value*> stack{value};
    while (!stack.empty()) {
      Value* top = stack.back();
      Value* missing = is_available(top) ? nullptr : first_missing(*top);
      if (missing != nullptr) {
        stack.push_back(missing);
        continue;
      }
      if (!is_available(top)) copy(*top->node, before);
      stack.pop_back();
    }
    return now(value);
  }

  Value* first_missing(const Value& value) const {
    TD_CHECK(value.node != nullptr)
        << "backward reads input %" << value.name << ", which is not saved";
    Value* missing = nullptr;
    ir::for_each_operand(value.node->args, [&](Value* operand) {
      if (missing == nullptr && !is_available(operand)) missing = operand;
    });
    return missing;
  }

  void copy(const Node& node, Node* before) {
    Node* made = ir::clone_node(graph_, node, [&](Value* v) { return now(v); }, before);
    made->backward = true;
    made->origin.forward = node.id;
    for (size_t i = 0; i < node.results.size(); ++i)
      if (!saved_.at(node.results[i])) copies_[node.results[i]] = made->results[i];
    ++copies_made_;
  }

  ir::Graph& graph_;
  Halves halves_;
  DenseMap<Value, char> saved_;
  DenseMap<Value, Value*> copies_;
  size_t copies_made_ = 0;
};

}  // namespace

void remat(ir::Graph& graph, GraphCtx& ctx) {
  size_t copies = Rematerializer(graph).run();
  ctx.notes.push_back("remat: " + std::to_string(copies) + " nodes are computed again");
}

}  // namespace tandem::passes
