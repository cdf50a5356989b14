// Cuts a joint graph where remat left nothing but saved values to carry over. The graph itself
// becomes forward: it keeps its inputs, outputs and write-backs and gives the saved values behind
// them, and last the sizes that backward cannot read off its own inputs. Backward is a new graph:
// sizes, saved values, inputs that it writes and tangents in, gradients out.
#include <algorithm>

#include "base/check.h"
#include "ir/data_sizes.h"
#include "ops/bodies.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::OutputKind;
using ir::Value;

class Splitter {
 public:
  explicit Splitter(ir::Graph& joint) : joint_(joint), halves_(joint) {}

  void run() {
    for (Node* node = joint_.first(); node != nullptr; node = node->next)
      if (!halves_.is_forward(node)) backward_nodes_.push_back(node);
    find_carried();
    find_sizes();
    make_backward();
    shrink_to_forward();
  }

 private:
  /// Saved values that backward reads; forward need not give the others.
  void find_carried() {
    DenseMap<Value, char> read;
    for (const Node* node : backward_nodes_)
      ir::for_each_operand(node->args, [&](const Value* operand) { read[operand] = true; });
    for (const ir::Output& output : joint_.outputs())
      if (output.kind == OutputKind::gradient && output.value != nullptr) read[output.value] = true;
    for (const ir::Output& output : joint_.outputs()) {
      if (output.kind != OutputKind::saved || !read.at(output.value)) continue;
      carried_.push_back(output.value);
      names_.push_back(output.name);
    }
  }

  /// Symbols of backward, and those that its bodies are given, that are no size of a saved value or
  /// tangent by themselves.
  void find_sizes() {
    ir::Values tensors = carried_;
    for (Value* input : joint_.inputs())
      if (ir::comes_with_backward(input->role)) tensors.push_back(input);
    std::vector<sym::Expr> symbols;
    std::vector<sym::Expr> bound;
    for (const Value* tensor : tensors) {
      ir::collect_symbols(tensor->type, symbols);
      bound.insert(bound.end(), tensor->type.sizes.begin(), tensor->type.sizes.end());
    }
    for (const Node* node : backward_nodes_) {
      ir::collect_symbols(*node, symbols);
      ops::collect_given(joint_, *node, symbols);
      if (const std::optional<sym::Expr> made = ir::symbol_made_by(joint_, *node))
        bound.push_back(*made);
    }
    for (sym::Expr symbol : symbols) {
      bool seen = std::find(bound.begin(), bound.end(), symbol) != bound.end();
      if (!seen) sizes_.push_back(symbol.name());
      if (!seen) bound.push_back(symbol);
    }
  }

  void make_backward() {
    ir::Module& module = joint_.module();
    ir::Graph& backward = module.add_graph(module.free_name(joint_.name() + "_backward"));
    backward.set_role({ir::GraphRole::Kind::backward, joint_.name()});
    for (const std::string& size : sizes_)
      backward.add_input(size, ir::Type::scalar(DType::i64), ir::Role::saved);
    for (size_t i = 0; i < carried_.size(); ++i)
      add_input(backward, carried_[i],
                carried_[i]->node == nullptr ? carried_[i]->name : "saved" + std::to_string(i),
                ir::Role::saved);
    for (Value* input : joint_.inputs())
      if (ir::comes_with_backward(input->role))
        add_input(backward, input, input->name, input->role);
    for (const Node* node : backward_nodes_) {
      Node* made =
          ir::clone_node(backward, *node, [&](const Value* v) { return in_backward(v); }, nullptr);
      for (size_t i = 0; i < node->results.size(); ++i) moved_[node->results[i]] = made->results[i];
    }
    for (const ir::Output& output : joint_.outputs())
      if (output.kind == OutputKind::gradient)
        backward.add_output({output.value == nullptr ? nullptr : in_backward(output.value),
                             output.kind, output.name, output.order, output.subject});
  }

  /// Names are unique in a graph; a size and an input of the user's may share one.
  void add_input(ir::Graph& backward, const Value* from, std::string name, ir::Role role) {
    auto taken = [&](const Value* input) { return input->name == name; };
    while (std::any_of(backward.inputs().begin(), backward.inputs().end(), taken)) name += "_";
    moved_[from] = backward.add_input(std::move(name), from->type, role);
    moved_[from]->subject = from->subject;
  }

  Value* in_backward(const Value* value) const {
    Value* moved = moved_.at(value);
    TD_CHECK(moved != nullptr)
        << "backward reads a value of forward that is not saved: run remat before split";
    return moved;
  }

  void shrink_to_forward() {
    std::vector<ir::Output> outputs = joint_.outputs();
    joint_.clear_outputs();
    for (const ir::Output& output : outputs)
      if (output.kind != OutputKind::gradient && output.kind != OutputKind::saved)
        joint_.add_output(output);
    for (size_t i = 0; i < carried_.size(); ++i)
      joint_.add_output(carried_[i], OutputKind::saved, names_[i]);
    // A size is no value of the graph: the output names the symbol.
    for (const std::string& size : sizes_) joint_.add_output(nullptr, OutputKind::saved_size, size);
    for (size_t i = backward_nodes_.size(); i-- > 0;) joint_.erase(backward_nodes_[i]);
    ir::Values inputs = joint_.inputs();
    for (Value* input : inputs)
      if (ir::comes_with_backward(input->role)) joint_.erase_input(input);
  }

  ir::Graph& joint_;
  Halves halves_;
  std::vector<Node*> backward_nodes_;
  ir::Values carried_;
  std::vector<std::string> names_;  // of them, for reports
  std::vector<std::string> sizes_;
  DenseMap<Value, Value*> moved_;
};

}  // namespace

void split(ir::Graph& graph, GraphCtx&) { Splitter(graph).run(); }

}  // namespace tandem::passes
