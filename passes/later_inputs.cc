// The backward of a custom function may write to what its forward kept, a buffer that counts. In
// eager that is the caller's tensor as it is when backward runs, whoever wrote to it since: neither
// a value of forward, nor a copy. So backward takes such an input once more, as it is then:
//   saved = x, backward(g, x): x += g   becomes   saved = x_later, ..., copy_(x_later, x_later + g)
// Here the operands that stand for the input are replaced, in all functions that kept it: one sees
// what another has written. The rule of the function writes its body (ops/custom_gradient.cc), and
// joint makes one write of what all of them write. Where forward and backward are one program
// nobody writes between them, so what backward takes is what forward leaves (join_later_inputs).
#include <fmt/format.h>

#include "base/dense_map.h"
#include "base/diagnostic.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

bool has_backward_of_its_own(const Node& node) {
  return node.op->schema.name == "tandem::custom_gradient";
}

/// What an operator in place hands on; null for others.
Value* written_in_place(const Node& node) {
  if (!node.op->mutates() || ops::def_of(node).functional != nullptr) return nullptr;
  for (size_t i = 0; i < node.args.size(); ++i)
    if (node.op->schema.params[i].mutates) {
      Value* const* self = std::get_if<Value*>(&node.args[i]);
      return self == nullptr ? nullptr : *self;
    }
  return nullptr;
}

/// The input that it is, written before or not; null where it is none.
Value* input_of(Value* value) {
  while (value != nullptr && value->node != nullptr) value = written_in_place(*value->node);
  return value;
}

/// By saved operand: the backward of the node writes to it.
std::vector<char> written_by_backward(const ir::Graph& graph, const Node& node) {
  std::vector<char> written(node.call().values("saved").size(), 0);
  const ir::Graph* body = graph.module().find(node.call().string("body"));
  if (body == nullptr) return written;
  for (const Node* each = body->first(); each != nullptr; each = each->next) {
    const Value* target = input_of(written_in_place(*each));
    if (target == nullptr || target->index < node.results.size()) continue;
    const size_t number = target->index - node.results.size();
    if (number < written.size()) written[number] = 1;
  }
  return written;
}

class LaterInputs {
 public:
  explicit LaterInputs(ir::Graph& graph) : graph_(graph) {
    for (Node* node = graph.first(); node != nullptr; node = node->next)
      if (has_backward_of_its_own(*node)) functions_.push_back(node);
  }

  void run() {
    for (const Node* node : functions_) add_written(*node);
    if (added_ == nullptr) return;
    check_no_gradient_inside();
    for (Node* node : functions_) replace_saved(*node);
  }

 private:
  /// What is no input is refused where reverse mode reads the body.
  void add_written(const Node& node) {
    const std::vector<char> written = written_by_backward(graph_, node);
    for (size_t i = 0; i < written.size(); ++i) {
      const Value* input = input_of(node.call().values("saved")[i]);
      if (written[i] != 0 && input != nullptr && later_.at(input) == nullptr) add(*input, node);
    }
  }

  void add(const Value& input, const Node& node) {
    if (!input.within.base.empty())
      throw Unsupported(fmt::format("[{}] the backward of a custom function writes to input %{}, "
                                    "which lies in the memory of %{}",
                                    node.op->schema.full_name(), input.name, input.within.base),
                        node.origin.place);
    added_ = graph_.add_input(graph_.free_input_name(input.name + "_later"), input.type,
                              ir::Role::later);
    added_->subject = {ir::Subject::Kind::input, input.index};
    later_[&input] = added_;
    mark_signature(input);
  }

  void mark_signature(const Value& input) const {
    const ir::Graph* signature = graph_.module().find(ir::GraphRole::Kind::signature, graph_);
    if (signature == nullptr) return;
    for (Value* known : signature->inputs())
      if (known->name == input.name) known->writes.backward = true;
  }

  /// It would run the backward in forward.
  void check_no_gradient_inside() const {
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (node->op->schema.name == "tandem::gradient")
        throw Unsupported(
            fmt::format("[{}] a gradient inside of a graph where the backward of a custom function "
                        "writes to input %{}",
                        node->op->schema.full_name(),
                        graph_.inputs().at(added_->subject.number)->name),
            node->origin.place);
  }

  void replace_saved(Node& node) {
    const size_t number = static_cast<size_t>(node.op->schema.find("saved"));
    graph_.set_arg(&node, number, ir::map_operands(node.args[number], [&](Value* saved) {
      const Value* input = input_of(saved);
      Value* later = input == nullptr ? nullptr : later_.at(input);
      return later == nullptr ? saved : later;
    }));
  }

  ir::Graph& graph_;
  std::vector<Node*> functions_;
  DenseMap<Value, Value*> later_;  // of inputs
  Value* added_ = nullptr;         // the last of them
};

/// The write of an input at the end of a functional graph; null where there is none.
Node* write_back_to(const ir::Graph& graph, const Value* input) {
  for (Node* node = first_write_back(graph); node != nullptr; node = node->next)
    if (std::get<Value*>(node->args[0]) == input) return node;
  return nullptr;
}

/// The functions have their gradients: what stands there as kept is read by nothing, and what
/// forward leaves may be made behind them.
void forget_saved(ir::Graph& graph, const Value* later, Value* input) {
  for (Node* node = graph.first(); node != nullptr; node = node->next) {
    if (!has_backward_of_its_own(*node)) continue;
    const size_t number = static_cast<size_t>(node->op->schema.find("saved"));
    graph.set_arg(node, number, ir::map_operands(node->args[number], [&](Value* saved) {
                    return saved == later ? input : saved;
                  }));
  }
}

/// What forward writes is overwritten by what backward makes of it.
void join(ir::Graph& graph, Value* later) {
  Value* input = graph.inputs().at(later->subject.number);
  Node* by_forward = write_back_to(graph, input);
  Node* by_backward = write_back_to(graph, later);
  Value* left = by_forward == nullptr ? input : std::get<Value*>(by_forward->args[1]);
  if (by_backward != nullptr) {
    graph.set_arg(by_backward, 0, input);
    if (by_forward != nullptr) graph.erase(by_forward);
  }
  forget_saved(graph, later, input);
  graph.replace_all_uses(later, left);
  graph.erase_input(later);
}

}  // namespace

void later_inputs(ir::Graph& graph, GraphCtx&) { LaterInputs(graph).run(); }

void join_later_inputs(ir::Graph& graph, GraphCtx&) {
  const ir::Values inputs = graph.inputs();
  for (Value* input : inputs)
    if (input->role == ir::Role::later) join(graph, input);
}

}  // namespace tandem::passes
