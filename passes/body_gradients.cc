// Problem: reverse mode goes through nodes, and a loop is a node that runs a graph as often as data
// say. Approach: the gradient of a loop is a loop over the gradient of its body. The body, as a
// graph, gets its joint graph, which the partition cuts in two; what its forward half saves at each
// step becomes a further row of the forward loop, what it saves of its inputs the backward loop
// reads itself. A loop that data end has no rows: nobody knows how many. Its backward node runs the
// forward half again. A call is a loop of one step: what its forward half saves become results, and
// calls of one body have one gradient. ops/control.cc has the equation, and writes the backward
// node; here the graphs are made that it names. A branch has no rows to save in, as its two sides
// save different things: its gradient runs the side's forward once more.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/bodies.h"
#include "passes/copied.h"
#include "passes/nested_loops.h"
#include "passes/numbers_again.h"
#include "passes/passes.h"
#include "passes/reverse_mode.h"

namespace tandem::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::OutputKind;
using ir::Role;
using ir::Subject;
using ir::Value;
using ops::Tensor;

/// Of the body alone, whoever else runs it. What is a tangent to it is an input like others here.
Graph& copy_of(const Graph& body) {
  ir::Module& module = body.module();
  Graph& copy = module.add_graph(module.free_name(body.name() + "_forward"));
  Moved moved;
  for (const Value* input : body.inputs())
    moved[input] = copy.add_input(input->name, input->type,
                                  input->role == Role::seed ? Role::seed : Role::input);
  copy_nodes(body, copy, moved);
  for (const ir::Output& output : body.outputs())
    copy.add_output({at(moved, output.value), OutputKind::output, "", output.order});
  return copy;
}

/// A graph that gives gradients of operands of a node, by number.
class GradientGraph {
 public:
  explicit GradientGraph(const Graph& of)
      : operands_(tensors_of(of)),
        graph_(of.module().add_graph(of.module().free_name(of.name() + "_gradient"))) {
    graph_.set_role({ir::GraphRole::Kind::backward, of.name()});
  }

  Graph& graph() { return graph_; }
  Moved& moved() { return moved_; }

  /// An input, which stands for `from` where that is not null.
  Value* add(const std::string& name, const ir::Type& type, Role role, Subject subject,
             const Value* from) {
    Value* input = graph_.add_input(graph_.free_input_name(name),
                                    ir::Type::tensor(type.dtype, type.sizes), role);
    input->subject = subject;
    if (from != nullptr) moved_[from] = input;
    return input;
  }

  void add_number(const Value* from) {
    moved_[from] = graph_.add_input(graph_.free_input_name(from->name), from->type, from->role);
  }

  /// `gradient` of the graph that was copied; null: zeros. `sum`: what it is added to, or null.
  void give(size_t operand, Value* gradient, Value* sum) {
    ir::Builder builder(graph_);
    const ir::Type& type = operands_[operand]->type;
    Tensor value = gradient != nullptr ? Tensor(builder, at(moved_, gradient)) : Tensor();
    if (sum != nullptr) value = value ? Tensor(builder, sum) + value : Tensor(builder, sum);
    if (!value) value = ops::full(builder, type.sizes, 0, type.dtype);
    graph_.add_output({value.value(),
                       OutputKind::gradient,
                       operands_[operand]->name,
                       {},
                       {Subject::Kind::input, static_cast<uint32_t>(operand)}});
  }

 private:
  ir::Values operands_;
  Graph& graph_;
  Moved moved_;
};

/// By operand, what the joint graph of a body, or its backward half, gives.
std::map<size_t, Value*> gradients_in(const Graph& graph, const Graph& body) {
  std::map<uint32_t, size_t> numbers;
  const ir::Values operands = tensors_of(body);
  for (size_t i = 0; i < operands.size(); ++i) numbers[operands[i]->index] = i;
  std::map<size_t, Value*> found;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == OutputKind::gradient && output.value != nullptr)
      found[numbers.at(output.subject.number)] = output.value;
  return found;
}

const Value* tangent_of(const Graph& graph, size_t result) {
  for (const Value* input : graph.inputs())
    if (input->role == Role::tangent && input->subject.kind == Subject::Kind::output &&
        input->subject.number == result)
      return input;
  return nullptr;
}

Subject output_number(size_t number) {
  return {Subject::Kind::output, static_cast<uint32_t>(number)};
}
Subject input_number(size_t number) {
  return {Subject::Kind::input, static_cast<uint32_t>(number)};
}

/// A fraction holds for a body as for the graph. What a step holds in bytes a body cannot know, and
/// of a partition of the caller's it is no graph.
GraphCtx ctx_of_body(const GraphCtx& ctx) {
  GraphCtx own;
  own.gradients = Gradients::tangents;
  const bool is_of_whole =
      ctx.partition == Partition::caller ||
      (ctx.partition == Partition::budget && ctx.budget.kind == Budget::Kind::bytes);
  own.partition = is_of_whole ? Partition::priced : ctx.partition;
  if (ctx.partition == Partition::none) own.partition = Partition::standard;
  own.budget = ctx.budget;
  own.target = ctx.target;
  own.multiplies_bytes = ctx.multiplies_bytes;
  return own;
}

/// `wanted`: by operand of the node, whether its gradient is asked for.
Graph& joint_of(const Graph& body, const std::vector<char>& wanted, GraphCtx& ctx) {
  Graph& copy = copy_of(body);
  decompose_composite(copy, ctx);
  const ir::Values operands = tensors_of(copy);
  for (size_t i = 0; i < operands.size(); ++i) operands[i]->requires_grad = wanted[i] != 0;
  body_gradients(copy, ctx);
  joint(copy, ctx);
  return copy;
}

// --- branches

/// Of one side, with operands that either side may read.
std::string branch_gradient(const Graph& body, const std::vector<char>& wanted, GraphCtx& ctx) {
  Graph& joined = joint_of(body, wanted, ctx);
  GradientGraph gradient(body);
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    const ir::Type& type = body.outputs()[i].value->type;
    if (is_float(type.dtype))
      gradient.add(fmt::format("tangent{}", i), type, Role::tangent, output_number(i),
                   tangent_of(joined, i));
  }
  const ir::Values operands = tensors_of(joined);
  size_t number = 0;
  for (const Value* operand : operands)
    if (operand->role != Role::tangent) {
      gradient.add(operand->name, operand->type, Role::saved, input_number(number), operand);
      ++number;
    }
  for (const Value* input : joined.inputs())
    if (!input->type.is_tensor()) gradient.add_number(input);
  copy_nodes(joined, gradient.graph(), gradient.moved());
  std::map<size_t, Value*> found = gradients_in(joined, body);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != 0) gradient.give(i, found.count(i) != 0 ? found.at(i) : nullptr, nullptr);
  dce(gradient.graph(), ctx);
  body.module().erase(joined.name());
  return gradient.graph().name();
}

void set_text(Graph& graph, Node* node, std::string_view parameter, const std::string& text) {
  graph.set_arg(node, static_cast<size_t>(node->op->schema.find(parameter)), text);
}

void differentiate_branches(Graph& graph, Node* node, const std::vector<char>& wanted,
                            GraphCtx& ctx) {
  for (std::string_view side : ops::def_of(*node).runs) {
    const Graph& body = *graph.module().find(node->call().string(side));
    set_text(graph, node, std::string(side) + "_gradient", branch_gradient(body, wanted, ctx));
  }
}

// --- loops and calls

ops::RouteKind kind_of(const Node& node) { return ops::def_of(node).fast.at(0).kind; }

size_t count_of(const Node& node, std::string_view list) {
  return node.op->schema.find(list) < 0 ? 0 : node.call().values(list).size();
}

class LoopGradient {
 public:
  LoopGradient(const Node& node, Graph& forward, const Graph& backward)
      : kind_(kind_of(node)),
        carried_(count_of(node, "carried")),
        rows_(carried_ + count_of(node, "rows")),
        operands_(tensors_of(forward)),
        results_(node.results.size()),
        forward_(forward),
        backward_(backward),
        gradient_(forward) {}

  /// Gives the name of the gradient graph.
  std::string run(const std::vector<char>& wanted) {
    const ir::Values sums = add_carried(wanted);
    const std::vector<const Value*> saved = saved_values();
    add_rows(saved);
    add_operands(saved);
    copy_nodes(backward_, gradient_.graph(), gradient_.moved());
    give(wanted, sums);
    return gradient_.graph().name();
  }

  /// What the forward gives behind the results of the node: a row each.
  const ir::Values& columns() const { return columns_; }

 private:
  bool is_float_result(size_t i) const { return is_float(forward_.outputs()[i].value->type.dtype); }

  /// Gradients of what is carried, then a sum for each operand; a call has nothing to add up.
  ir::Values add_carried(const std::vector<char>& wanted) {
    for (size_t i = 0; i < carried_; ++i)
      if (is_float_result(i))
        gradient_.add(fmt::format("tangent{}", i), operands_[i]->type, Role::tangent,
                      output_number(i), tangent_of(backward_, i));
    ir::Values sums(operands_.size(), nullptr);
    if (kind_ == ops::RouteKind::call) return sums;
    for (size_t i = rows_; i < operands_.size(); ++i)
      if (wanted[i] != 0)
        sums[i] = gradient_.add("sum_" + operands_[i]->name, operands_[i]->type, Role::tangent,
                                input_number(i), nullptr);
    return sums;
  }

  /// Values of the forward half, in the order in which the backward half takes them.
  std::vector<const Value*> saved_values() const {
    std::vector<const Value*> saved;
    for (const ir::Output& output : forward_.outputs())
      if (output.kind == OutputKind::saved) saved.push_back(output.value);
    return saved;
  }

  /// The backward half's input for saved value `i`: behind the saved sizes.
  const Value* taken(size_t i) const {
    size_t sizes = 0;
    for (const ir::Output& output : forward_.outputs())
      sizes += output.kind == OutputKind::saved_size;
    return backward_.inputs().at(sizes + i);
  }

  size_t operand_number(const Value* value) const {
    return static_cast<size_t>(std::ranges::find(operands_, value) - operands_.begin());
  }

  /// The number of the result that has the value in its rows; a new one where there is none.
  size_t column_of(const Value* value) {
    for (size_t i = carried_; i < results_; ++i)
      if (forward_.outputs()[i].value == value) return i;
    columns_.push_back(const_cast<Value*>(value));
    return results_ + columns_.size() - 1;
  }

  void add_rows(const std::vector<const Value*>& saved) {
    for (size_t i = carried_; i < results_; ++i)
      if (const Value* tangent = tangent_of(backward_, i))
        gradient_.add(tangent->name, tangent->type, Role::tangent, output_number(i), tangent);
    for (size_t i = 0; i < saved.size(); ++i) {
      const size_t number = operand_number(saved[i]);
      if (!saved[i]->type.is_tensor() || (number >= rows_ && number < operands_.size())) continue;
      const bool is_row = number >= carried_ && number < rows_;
      const Subject subject = is_row ? input_number(number) : output_number(column_of(saved[i]));
      gradient_.add(fmt::format("saved{}", i), saved[i]->type, Role::saved, subject, taken(i));
    }
  }

  /// Those that the gradient reads; a loop that data end has all of them at hand.
  void add_operands(const std::vector<const Value*>& saved) {
    for (size_t i = rows_; i < operands_.size(); ++i) {
      const size_t number =
          static_cast<size_t>(std::ranges::find(saved, operands_[i]) - saved.begin());
      const bool is_saved = number < saved.size();
      if (is_saved || kind_ == ops::RouteKind::repeat)
        gradient_.add(operands_[i]->name, operands_[i]->type, Role::saved, input_number(i),
                      is_saved ? taken(number) : nullptr);
    }
    for (size_t i = 0; i < saved.size(); ++i) {
      if (saved[i]->type.is_tensor()) continue;
      gradient_.add_number(saved[i]);
      gradient_.moved()[taken(i)] = gradient_.moved().at(saved[i]);
    }
  }

  void give(const std::vector<char>& wanted, const ir::Values& sums) {
    const std::map<size_t, Value*> found = gradients_in(backward_, forward_);
    const auto give = [&](size_t i) {
      gradient_.give(i, found.count(i) != 0 ? found.at(i) : nullptr, sums[i]);
    };
    for (size_t i = 0; i < carried_; ++i)
      if (is_float_result(i)) give(i);
    for (size_t i = rows_; i < operands_.size(); ++i)
      if (wanted[i] != 0) give(i);
    for (size_t i = carried_; i < rows_; ++i)
      if (wanted[i] != 0) give(i);
  }

  ops::RouteKind kind_;
  size_t carried_;  // operands, and results, before the rows
  size_t rows_;     // operands before those that are the same at each step
  ir::Values operands_;
  size_t results_;
  Graph& forward_;
  const Graph& backward_;
  GradientGraph gradient_;
  ir::Values columns_;
};

/// The halves of the body: what it gives becomes what it gave, then columns.
void set_outputs(Graph& forward, const ir::Values& columns, size_t results) {
  const std::vector<ir::Output> outputs = forward.outputs();
  forward.clear_outputs();
  for (size_t i = 0; i < results; ++i) forward.add_output(outputs[i].value);
  for (Value* column : columns) forward.add_output(column);
}

/// What a loop over rows, or a call, runs once it has a gradient.
struct Halves {
  std::string forward;
  std::string gradient;
  std::vector<ir::Type> columns;  // of one step
};

/// By body and what is wanted of it.
using CallGradients = std::map<std::pair<std::string, std::vector<char>>, Halves>;

void give_columns(Graph& graph, Node* node, const Halves& halves) {
  std::vector<ir::Type> types;
  for (const Value* result : node->results) types.push_back(result->type);
  for (const ir::Type& column : halves.columns) {
    ir::Sizes sizes = column.sizes;
    if (kind_of(*node) == ops::RouteKind::rows)
      sizes.insert(sizes.begin(), node->call().values("rows")[0]->type.sizes[0]);
    types.push_back(ir::Type::tensor(column.dtype, std::move(sizes)));
  }
  Node* made = graph.insert_typed(*node->op, node->args, std::move(types), node);
  made->origin = node->origin;
  made->backward = node->backward;
  made->region = node->region;
  made->policy = node->policy;
  made->memory_budget = node->memory_budget;
  set_text(graph, made, "body", halves.forward);
  set_text(graph, made, "gradient", halves.gradient);
  for (size_t i = 0; i < node->results.size(); ++i)
    graph.replace_all_uses(node->results[i], made->results[i]);
  graph.erase(node);
}

Halves halves_of(const Graph& graph, const Node& node, const std::vector<char>& wanted,
                 GraphCtx& ctx) {
  ir::Module& module = graph.module();
  const Graph& body = *module.find(node.call().string("body"));
  Graph& forward = joint_of(body, wanted, ctx);
  decompose_core(forward, ctx);
  constant_fold(forward, ctx);
  cse(forward, ctx);
  dce(forward, ctx);
  region_budgets(forward, ctx);
  choose(forward, ctx);
  remat(forward, ctx);
  read_numbers_again(forward);
  split(forward, ctx);
  const Graph& backward = *module.find(ir::GraphRole::Kind::backward, forward);
  LoopGradient gradient(node, forward, backward);
  Halves halves{forward.name(), gradient.run(wanted), {}};
  set_outputs(forward, gradient.columns(), node.results.size());
  for (const Value* column : gradient.columns()) halves.columns.push_back(column->type);
  module.erase(backward.name());
  return halves;
}

void differentiate_loop(Graph& graph, Node* node, std::vector<char> wanted, GraphCtx& ctx) {
  const Graph& body = *graph.module().find(node->call().string("body"));
  const ir::Values operands = tensors_of(body);
  // Any step may hand a history on to what is carried.
  for (size_t i = 0; i < node->call().values("carried").size(); ++i)
    wanted[i] = is_float(operands[i]->type.dtype);
  const Halves halves = halves_of(graph, *node, wanted, ctx);
  if (kind_of(*node) == ops::RouteKind::rows) return give_columns(graph, node, halves);
  set_text(graph, node, "saving", halves.forward);
  set_text(graph, node, "gradient", halves.gradient);
}

void differentiate_call(Graph& graph, Node* node, const std::vector<char>& wanted,
                        CallGradients& calls, GraphCtx& ctx) {
  const auto [at, is_new] = calls.try_emplace(std::pair(node->call().string("body"), wanted));
  if (is_new) at->second = halves_of(graph, *node, wanted, ctx);
  give_columns(graph, node, at->second);
}

/// `wanted`: of what the loop carried and its operands, then of the tangents.
void differentiate_backward(Graph& graph, Node* node, const std::vector<char>& wanted,
                            GraphCtx& ctx) {
  const auto tangents =
      wanted.end() - static_cast<std::ptrdiff_t>(node->call().values("tangents").size());
  std::vector<char> of_loop{0};  // of the number
  of_loop.insert(of_loop.end(), tangents, wanted.end());
  of_loop.insert(of_loop.end(), wanted.begin(), tangents);
  differentiate_loop(graph, nested_loops(graph, node), std::move(of_loop), ctx);
}

/// By operand of the node's bodies.
std::vector<char> wanted_of(const Node& node, const ReverseMode& reverse) {
  std::vector<char> wanted;
  for (std::string_view list : {"carried", "rows", "operands", "tangents"})
    if (node.op->schema.find(list) >= 0)
      for (const Value* value : node.call().values(list)) wanted.push_back(reverse.needs(value));
  return wanted;
}

void differentiate(Graph& graph, Node* node, std::vector<char> wanted, CallGradients& calls,
                   GraphCtx& ctx) {
  GraphCtx own = ctx_of_body(ctx);
  switch (kind_of(*node)) {
    case ops::RouteKind::branch: return differentiate_branches(graph, node, wanted, own);
    case ops::RouteKind::repeat:
    case ops::RouteKind::rows: return differentiate_loop(graph, node, std::move(wanted), own);
    case ops::RouteKind::repeat_backward: return differentiate_backward(graph, node, wanted, own);
    case ops::RouteKind::call: return differentiate_call(graph, node, wanted, calls, own);
    default: return;  // its rule says why there is no gradient
  }
}

}  // namespace

void body_gradients(ir::Graph& graph, GraphCtx& ctx) {
  std::vector<Node*> nodes;
  for (Node* node = graph.first(); node != nullptr; node = node->next) nodes.push_back(node);
  ir::Builder builder(graph);
  ReverseMode reverse(builder);
  for (const Value* input : graph.inputs())
    if (input->requires_grad) reverse.mark(input);
  reverse.find_needs(nodes);
  std::vector<std::pair<Node*, std::vector<char>>> found;  // all, before the first is replaced
  for (Node* node : nodes)
    if (!ops::def_of(*node).runs.empty() && !node->no_grad)
      found.emplace_back(node, wanted_of(*node, reverse));
  CallGradients calls;
  for (auto& [node, wanted] : found)
    if (std::ranges::count(wanted, 1) > 0)
      differentiate(graph, node, std::move(wanted), calls, ctx);
}

}  // namespace tandem::passes
