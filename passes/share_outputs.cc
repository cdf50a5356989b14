// A caller may write to what it gets, or look whether two tensors are one memory; so what a graph
// returns must share memory as the program that was written says. A compiled program gives memory
// of its own. What is left is a small graph over the program's inputs and results, whose nodes are
// the views on the way from them to what was returned: a binding replays these on the tensors that
// are there after a call, and its autograd knows them as views.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/dense_map.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "passes/strides.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

struct Alias {
  const Value* parent = nullptr;  // null: the value is where its memory begins
  const Node* view = nullptr;     // null: it is the same tensor
};

bool ends_history(const Alias& alias) {
  return alias.view != nullptr &&
         (alias.view->no_grad || !ops::def_of(*alias.view).no_grad.empty());
}

/// What values of a graph share memory with, and how inputs are written. Nodes are noted in order.
class Aliases {
 public:
  explicit Aliases(const ir::Graph& graph) : strides_(graph) {}

  void note(const Node& node) {
    note_writes(node);
    const ops::OpDef& def = ops::def_of(node);
    if (!def.hands_on.empty()) return note_hook(node);
    if (def.functional != nullptr) return;
    if (node.op->is_view() || def.shows_self) return note_view(node);
    if (!node.op->mutates() || node.results.empty()) return note_copy(node);
    for (size_t i = 0; i < node.results.size(); ++i)
      aliases_[node.results[i]] = {written(node).at(i), nullptr};
  }

  Alias of(const Value* value) const { return aliases_.at(value); }
  /// The tensor that operators in place handed on.
  const Value* tensor(const Value* value) const {
    while (of(value).parent != nullptr && of(value).view == nullptr) value = of(value).parent;
    return value;
  }
  const Value* root(const Value* value) const {
    while (of(value).parent != nullptr) value = of(value).parent;
    return value;
  }
  ir::Writes writes(const Value* input) const { return writes_.at(input); }
  /// A front end knows best: it saw eager's tensors.
  ir::Sizes strides(const Value* value) const {
    return value->type.strides.empty() ? strides_.of(value) : value->type.strides;
  }
  /// Empty where it lies row-major, as far as is known. A view that counts in its operand's storage
  /// (as_strided) goes by them.
  ir::Sizes odd_strides(const Value* value) const {
    if (!value->type.is_tensor() || !strides_.knows(value)) return {};
    const ir::Sizes known = strides(value);
    return known == ir::contiguous_strides(value->type.sizes) ? ir::Sizes() : known;
  }
  /// Autograd sees a write to the detached alias, or below it.
  bool has_own_history(const Value* value) const { return own_.at(value) != 0; }
  bool is_hooked(const Value* root) const { return handed_on_.at(root) != 0; }
  /// The input that a custom function gave for a result of its own; null: none. The two are one
  /// memory, and the result's history is that of the function.
  const Value* handed_input(const Value* root) const {
    const Value* input = functions_.at(root);
    if (input == nullptr || input->role != ir::Role::input || input->constant) return nullptr;
    return writes(input).any() ? nullptr : input;
  }

 private:
  static std::vector<const Value*> written(const Node& node) {
    std::vector<const Value*> found;
    for (size_t i = 0; i < node.args.size(); ++i)
      if (node.op->schema.params[i].mutates)
        ir::for_each_operand({node.args[i]}, [&](const Value* v) { found.push_back(v); });
    return found;
  }

  void note_view(const Node& node) {
    if (std::holds_alternative<ir::Values>(node.args[0])) return note_views_of_list(node);
    const Value* self = std::get<Value*>(node.args[0]);
    // What counts in a storage shares it, whatever the order of self's dimensions there.
    if (strides_.storage_order(node, self).empty() && !strides_.shares_memory(node, self))
      return note_copy(node);
    for (const Value* result : node.results) aliases_[result] = {self, &node};
  }

  void note_copy(const Node& node) {
    for (const Value* result : node.results) strides_.note_format(node, result);
  }

  /// Each result shows an element of the list (broadcast_tensors).
  void note_views_of_list(const Node& node) {
    for (const Value* result : node.results)
      aliases_[result] = {std::get<ir::Values>(node.args[0]).at(result->index), &node};
  }

  void note_writes(const Node& node) {
    const bool is_beside = ops::def_of(node).functional != nullptr;  // running statistics
    for (const Value* target : written(node)) {
      if (hooked_.at(root(target)) != 0)
        throw Unsupported(
            fmt::format("[{}] writes to a view that has a hook", node.op->schema.full_name()),
            node.origin.place);
      if (locked_.at(root(target)) != 0)
        throw Unsupported(fmt::format("[{}] writes to memory that a custom autograd.Function took "
                                      "and gave",
                                      node.op->schema.full_name()),
                          node.origin.place);
      note_write(target, node.no_grad || is_beside);
    }
  }

  void note_write(const Value* target, bool no_grad) {
    const Value* end = target;
    while (end != nullptr && !ends_history(of(end))) end = of(end).parent;
    if (end != nullptr && !no_grad) own_[end] = 1;
    const Value* start = root(target);
    if (start->node != nullptr) return;
    ir::Writes& writes = writes_[start];
    bool& how = no_grad ? writes.no_grad : end != nullptr ? writes.hidden : writes.recorded;
    how = true;
  }

  /// A hook hands on what it is given; that has memory of its own here, in eager a view's.
  void note_hook(const Node& node) {
    const ir::Call call = node.call();
    const ir::Values& given = call.values(ops::def_of(node).hands_on);
    if (std::ranges::count(node.args, ir::Arg(given)) < 2) return note_function(node, given);
    for (size_t i = 0; i < given.size() && i < node.results.size(); ++i) {
      if (of(given[i]).parent == nullptr) continue;
      hooked_[root(given[i])] = hooked_[node.results[i]] = handed_on_[node.results[i]] = 1;
    }
  }

  /// A custom function may give what it was given, or a part of it. The program goes on with a
  /// value of its own, which does not see writes to the other one.
  void note_function(const Node& node, const ir::Values& given) {
    for (const Value* operand : node.call().values("inputs"))
      for (size_t i = 0; i < given.size(); ++i)
        if (given[i] != nullptr && root(given[i]) == root(operand)) {
          locked_[root(operand)] = locked_[node.results[i]] = 1;
          if (is_whole(given[i], operand)) functions_[node.results[i]] = input_of(operand);
        }
  }

  /// The input that the operand is, or that another function handed on; else null.
  const Value* input_of(const Value* operand) const {
    const Value* start = tensor(operand);
    return start->node == nullptr ? start : functions_.at(start);
  }

  /// All elements of the operand, as they lie there.
  bool is_whole(const Value* value, const Value* operand) const {
    const ir::Type& type = value->type;
    return strides_.knows(value) && type.dtype == operand->type.dtype &&
           type.sizes == operand->type.sizes && strides(value) == strides(operand);
  }

  EagerStrides strides_;
  DenseMap<Value, Alias> aliases_;
  DenseMap<Value, ir::Writes> writes_;       // inputs
  DenseMap<Value, char> locked_;             // roots: given by, and results of, custom functions
  DenseMap<Value, const Value*> functions_;  // results of these -> input
  DenseMap<Value, char> own_;
  DenseMap<Value, char> hooked_;     // roots: of views that have hooks, and what stands for them
  DenseMap<Value, char> handed_on_;  // roots: the latter
};

class SignatureWriter {
 public:
  SignatureWriter(ir::Graph& graph, const Aliases& aliases, bool differentiates)
      : graph_(graph),
        signature_(graph.module().add_graph(graph.module().free_name(graph.name() + "_signature"))),
        aliases_(aliases),
        differentiates_(differentiates) {
    signature_.set_role({ir::GraphRole::Kind::signature, graph.name()});
  }

  void write() {
    const std::vector<ir::Output> outputs = graph_.outputs();
    for (const ir::Output& output : outputs)
      if (is_given(output)) ++sharing_[aliases_.root(output.value)][aliases_.tensor(output.value)];
    graph_.clear_outputs();
    for (const Value* input : graph_.inputs())
      if (input->role != ir::Role::base) add_input(*input);  // no caller's
    for (const ir::Output& output : outputs)
      if (is_given(output))
        returned_.push_back(given(output));
      else
        rest_.push_back(output);
    for (const ir::Output& output : rest_) graph_.add_output(output);
    for (Value* value : returned_) signature_.add_output(value);
  }

 private:
  static bool is_given(const ir::Output& output) {
    return output.kind == ir::OutputKind::output && output.value != nullptr;
  }

  void add_input(const Value& input) {
    Value* made = signature_.add_input(input.name, input.type);
    made->writes = aliases_.writes(&input);
    known_[&input] = made;
  }

  /// In the signature: what the output is, taken of inputs and results.
  Value* given(const ir::Output& output) {
    const Value* value = aliases_.tensor(output.value);
    const Value* root = aliases_.root(value);
    if (aliases_.is_hooked(root)) throw Unsupported("a result is a view that has a hook");
    const Value* input = aliases_.handed_input(root);
    if (input != nullptr && known_[root] == nullptr) add_handed(root, input);
    if (root->node != nullptr && input == nullptr && sharing_[root].size() == 1) {
      const std::vector<int64_t>* order = output.order.empty() ? nullptr : &output.order;
      if (Value* result = alone(value, order)) return result;
    }
    if (root->node != nullptr && known_[root] == nullptr) add_base(root);
    give_histories(value);
    return replay(value);
  }

  /// A result of the program that the value is by itself; null where it has gaps, or is a part of
  /// its memory: the caller may ask where in it it begins.
  Value* alone(const Value* value, const std::vector<int64_t>* order) {
    if (known_[value] != nullptr) return known_[value];
    if (order != nullptr || !value->type.is_tensor())
      return add_result(value, order == nullptr ? std::vector<int64_t>() : *order);
    if (value->type.numel() != aliases_.root(value)->type.numel()) return nullptr;
    if (value->type.numel() == sym::Expr(0) && !is_made_so(value)) return nullptr;
    const std::optional<std::vector<int64_t>> dense =
        dense_order(value->type.sizes, aliases_.strides(value));
    return dense ? add_result(value, *dense) : nullptr;
  }

  /// Without elements there are no gaps; but a view keeps strides that no tensor is made with.
  bool is_made_so(const Value* value) const {
    const ir::Sizes made = ir::contiguous_strides(value->type.sizes);
    const ir::Sizes strides = aliases_.strides(value);
    for (size_t i = 0; i < made.size(); ++i)
      if (value->type.sizes[i] != sym::Expr(1) && strides[i] != made[i]) return false;
    return true;
  }

  void add_base(const Value* root) {
    const std::optional<std::vector<int64_t>> order =
        dense_order(root->type.sizes, aliases_.strides(root));
    if (!order)
      throw Unsupported(fmt::format("results share the memory of %{}, which has gaps", root->name));
    add_result(root, *order);
  }

  Value* add_result(const Value* value, const std::vector<int64_t>& order) {
    ir::Type type = value->type;
    if (type.is_tensor()) type.strides = strides_in(type.sizes, order);
    return add_result(value, type, order);
  }

  Value* add_result(const Value* value, const ir::Type& type, const std::vector<int64_t>& order) {
    const size_t number = graph_.outputs().size();
    Value* made = signature_.add_input(signature_.free_input_name(fmt::format("result{}", number)),
                                       type, ir::Role::result);
    made->subject = {ir::Subject::Kind::output, static_cast<uint32_t>(number)};
    graph_.add_output({const_cast<Value*>(value), ir::OutputKind::output, "", order});
    return known_[value] = made;
  }

  /// A result with a tangent, in the memory of an input.
  void add_handed(const Value* value, const Value* input) {
    if (!input->within.base.empty())
      throw Unsupported(fmt::format(
          "a custom autograd.Function gives its input %{}, which lies in the memory of %{}",
          input->name, input->within.base));
    ir::Type type = value->type;
    type.strides = aliases_.strides(input);
    add_result(value, type, {})->within = {input->name, 0};
  }

  static ir::Sizes strides_in(const ir::Sizes& sizes, const std::vector<int64_t>& order) {
    ir::Sizes strides(order.empty() ? 0 : sizes.size());
    sym::Expr step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[static_cast<size_t>(order[i])] = step;
      step = step * sizes[static_cast<size_t>(order[i])];
    }
    return strides;
  }

  /// A detached alias that was written with a history has this one, in the memory that it shares:
  ///   alias = with_history(result, detach(x)), where the result is the alias's own value.
  void give_histories(const Value* value) {
    for (const Value* at = value; at != nullptr; at = aliases_.of(at).parent) {
      const Alias alias = aliases_.of(at);
      if (!ends_history(alias)) continue;
      if (aliases_.has_own_history(at) && differentiates_) give_history(at);
      if (!alias.view->no_grad) return;  // what is above does not count
    }
  }

  void give_history(const Value* alias) {
    if (has_history_.at(alias) != 0) return;
    has_history_[alias] = 1;
    Value* memory = replay(alias);
    known_[alias] = nullptr;
    Value* history = add_result(alias, {});
    known_[alias] =
        ir::Builder(signature_).call("tandem.with_history", {history, memory})->results[0];
  }

  /// The views between an input or result and the value.
  Value* replay(const Value* value) {
    std::vector<const Value*> missing;
    for (const Value* at = value; known_[at] == nullptr; at = aliases_.of(at).parent)
      missing.push_back(at);
    for (size_t i = missing.size(); i-- > 0;) {
      const Alias alias = aliases_.of(missing[i]);
      if (alias.view == nullptr)
        known_[missing[i]] = known_[alias.parent];
      else if (known_[missing[i]] == nullptr)  // not one of several results
        copy(*alias.view, alias.parent);
    }
    return known_[value];
  }

  void copy(const Node& view, const Value* parent) {
    std::vector<ir::Arg> args;
    for (const ir::Arg& arg : view.args)
      args.push_back(ir::map_operands(arg, [&](const Value* operand) {
        return operand == parent ? known_[parent] : like(operand);
      }));
    Node* made = ir::clone_node_with_args(signature_, view, std::move(args), nullptr);
    made->region = 0;
    made->policy = ir::RecomputePolicy::none;
    for (size_t i = 0; i < view.results.size(); ++i) {
      if (aliases_.of(view.results[i]).parent != parent) continue;
      known_[view.results[i]] = made->results[i];
      made->results[i]->type.strides = aliases_.odd_strides(view.results[i]);
    }
  }

  /// Of another operand than what is viewed only the sizes count (view_as).
  Value* like(const Value* operand) {
    if (operand->node == nullptr) return known_[operand];
    ir::Builder builder(signature_);
    const ops::Tensor number =
        ops::call(builder, "aten.full", {ir::Ints{}, 0, operand->type.dtype});
    return ops::call(builder, "aten.expand", {number, operand->type.sizes}).value();
  }

  ir::Graph& graph_;
  ir::Graph& signature_;
  const Aliases& aliases_;
  bool differentiates_;
  std::map<const Value*, std::map<const Value*, int>> sharing_;  // root -> tensors: only counted
  DenseMap<Value, Value*> known_;      // of the program -> of the signature
  DenseMap<Value, char> has_history_;  // detached aliases: what is known has their own
  std::vector<ir::Output> rest_;
  ir::Values returned_;
};

bool differentiates(const ir::Graph& graph, const GraphCtx& ctx) {
  return ctx.gradients != Gradients::none &&
         std::ranges::any_of(graph.inputs(), [](const Value* v) { return v->requires_grad; });
}

}  // namespace

void share_outputs(ir::Graph& graph, GraphCtx& ctx) {
  if (graph.module().find(ir::GraphRole::Kind::signature, graph) != nullptr) return;
  Aliases aliases(graph);
  for (const Node* node = graph.first(); node != nullptr; node = node->next) aliases.note(*node);
  SignatureWriter(graph, aliases, differentiates(graph, ctx)).write();
}

}  // namespace tandem::passes
