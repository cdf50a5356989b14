// With c the carried values, x the operands and t the tangents of the loop
//   n = number of steps;  t = gradient(t, saved(c_k), x) for k = n - 1, …, 0
// is, written with loops that keep nothing:
//   (n, _) = (0, c); while condition(c, x): (n + 1, body(c, x))
//   (_, t) = (n, t); while n > 0: (n - 1, gradient(t, saved(c_(n-1)), x)), where
//   (_, c_k) = (0, c); while i < k: (i + 1, body(c, x))
// What c_k needs was let go long ago, and nothing could hold it: only data tell how many there are.
#include "passes/nested_loops.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ops/bodies.h"
#include "passes/copied.h"

namespace tandem::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;
using ir::Values;
using ops::Tensor;

const ir::Type kNumber = ir::Type::tensor(DType::i64, {});
const ir::Type kFlag = ir::Type::tensor(DType::boolean, {});

std::vector<ir::Type> types_of(const Values& values) {
  std::vector<ir::Type> types;
  for (const Value* value : values)
    types.push_back(ir::Type::tensor(value->type.dtype, value->type.sizes));
  return types;
}

Values joined(std::initializer_list<Values> lists) {
  Values all;
  for (const Values& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

class Nest {
 public:
  Nest(Graph& graph, const Node& node)
      : graph_(graph),
        module_(graph.module()),
        node_(node),
        carried_(node.call().values("carried")),
        operands_(node.call().values("operands")),
        condition_(body("condition")),
        saving_(body("saving")),
        gradient_(body("gradient")) {}

  Node* write(Node* before) {
    const Graph& condition = condition_of_count();
    const Graph& step = counted_step();
    ir::Builder builder(graph_, before);
    builder.stamp() = ir::Builder::stamp_of(node_);
    builder.stamp().no_grad = true;  // a number of steps has no gradient
    Value* zero = number(builder, 0).value();
    Node* count = loop(builder, joined({{zero}, carried_}), operands_, condition, step);
    builder.stamp().no_grad = node_.no_grad;
    const Graph& back = step_back();
    return loop(builder, joined({{count->results[0]}, node_.call().values("tangents")}),
                joined({carried_, operands_}), is_positive(), back);
  }

 private:
  const Graph& body(std::string_view parameter) const {
    const Graph& found = *module_.find(node_.call().string(parameter));
    for (const Value* input : found.inputs())
      if (input->role == ir::Role::seed)
        throw Unsupported(
            "[tandem::while_loop] has no gradients beyond the first (create_graph=True) where a "
            "step draws random numbers",
            node_.origin.place);
    return found;
  }

  Graph& add_graph(std::string_view what) {
    return module_.add_graph(module_.free_name(fmt::format("{}_{}", condition_.name(), what)));
  }

  static Tensor number(ir::Builder& builder, int64_t value) {
    return ops::call(builder, "aten.full", {ir::Ints{}, value, DType::i64});
  }

  static Tensor moved_by(ir::Builder& builder, Value* value, int64_t step) {
    return ops::call(builder, "aten.add.Scalar", {Tensor(builder, value), step});
  }

  static Node* loop(ir::Builder& builder, const Values& carried, const Values& operands,
                    const Graph& condition, const Graph& step) {
    return builder.call_typed(*builder.graph().ops().find("tandem.while_loop"),
                              {carried, operands, condition.name(), step.name(), sym::Expr(0),
                               ir::None{}, std::string(), std::string()},
                              types_of(carried));
  }

  static Values add_inputs(Graph& graph, const std::string& name, const Values& like) {
    Values inputs;
    for (const ir::Type& type : types_of(like))
      inputs.push_back(graph.add_input(fmt::format("{}{}", name, inputs.size()), type));
    return inputs;
  }

  /// The results of `from`, whose tensors are `given`, in `to`.
  static Values run(const Graph& from, Graph& to, const Values& given) {
    Moved moved;
    const Values taken = tensors_of(from);
    for (size_t i = 0; i < taken.size(); ++i) moved[taken[i]] = given.at(i);
    copy_nodes(from, to, moved);
    Values results;
    for (const ir::Output& output : from.outputs()) results.push_back(at(moved, output.value));
    return results;
  }

  /// A number that counts, c, x -> condition(c, x).
  const Graph& condition_of_count() {
    Graph& made = add_graph("while");
    made.add_input("step", kNumber);
    const Values carried = add_inputs(made, "c", carried_);
    const Values given = joined({carried, add_inputs(made, "x", operands_)});
    made.add_output(run(condition_, made, given).at(0));
    return made;
  }

  /// step, c, x, more -> step + 1, body(c, x).
  void give_step(Graph& made, Value* step, const Values& given) const {
    ir::Builder builder(made);
    made.add_output(moved_by(builder, step, 1).value());
    Values results = run(saving_, made, given);
    results.resize(carried_.size());
    for (Value* result : results) made.add_output(result);
  }

  const Graph& counted_step() {
    Graph& made = add_graph("count");
    Value* step = made.add_input("step", kNumber);
    const Values carried = add_inputs(made, "c", carried_);
    give_step(made, step, joined({carried, add_inputs(made, "x", operands_)}));
    return made;
  }

  /// step, c, x, k -> step < k.
  const Graph& is_before() {
    Graph& made = add_graph("before");
    Value* step = made.add_input("step", kNumber);
    add_inputs(made, "c", carried_);
    add_inputs(made, "x", operands_);
    ir::Builder builder(made);
    Value* end = made.add_input("k", kNumber);
    made.add_output(
        ops::call(builder, "aten.lt.Tensor", {Tensor(builder, step), Tensor(builder, end)})
            .value());
    return made;
  }

  const Graph& step_before() {
    Graph& made = add_graph("again");
    Value* step = made.add_input("step", kNumber);
    const Values carried = add_inputs(made, "c", carried_);
    const Values operands = add_inputs(made, "x", operands_);
    made.add_input("k", kNumber);
    give_step(made, step, joined({carried, operands}));
    return made;
  }

  /// k, t, c, x -> k > 0.
  const Graph& is_positive() {
    Graph& made = add_graph("left");
    ir::Builder builder(made);
    Value* left = made.add_input("k", kNumber);
    add_inputs(made, "t", node_.call().values("tangents"));
    add_inputs(made, "c", carried_);
    add_inputs(made, "x", operands_);
    made.add_output(ops::call(builder, "aten.gt.Scalar", {Tensor(builder, left), 0}).value());
    return made;
  }

  /// k, t, c, x -> k - 1, gradient(t, saved(c_(k-1)), x).
  const Graph& step_back() {
    const Graph& condition = is_before();
    const Graph& again = step_before();
    Graph& made = add_graph("back");
    Value* left = made.add_input("k", kNumber);
    const Values tangents = add_inputs(made, "t", node_.call().values("tangents"));
    const Values start = add_inputs(made, "c", carried_);
    const Values operands = add_inputs(made, "x", operands_);
    ir::Builder builder(made);
    Value* last = moved_by(builder, left, -1).value();
    Value* zero = number(builder, 0).value();
    Values carried =
        loop(builder, joined({{zero}, start}), joined({operands, {last}}), condition, again)
            ->results;
    carried.erase(carried.begin());
    Values kept = run(saving_, made, joined({carried, operands}));
    kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(carried_.size()));
    made.add_output(last);
    for (Value* result : run(gradient_, made, joined({tangents, kept, operands})))
      made.add_output(result);
    return made;
  }

  Graph& graph_;
  ir::Module& module_;
  const Node& node_;
  Values carried_;
  Values operands_;
  const Graph& condition_;
  const Graph& saving_;
  const Graph& gradient_;
};

}  // namespace

ir::Node* nested_loops(ir::Graph& graph, ir::Node* node) {
  Node* made = Nest(graph, *node).write(node);
  for (size_t i = 0; i < node->results.size(); ++i)
    graph.replace_all_uses(node->results[i], made->results[i + 1]);
  graph.erase(node);
  return made;
}

}  // namespace tandem::passes
