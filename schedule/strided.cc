// A view chain as strides: evaluate its index map at symbolic positions, then read off the
// coefficient of each position. Exact where it answers at all; otherwise the caller copies.
#include "base/check.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

using sym::Expr;

/// Records the one load of the root as an index into its row-major (or given) layout.
class RootSink final : public Sink {
 public:
  RootSink(sym::Pool& symbols, const Plan& plan) : pool_(symbols), plan_(&plan) {}
  loop::ScalarPool& scalars() override { return pool_; }
  loop::Val element(const ir::Value* value, const ops::Index& index, loop::Val mask) override {
    Expr linear = 0;
    ir::Sizes strides = layout(value);
    for (size_t i = 0; i < index.size(); ++i) linear = linear + index[i] * strides[i];
    return pool_.load(0, value->type.dtype, linear, mask);
  }
  loop::Val scalar_input(const ir::Value*) override { return pool_.integer(DType::i64, 0); }
  int32_t error(const std::string&) override { return 0; }

 private:
  ir::Sizes layout(const ir::Value* value) const {
    Home home = plan_->homes.at(value);
    if (home.item != nullptr) return home.item->slots[home.slot].strides;
    if (!value->type.strides.empty()) return value->type.strides;
    return ir::contiguous_strides(value->type.sizes);
  }
  loop::ScalarPool pool_;
  const Plan* plan_;
};

struct Evaluated {
  std::vector<Expr> axes;
  ir::Sizes sizes;  // of the axes; the symbol of an axis cannot tell 0 from 1
  loop::Val element;
};

/// The element of `value` at fresh axes; dimension 0 as axis0 * split + axis1 when split is not 1.
Evaluated evaluate_at_axes(GraphLowering& lowering, RootSink& sink, const ir::Value* value,
                           const ir::Value* root, Expr split) {
  GraphLowering::Into into(lowering, sink);
  sym::Pool& symbols = sink.scalars().symbols();
  Evaluated result;
  ops::Index index;
  for (size_t i = 0; i < value->type.sizes.size(); ++i) {
    Expr size = value->type.sizes[i];
    bool cut = i == 0 && split != Expr(1);
    result.sizes.push_back(cut ? sym::floor_div(size, split) : size);
    result.axes.push_back(symbols.index("v", result.sizes.back()));
    index.push_back(result.axes.back());
    if (!cut) continue;
    result.sizes.push_back(split);
    result.axes.push_back(symbols.index("v", split));
    index.back() = index.back() * split + result.axes.back();
  }
  lowering.set_root(root);
  result.element = lowering.load(value, index);
  lowering.set_root(nullptr);
  return result;
}

bool is_plain_load(loop::Val element) {
  // A 16-bit element is widened after its load.
  if (element->opcode == loop::Opcode::cast) element = element->args[0];
  return element->opcode == loop::Opcode::load && element->args.empty();
}

Expr load_index(loop::Val element) {
  return element->opcode == loop::Opcode::cast ? element->args[0]->index : element->index;
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

bool shows_operand(GraphLowering& lowering, const ir::Node* node) {
  const ops::OpDef& def = ops::def_of(*node);
  bool candidate = node->op->is_view() || node->op->schema.name == "aten::_unsafe_view";
  return candidate && def.lower != nullptr &&
         lowering.computation(node).kind == Computation::Kind::map;
}

}  // namespace

const ir::Value* view_root(GraphLowering& lowering, const ir::Value* value) {
  while (value->node != nullptr && shows_operand(lowering, value->node))
    value = std::get<ir::Value*>(value->node->args[0]);
  return value;
}

const ir::Value* stored_root(GraphLowering& lowering, const ir::Value* value) {
  const ir::Value* last = view_root(lowering, value);
  for (const ir::Value* at = value; at != last; at = std::get<ir::Value*>(at->node->args[0]))
    if (lowering.plan().is_realized(at) && is_strided(lowering, value, at)) return at;
  return last;
}

bool is_strided(GraphLowering& lowering, const ir::Value* value, const ir::Value* root) {
  if (strided_view(lowering, value, root)) return true;
  Expr split = batch_split(lowering, value, root);
  return split != Expr(1) && strided_view(lowering, value, root, split).has_value();
}

std::optional<StridedRef> strided_view(GraphLowering& lowering, const ir::Value* value,
                                       const ir::Value* root, Expr split) {
  RootSink sink(lowering.plan().graph->pool(), lowering.plan());
  Evaluated at = evaluate_at_axes(lowering, sink, value, root, split);
  if (!is_plain_load(at.element)) return std::nullopt;
  StridedRef ref{root, at.sizes, {}, load_index(at.element)};
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

Expr batch_split(GraphLowering& lowering, const ir::Value* value, const ir::Value* root) {
  RootSink sink(lowering.plan().graph->pool(), lowering.plan());
  Evaluated at = evaluate_at_axes(lowering, sink, value, root, 1);
  // Only a batch may become two dimensions; rows of a matrix may not.
  if (at.axes.size() < 3 || !is_plain_load(at.element)) return 1;
  Expr divisor = find_divisor(load_index(at.element), at.axes[0]);
  bool exact = sym::known_divisible(value->type.sizes[0], divisor);
  return exact ? divisor : Expr(1);
}

}  // namespace tandem::schedule
