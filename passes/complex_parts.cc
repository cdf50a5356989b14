// Problem: loops, gradients and kernels know real numbers alone. Approach: each complex value is
// two real ones, and a node over complex values is written once more over these, by the rule that
// its op names (ops/complex.h); composites without a rule are asked for their parts. In memory a
// complex number is its real part and the imaginary one behind it, so an input becomes a real
// tensor with two parts along a last dimension, and so does a result: as the signature says then.
// Gradients follow from the parts, and are those of PyTorch: d/dre + i d/dim.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/diagnostic.h"
#include "ops/opdef.h"
#include "passes/decompose.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::ComplexParts;
using ops::Tensor;

bool is_complex(const Value* value) { return tandem::is_complex(value->type.dtype); }

bool concerns(const Node& node) {
  if (ops::is_parted(ops::def_of(node))) return true;
  bool found = std::ranges::any_of(node.results, [](const Value* v) { return is_complex(v); });
  ir::for_each_operand(node.args, [&](const Value* value) { found |= is_complex(value); });
  return found;
}

/// The type of the real tensor that holds the parts.
ir::Type type_of_parts(const ir::Type& type) {
  ir::Type parts = type;
  parts.dtype = part_type(type.dtype);
  parts.sizes.emplace_back(2);
  if (type.strides.empty()) return parts;
  for (sym::Expr& stride : parts.strides) stride = stride * 2;
  parts.strides.emplace_back(1);
  return parts;
}

/// From here on it is real, and its readers read a view of it, which this gives.
Value* take_parts(ir::Graph& graph, Value* input) {
  if (!input->within.base.empty())
    throw Unsupported(
        fmt::format("complex input %{} shares the memory of one that is written", input->name));
  ir::Builder builder(graph, graph.first());
  const ir::Type whole = input->type;
  input->type = type_of_parts(whole);
  Value* seen = builder.call("aten.view_as_complex", {input})->results[0];
  seen->type.strides = whole.strides;
  Node* const view = seen->node;
  graph.replace_all_uses(input, seen);
  graph.set_arg(view, 0, input);
  return seen;
}

class Parting {
 public:
  explicit Parting(ir::Graph& graph) : graph_(graph) {}

  /// `value` is the complex one that a real one holds.
  void note_whole(const Value* value, Value* real) { wholes_[value] = real; }

  /// The node to go on with.
  Node* visit(Node* node) {
    Node* const next = node->next;
    if (node->op->mutates()) return write(node);
    const ops::OpDef& def = ops::def_of(*node);
    if (def.complex.composition != nullptr) return decompose(graph_, node, def.complex.composition);
    if (is_composite(*node) && (!def.complex.is_said() || def.composite != nullptr))
      return decompose(graph_, node);
    const ops::ComplexForm& form = form_of(*node);
    if (form.rule == nullptr)
      throw Unsupported(
          fmt::format("[{}] of complex numbers is not supported", node->op->schema.full_name()),
          node->origin.place);
    ir::Builder builder(graph_, node);
    builder.stamp() = ir::Builder::stamp_of(*node);
    const ir::Call call = node->call();
    const auto find = [&](const Value* value) { return of(builder, value); };
    set(*node, form.rule({builder, call, form, find}));
    return next;
  }

  /// Nodes read one another: last ones first.
  void erase_old() {
    for (size_t i = old_.size(); i-- > 0;) graph_.erase(old_[i]);
  }

  /// One tensor of both parts, for what leaves the graph.
  Value* whole(const Value* value, Node* before) {
    const auto held = wholes_.find(value);
    if (held != wholes_.end()) return held->second;
    ir::Builder builder(graph_, before);
    return ops::stacked(of(builder, value)).value();
  }

 private:
  static const ops::ComplexForm& form_of(const Node& node) {
    static const ops::ComplexForm each{ops::complex_each};
    const ops::OpDef& def = ops::def_of(node);
    const bool moves = node.op->is_view() || def.order != nullptr || def.keeps_order || def.repeats;
    return !def.complex.is_said() && moves ? each : def.complex;
  }

  ComplexParts of(ir::Builder& builder, const Value* value) const {
    if (!is_complex(value)) return {Tensor(builder, const_cast<Value*>(value)), Tensor()};
    const auto [re, im] = parts_.at(value);
    return {Tensor(builder, re), Tensor(builder, im)};
  }

  void set(Node& node, const ops::ComplexResults& results) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (is_complex(node.results[i]))
        parts_[node.results[i]] = {results.at(i).re.value(), results.at(i).im.value()};
      else
        graph_.replace_all_uses(node.results[i], results.at(i).re.value());
    }
    old_.push_back(&node);
  }

  /// Behind functionalize: the new value of an input.
  Node* write(Node* node) {
    Node* const next = node->next;
    Value* const seen = std::get<Value*>(node->args[0]);
    Value* const input = std::get<Value*>(seen->node->args[0]);
    ir::Builder builder(graph_, node);
    builder.stamp() = ir::Builder::stamp_of(*node);
    builder.call("aten.copy_", {input, whole(std::get<Value*>(node->args[1]), node)});
    old_.push_back(node);
    return next;
  }

  ir::Graph& graph_;
  std::map<const Value*, std::pair<Value*, Value*>> parts_;  // looked up only
  std::map<const Value*, Value*> wholes_;                    // as well
  std::vector<Node*> old_;
};

/// The caller sees complex numbers in the result that the program gives.
void take_result(const ir::Graph& graph, size_t number) {
  ir::Graph* signature = graph.module().find(ir::GraphRole::Kind::signature, graph);
  if (signature == nullptr) return;
  for (Value* input : signature->inputs())
    if (input->role == ir::Role::result && input->subject.number == number)
      take_parts(*signature, input);
}

void give_parts(ir::Graph& graph, Parting& parting) {
  const std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    ir::Output output = outputs[i];
    if (output.value != nullptr && is_complex(output.value)) {
      take_result(graph, i);
      if (!output.order.empty()) output.order.push_back(output.value->type.rank());
      output.value = parting.whole(output.value, nullptr);
    }
    graph.add_output(output);
  }
}

bool has_complex(const ir::Graph& graph) {
  const ir::Values& inputs = graph.inputs();
  if (std::ranges::any_of(inputs, [](const Value* v) { return is_complex(v); })) return true;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (concerns(*node)) return true;
  return false;
}

}  // namespace

void complex_parts(ir::Graph& graph, GraphCtx&) {
  if (!has_complex(graph)) return;
  const ir::Values inputs = graph.inputs();
  Parting parting(graph);
  for (Value* input : inputs)
    if (is_complex(input)) parting.note_whole(take_parts(graph, input), input);
  for (Node* node = graph.first(); node != nullptr;)
    node = concerns(*node) ? parting.visit(node) : node->next;
  give_parts(graph, parting);
  parting.erase_old();
}

}  // namespace tandem::passes
