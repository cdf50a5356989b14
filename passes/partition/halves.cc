// Which half of a joint graph needs a node follows from two walks: backwards from what forward must
// give, and forwards from the tangents. Flags on nodes are not asked: passes merge and move nodes
// of both halves.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/data_sizes.h"
#include "ir/writes.h"
#include "ops/opdef.h"
#include "passes/partition/partition.h"

namespace tandem::passes {

using ir::Node;
using ir::Value;

namespace {

/// Stands for a size that is not known: large enough that a matrix outweighs its rows.
constexpr int64_t kTypicalSize = Tuning::Fixed::kTypicalSize;

bool must_run_forward(const Node& node) {
  if (ir::gives_number(node)) return !node.backward;  // else it is read once more
  if (node.op->mutates()) return !ir::comes_with_backward(std::get<Value*>(node.args[0])->role);
  return (ops::def_of(node).can_fail && !node.backward);
}

}  // namespace

bool is_whole_step(const ir::Graph& graph) {
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::gradient) return false;
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (node->backward) return true;
  return false;
}

Halves::Halves(const ir::Graph& graph) {
  if (is_whole_step(graph)) {
    find_by_flags(graph);
  } else {
    find_by_tangents(graph);
  }
}

/// Nothing comes in between the halves: what reverse mode made, and what is made of that.
void Halves::find_by_flags(const ir::Graph& graph) {
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    bool reached = node->backward;
    ir::for_each_operand(node->args,
                         [&](const Value* operand) { reached |= needs_tangent(operand); });
    tangent_[node] = reached;
    forward_[node] = !reached;
  }
}

void Halves::find_by_tangents(const ir::Graph& graph) {
  DenseMap<Value, char> wanted;
  for (const ir::Output& output : graph.outputs())
    if (output.value != nullptr && output.kind != ir::OutputKind::gradient)
      wanted[output.value] = true;
  for (const Node* node = graph.last(); node != nullptr; node = node->prev) {
    bool runs = must_run_forward(*node);
    for (const Value* result : node->results) runs |= wanted.at(result) != 0;
    forward_[node] = runs;
    if (runs)
      ir::for_each_operand(node->args, [&](const Value* operand) { wanted[operand] = true; });
  }
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    bool reached = false;
    ir::for_each_operand(node->args,
                         [&](const Value* operand) { reached |= needs_tangent(operand); });
    tangent_[node] = reached;
    TD_CHECK(!reached || !forward_.at(node)) << "forward needs a tangent: " << node->op->name();
  }
}

bool Halves::needs_tangent(const Value* value) const {
  return value->node == nullptr ? ir::comes_with_backward(value->role) : needs_tangent(value->node);
}

bool Halves::is_forward(const Value* value) const {
  return value->node == nullptr ? !ir::comes_with_backward(value->role) : is_forward(value->node);
}

ir::Values crossing(const ir::Graph& graph, const Halves& halves) {
  ir::Values values;
  auto visit = [&](Value* value) {
    bool crosses = std::any_of(value->uses.begin(), value->uses.end(), [&](const ir::Use& use) {
      return use.node == nullptr ? graph.outputs()[use.arg].kind == ir::OutputKind::gradient
                                 : !halves.is_forward(use.node);
    });
    if (crosses) values.push_back(value);
  };
  for (Value* input : graph.inputs())
    if (!ir::comes_with_backward(input->role)) visit(input);
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    if (halves.is_forward(node))
      for (Value* result : node->results) visit(result);
  return values;
}

ir::Values all_that_is_read(const ir::Graph& graph) {
  ir::Values bases;
  DenseMap<Value, char> known;
  for (Value* value : crossing(graph, Halves(graph))) {
    Value* base = base_of(value);
    if (known.at(base) == 0) bases.push_back(base);
    known[base] = 1;
  }
  return bases;
}

sym::Expr bytes_of(const Value* value) {
  return value->type.is_tensor() ? value->type.numel() * size_of(value->type.dtype) : sym::Expr(0);
}

int64_t typical_size(sym::Expr size) {
  std::optional<int64_t> value =
      sym::evaluate(size, [](const sym::Node* symbol) -> std::optional<int64_t> {
        return std::clamp(kTypicalSize, std::max<int64_t>(symbol->range.lo, 0),
                          std::max<int64_t>(symbol->range.hi, 0));
      });
  return value.value_or(kTypicalSize);
}

/// Without expressions: most sizes are numbers, and most questions are about them.
std::optional<int64_t> known_bytes(const Value* value) {
  if (!value->type.is_tensor()) return 0;
  int64_t bytes = size_of(value->type.dtype);
  for (const sym::Expr& size : value->type.sizes) {
    const std::optional<int64_t> known = size.constant();
    if (!known || __builtin_mul_overflow(bytes, *known, &bytes)) return std::nullopt;
  }
  return bytes;
}

int64_t typical_bytes(const Value* value) {
  const std::optional<int64_t> known = known_bytes(value);
  return known ? *known : typical_size(bytes_of(value));
}

Value* base_of(Value* value) {
  while (value->node != nullptr && value->node->op->is_view())
    value = std::get<Value*>(value->node->args[0]);
  return value;
}

bool lives_anyway(const Value* value) {
  bool held = value->role == ir::Role::parameter || value->role == ir::Role::buffer;
  return value->node == nullptr && held && !ir::is_written(value);
}

bool is_source(const Node& node) {
  bool reads = false;
  ir::for_each_operand(node.args,
                       [&](const Value* operand) { reads |= operand->type.is_tensor(); });
  return !reads;
}

bool gives_the_same_again(const Node& node) {
  const ops::OpDef& def = ops::def_of(node);
  const bool draws_anew = def.random && node.op->schema.find("seed") < 0;
  return !node.op->mutates() && !def.can_fail && !def.opaque && !draws_anew;
}

bool asked_to_recompute(const Node& node) {
  bool asked = node.policy == ir::RecomputePolicy::must_recompute ||
               node.policy == ir::RecomputePolicy::prefer_recompute;
  if (!asked || !gives_the_same_again(node)) return false;
  for (const Value* result : node.results)
    for (const ir::Use& use : result->uses)
      if (use.node != nullptr && !use.node->backward && use.node->region > node.region &&
          node.region != 0)
        return false;
  return true;
}

namespace {

/// Backward writes it, and another backward may follow.
bool is_written_later(const ir::Graph& graph, const Value* value) {
  const auto is_it = [&](const Value* input) {
    return input->role == ir::Role::later && input->subject.number == value->index;
  };
  return value->node == nullptr && std::ranges::any_of(graph.inputs(), is_it);
}

/// Backward wants what the input was before the write-back.
Value* copy_of(ir::Graph& graph, Value* input) {
  std::vector<ir::Use> uses = input->uses;
  Value* copy = ir::Builder(graph, graph.first()).call("aten.clone", {input})->results[0];
  for (const ir::Use& use : uses) {
    if (use.node == nullptr) {
      if (graph.outputs()[use.arg].kind == ir::OutputKind::gradient)
        graph.set_output(use.arg, copy);
    } else if (!use.node->op->mutates() || use.arg != 0) {
      ir::Arg replaced = ir::map_operands(use.node->args[use.arg],
                                          [&](Value* v) { return v == input ? copy : v; });
      graph.set_arg(use.node, use.arg, std::move(replaced));
    }
  }
  return copy;
}

}  // namespace

void set_saved(ir::Graph& graph, const ir::Values& values) {
  ir::Values saved = values;
  for (Value*& value : saved)
    if (ir::is_written(value) || is_written_later(graph, value)) value = copy_of(graph, value);
  std::stable_partition(saved.begin(), saved.end(),
                        [](const Value* value) { return value->type.is_tensor(); });
  std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  for (const ir::Output& output : outputs)
    if (output.kind != ir::OutputKind::gradient) graph.add_output(output);
  for (Value* value : saved) graph.add_output(value, ir::OutputKind::saved);
  for (const ir::Output& output : outputs)
    if (output.kind == ir::OutputKind::gradient) graph.add_output(output);
}

void name_saved(ir::Graph& graph, const std::vector<std::string>& names) {
  std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  size_t next = 0;
  for (ir::Output& output : outputs) {
    if (output.kind == ir::OutputKind::saved) output.name = names.at(next++);
    graph.add_output(output);
  }
}

int64_t typical_bytes(const ir::Values& saved) {
  int64_t total = 0;
  for (const Value* value : saved) total += lives_anyway(value) ? 0 : typical_bytes(value);
  return total;
}

std::string describe_saved(const ir::Graph& graph) {
  sym::Expr bytes = 0;
  size_t count = 0;
  for (const ir::Output& output : graph.outputs()) {
    if (output.kind != ir::OutputKind::saved) continue;
    ++count;
    if (!lives_anyway(output.value)) bytes = bytes + bytes_of(output.value);
  }
  return fmt::format("{} saved, {} bytes", count, sym::to_string(bytes));
}

}  // namespace tandem::passes
