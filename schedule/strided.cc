// A view chain as strides: its index map at symbolic positions, then the coefficient of each
// position. Exact where it answers at all; otherwise the caller copies.
#include "schedule/strided.h"

#include "schedule/inline.h"

namespace tandem::schedule {
namespace {

using sym::Expr;

struct Evaluated {
  std::vector<Expr> axes;
  ir::Sizes sizes;  // of the axes; the symbol of an axis cannot tell 0 from 1
  loop::Val element;
};

/// The element of a view at fresh axes, all between it and its root inlined; dimension 0 as
/// axis0 * split + axis1 when split is not 1.
Evaluated evaluate_at_axes(loop::ScalarPool& pool, KernelGraph& graph, const View& view,
                           Expr split) {
  sym::Pool& symbols = pool.symbols();
  Evaluated result;
  ops::Index index;
  for (size_t i = 0; i < view.value->type.sizes.size(); ++i) {
    Expr size = view.value->type.sizes[i];
    bool cut = i == 0 && split != Expr(1);
    result.sizes.push_back(cut ? sym::floor_div(size, split) : size);
    result.axes.push_back(symbols.index("v", result.sizes.back()));
    index.push_back(result.axes.back());
    if (!cut) continue;
    result.sizes.push_back(split);
    result.axes.push_back(symbols.index("v", split));
    index.back() = index.back() * split + result.axes.back();
  }
  Inliner inliner(pool, graph.computations, [&](const ir::Value* value) {
    return value == view.root || value->node == nullptr;
  });
  result.element = inliner.element(view.value, index);
  // A 16-bit element is widened after it is read.
  if (result.element->opcode == loop::Opcode::cast) result.element = result.element->args[0];
  return result;
}

bool is_plain(loop::Val element) {
  return element->opcode == loop::Opcode::element && element->args.empty();
}

/// Where the element lies.
Expr address_of(loop::Val element, const View& view) {
  Expr address = 0;
  for (size_t i = 0; i < element->at.size(); ++i)
    address = address + element->at[i] * view.layout[i];
  return address;
}

/// First divisor of a floor_div or mod whose dividend holds the symbol.
Expr find_divisor(Expr e, Expr symbol) {
  std::vector<Expr> stack{e};
  while (!stack.empty()) {
    Expr at = stack.back();
    stack.pop_back();
    bool divides = at.kind() == sym::Kind::floor_div || at.kind() == sym::Kind::mod;
    if (divides && sym::depends_on(at.args()[0], symbol)) return at.args()[1];
    for (Expr arg : at.args()) stack.push_back(arg);
  }
  return 1;
}

bool shows_operand(KernelGraph& graph, const ir::Node* node) {
  const ops::OpDef& def = ops::def_of(*node);
  bool candidate = node->op->is_view() || def.keeps_order;
  return candidate && def.lower != nullptr &&
         graph.computations.of(node).kind == Computation::Kind::map;
}

}  // namespace

View view_of(const KernelGraph& graph, const ir::Value* value, const ir::Value* root) {
  return {value, root, graph.strides_of(root)};
}

const ir::Value* view_root(KernelGraph& graph, const ir::Value* value) {
  while (value->node != nullptr && shows_operand(graph, value->node))
    value = std::get<ir::Value*>(value->node->args[0]);
  return value;
}

const ir::Value* stored_root(KernelGraph& graph, const ir::Value* value) {
  const ir::Value* last = view_root(graph, value);
  for (const ir::Value* at = value; at != last; at = std::get<ir::Value*>(at->node->args[0]))
    if (graph.is_materialized(at) && is_strided(graph, view_of(graph, value, at))) return at;
  return last;
}

bool is_strided(KernelGraph& graph, const View& view) {
  if (strided_view(graph, view)) return true;
  Expr split = batch_split(graph, view);
  return split != Expr(1) && strided_view(graph, view, split).has_value();
}

std::optional<StridedRef> strided_view(KernelGraph& graph, const View& view, Expr split) {
  loop::ScalarPool pool(graph.graph->pool());
  Evaluated at = evaluate_at_axes(pool, graph, view, split);
  if (!is_plain(at.element)) return std::nullopt;
  StridedRef ref{view.root, at.sizes, {}, address_of(at.element, view)};
  for (Expr axis : at.axes) {
    std::optional<sym::Affine> affine = sym::affine_in(ref.offset, axis);
    if (!affine) return std::nullopt;
    ref.strides.push_back(affine->coefficient);
    ref.offset = affine->rest;
  }
  for (Expr stride : ref.strides)
    for (Expr axis : at.axes)
      if (sym::depends_on(stride, axis)) return std::nullopt;
  return ref;
}

Expr batch_split(KernelGraph& graph, const View& view) {
  loop::ScalarPool pool(graph.graph->pool());
  Evaluated at = evaluate_at_axes(pool, graph, view, 1);
  // Only a batch may become two dimensions; rows of a matrix may not.
  if (at.axes.size() < 3 || !is_plain(at.element)) return 1;
  Expr divisor = find_divisor(address_of(at.element, view), at.axes[0]);
  bool exact = sym::known_divisible(view.value->type.sizes[0], divisor);
  return exact ? divisor : Expr(1);
}

ir::Sizes channels_last_strides(const ir::Sizes& sizes) {
  if (sizes.size() < 3) return {};
  ir::Sizes strides(sizes.size());
  sym::Expr stride = sizes[1];
  for (size_t i = sizes.size(); i-- > 2;) {
    strides[i] = stride;
    stride = stride * sizes[i];
  }
  strides[1] = 1;
  strides[0] = stride;
  return strides;
}

std::optional<StridedRef> shown_input(KernelGraph& graph, const ir::Value* result) {
  if (graph.graph->role().kind != ir::GraphRole::Kind::signature) return std::nullopt;
  const ir::Value* root = view_root(graph, result);
  if (root->node != nullptr || root == result) return std::nullopt;
  return strided_view(graph, view_of(graph, result, root));
}

}  // namespace tandem::schedule
