// Problem: a function of one row is to run on all rows of its operands. Approach: its nodes are
// written once more, in the place of the call, on values that have the rows in front: pointwise
// ones broadcast, others by the rule that their op names (ops/batch.h). What no operand gives rows
// stays as it is, and is the same for all. Of composite ops without a rule for the call the parts
// are asked; what then has none is a scan that carries nothing: a loop over the rows, of that node.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/diagnostic.h"
#include "ir/data_sizes.h"
#include "ops/bodies.h"
#include "passes/copied.h"
#include "passes/decompose.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;
using ops::BatchedCall;
using ops::Tensor;
using ops::Tensors;

bool has_rule(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  return def.pointwise || def.batch != nullptr;
}

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw Unsupported(fmt::format("[vmap] {} {}", node.op->schema.full_name(), why),
                    node.origin.place);
}

/// Those that would be something else for several rows at once.
void check(const ir::Graph& body) {
  for (const Value* input : body.inputs())
    if (input->role == ir::Role::seed)
      throw Unsupported(fmt::format(
          "[vmap] @{} draws random numbers, whose rows may be one or many: draw them outside and "
          "give them to it",
          body.name()));
}

class Batching {
 public:
  Batching(ir::Graph& graph, Node* before, sym::Expr rows)
      : graph_(graph), before_(before), rows_(rows) {}

  void set(const Value* of_row, Value* value, bool has_rows) { found_[of_row] = {value, has_rows}; }

  /// With rows in front.
  Value* result(ir::Builder& builder, const Value* of_row) const {
    const BatchedCall::Found found = found_.at(of_row);
    ir::Sizes sizes = of_row->type.sizes;
    sizes.insert(sizes.begin(), rows_);
    return found.has_rows ? found.value : ops::expand({builder, found.value}, sizes).value();
  }

  /// False: its parts are to be visited instead.
  [[nodiscard]] bool visit(const Node& node) {
    bool has_rows = false;
    ir::for_each_operand(node.args,
                         [&](const Value* value) { has_rows |= found_.at(value).has_rows; });
    if (!has_rows) {
      copy(node);
      return true;
    }
    ir::Builder builder(graph_, before_);
    builder.stamp() = ir::Builder::stamp_of(node);
    const bool is_sized_by_data = ir::data_dim(*node.op, node.args) >= 0;
    Tensors results = is_sized_by_data ? Tensors() : at_once(builder, node);
    if (results.empty() && is_composite(node)) return false;
    if (is_sized_by_data)
      refuse(node, "gives each row another size, so that the results are no tensor");
    if (results.empty()) results = row_by_row(builder, node);
    for (size_t i = 0; i < results.size(); ++i) set(node.results[i], results[i].value(), true);
    return true;
  }

 private:
  void copy(const Node& node) {
    const Node* made = ir::clone_node(
        graph_, node, [&](const Value* value) { return found_.at(value).value; }, before_);
    for (size_t i = 0; i < node.results.size(); ++i) set(node.results[i], made->results[i], false);
  }

  Tensors at_once(ir::Builder& builder, const Node& node) const {
    const ops::OpDef& def = ops::def_of(node);
    if (!has_rule(node)) return {};
    const ir::Call call = node.call();
    const BatchedCall batched(builder, call, rows_,
                              [&](const Value* value) { return found_.at(value); });
    return def.batch != nullptr ? def.batch(batched) : ops::batch_pointwise(batched);
  }

  Tensors row_by_row(ir::Builder& builder, const Node& node) {
    if (ops::def_of(node).opaque && ops::def_of(node).runs.empty())
      refuse(node, "takes no rows: what it does of several is not known");
    ir::Values rows;
    ir::Values shared;
    ir::Graph& body = body_of_row(node, rows, shared);
    std::vector<ir::Type> types;
    for (const Value* result : node.results) {
      types.push_back(result->type);
      types.back().strides.clear();
      types.back().sizes.insert(types.back().sizes.begin(), rows_);
    }
    const Node* made =
        builder.call_typed(*graph_.ops().find("tandem.scan"),
                           {ir::Values(), rows, shared, body.name(), false}, std::move(types));
    Tensors results;
    for (Value* result : made->results) results.emplace_back(builder, result);
    return results;
  }

  /// A graph of the node alone: rows of some operands, and others whole.
  ir::Graph& body_of_row(const Node& node, ir::Values& rows, ir::Values& shared) const {
    ir::Module& module = graph_.module();
    ir::Graph& body = module.add_graph(module.free_name(graph_.name() + "_row"));
    Moved moved;
    for (const bool has_rows : {true, false})
      ir::for_each_operand(node.args, [&](const Value* value) {
        const BatchedCall::Found found = found_.at(value);
        if (found.has_rows != has_rows || moved.contains(value)) return;
        ir::Type type = value->type;
        type.strides.clear();
        moved[value] = body.add_input(fmt::format("x{}", moved.size()), type);
        (has_rows ? rows : shared).push_back(found.value);
      });
    const Node* made =
        ir::clone_node(body, node, [&](const Value* value) { return at(moved, value); }, nullptr);
    for (Value* result : made->results) body.add_output(result);
    return body;
  }

  ir::Graph& graph_;
  Node* before_;
  sym::Expr rows_;
  std::map<const Value*, BatchedCall::Found> found_;  // looked up only
};

/// Its dimension of rows in front.
Value* rows_first(ir::Builder& builder, Value* operand, int64_t dim) {
  if (dim <= 0) return operand;
  std::vector<int64_t> order{dim};
  for (int64_t i = 0; i < operand->type.rank(); ++i)
    if (i != dim) order.push_back(i);
  return ops::permute({builder, operand}, order).value();
}

void batch(ir::Graph& graph, Node* node) {
  const ir::Call call = node->call();
  ir::Graph& body = *graph.module().find(call.string("body"));
  check(body);
  ir::Builder builder(graph, node);
  builder.stamp() = ir::Builder::stamp_of(*node);
  const std::vector<int64_t> dims = call.constants("dims");
  const ir::Values& operands = call.values("operands");
  const size_t first = static_cast<size_t>(
      std::ranges::find_if(dims, [](int64_t dim) { return dim >= 0; }) - dims.begin());
  Batching batching(graph, node, operands[first]->type.sizes[dims[first]]);
  const ir::Values inputs = tensors_of(body);
  for (size_t i = 0; i < inputs.size(); ++i)
    batching.set(inputs[i], rows_first(builder, operands[i], dims[i]), dims[i] >= 0);
  for (Node* inner = body.first(); inner != nullptr;)
    inner = batching.visit(*inner) ? inner->next : decompose(body, inner);
  for (size_t i = 0; i < node->results.size(); ++i)
    graph.replace_all_uses(node->results[i], batching.result(builder, body.outputs()[i].value));
  graph.erase(node);
}

}  // namespace

void vmap(ir::Graph& graph, GraphCtx&) {
  for (Node* node = graph.first(); node != nullptr;) {
    Node* const next = node->next;
    if (node->op->schema.name == "tandem::vmap") batch(graph, node);
    node = next;
  }
}

}  // namespace tandem::passes
