// Inlining is rewriting the producer's computation at the index the consumer wants. Remembered by
// (value, index, mask), so an expression with sharing costs what its distinct parts cost. Depth is
// bounded: realize.cc realises a value before chains of inlined ones grow long.
#include "schedule/lowering.h"

#include <array>
#include <bit>

#include "base/check.h"
#include "ops/elements.h"
#include "schedule/fuse.h"

namespace tandem::schedule {

using loop::Val;

loop::Val at_op_boundary(loop::ScalarPool& pool, Val value, DType dtype) {
  return pool.cast(pool.cast(value, dtype), compute_type(dtype));
}

Val ProbeSink::element(const ir::Value* value, const ops::Index& index, Val mask) {
  reads.emplace_back(value, index);
  return pool_.load(static_cast<int32_t>(value->id), value->type.dtype,
                    linear_index(index, value->type.sizes), mask);
}

Val ProbeSink::scalar_input(const ir::Value* value) {
  return pool_.load(static_cast<int32_t>(value->id), value->type.dtype, 0);
}

GraphLowering::Into::Into(GraphLowering& lowering, Sink& sink)
    : lowering_(lowering), old_(lowering.sink_), old_memo_(std::move(lowering.memo_)) {
  lowering_.sink_ = &sink;
  lowering_.memo_.clear();
}

GraphLowering::Into::~Into() {
  lowering_.sink_ = old_;
  lowering_.memo_ = std::move(old_memo_);
}

bool GraphLowering::is_home(const ir::Value* value) const {
  if (root_ != nullptr) return value == root_ || value->node == nullptr;
  return plan_->is_realized(value);
}

Val GraphLowering::inlined(const ir::Value* value, const ops::Index& index) {
  const Computation& from = computation(value->node);
  TD_CHECK(from.kind == Computation::Kind::map) << value->node->op->name() << " does not inline";
  return at_op_boundary(scalars(), point(from, value->index, index), value->type.dtype);
}

Val GraphLowering::load(const ir::Value* value, const ops::Index& index, Val mask) {
  loop::ScalarPool& pool = scalars();
  Val outer = mask_;
  if (mask != nullptr && outer != nullptr) mask = pool.binary(loop::Opcode::bit_and, outer, mask);
  if (mask == nullptr) mask = outer;
  std::vector<uint64_t> key{value->id, mask == nullptr ? 0 : uint64_t{mask->id} + 1};
  for (const sym::Expr& at : index) {
    key.push_back(std::bit_cast<uint64_t>(at.node()));
    key.push_back(static_cast<uint64_t>(at.constant().value_or(0)));
  }
  std::map<std::vector<uint64_t>, Val>::iterator it = memo_.find(key);
  if (it != memo_.end()) return it->second;
  Val result = nullptr;
  if (is_home(value)) {
    result = pool.cast(sink_->element(value, index, mask), compute_type(value->type.dtype));
  } else {
    mask_ = mask;
    result = inlined(value, index);
    mask_ = outer;
    if (mask != nullptr && mask != outer)
      result = pool.select(mask, result, pool.constant(result->dtype, 0));
  }
  memo_.emplace(std::move(key), result);
  return result;
}

Val GraphLowering::check(Val holds, Val value, int32_t error) {
  loop::ScalarPool& pool = scalars();
  if (holds->opcode == loop::Opcode::constant && holds->integer != 0) return value;
  if (mask_ != nullptr) {
    Val hidden = pool.unary(loop::Opcode::logical_not, mask_);
    holds = pool.binary(loop::Opcode::bit_or, hidden, holds);
  }
  return pool.check(holds, value, sink_->error(computations_.error_text(error)));
}

namespace {

/// A dimension of one element may have no symbol.
void bind(sym::Substitution& map, const ops::Index& axes, const ops::Index& at) {
  TD_CHECK(axes.size() == at.size()) << axes.size() << " axes, " << at.size() << " indices";
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].is_symbol()) map.emplace_back(axes[i], at[i]);
}

}  // namespace

std::vector<Val> GraphLowering::written(std::span<const Val> roots, const sym::Substitution& at,
                                        std::span<const Val> locals) {
  loop::Rewrite how;
  how.map_index = [&](sym::Expr e) { return sym::substitute(e, at); };
  how.replace = [&](const loop::Scalar& node, std::span<const Val> args) -> Val {
    if (node.opcode == loop::Opcode::local) return locals[static_cast<size_t>(node.slot)];
    return node.opcode == loop::Opcode::check ? check(args[0], args[1], node.slot) : nullptr;
  };
  how.element = [&](const loop::Scalar& element, std::span<const Val> args) {
    const ir::Value* value = computations_.value(element.slot);
    if (!value->type.is_tensor()) return sink_->scalar_input(value);
    Val read = load(value, element.at, element.masked ? args[0] : nullptr);
    for (Val place : args.subspan(element.masked ? 1 : 0))
      read = ops::with_check(scalars(), read, place);
    return read;
  };
  return loop::rewrite(scalars(), computations_.scalars(), roots, how);
}

Val GraphLowering::point(const Computation& of, size_t result, const ops::Index& at) {
  const Computation::Points& points = of.results[result];
  sym::Substitution map;
  bind(map, points.axes, at);
  return written(std::span(&points.value, 1), map)[0];
}

std::vector<Val> GraphLowering::inputs(const Computation& of, const ops::Index& out,
                                       const ops::Index& r) {
  sym::Substitution map;
  bind(map, of.out, out);
  bind(map, of.reduce, r);
  if (of.guard == nullptr) return written(of.inputs, map);
  loop::ScalarPool& pool = scalars();
  const Val guard = written(std::span(&of.guard, 1), map)[0];
  const Val outer = mask_;
  const bool always = guard->opcode == loop::Opcode::constant && guard->integer != 0;
  if (!always) mask_ = outer == nullptr ? guard : pool.binary(loop::Opcode::bit_and, outer, guard);
  std::vector<Val> values = written(of.inputs, map);
  mask_ = outer;
  values[0] = pool.select(guard, values[0], loop::identity_of(pool, of.combiner, values[0]->dtype));
  return values;
}

std::vector<Val> GraphLowering::finished(const Computation& of, std::span<const Val> combined,
                                         const ops::Index& out) {
  if (of.finished.empty()) return {combined.begin(), combined.end()};
  sym::Substitution map;
  bind(map, of.out, out);
  return written(of.finished, map, combined);
}

std::pair<Val, Val> GraphLowering::scattered(const Computation& of, const ops::Index& source) {
  sym::Substitution map;
  bind(map, of.source, source);
  const std::vector<Val> found = written(std::array{of.destination, of.value}, map);
  return {found[0], found[1]};
}

}  // namespace tandem::schedule
