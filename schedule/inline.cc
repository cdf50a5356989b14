// Inlining is rewriting the producer's computation at the index where it is read. Remembered by
// (value, index, mask), so an expression with sharing costs what its distinct parts cost. Depth is
// bounded: materialize.cc gives a place to a value before chains of inlined ones grow long. Masks
// go down: what is read under a mask is read under it in the producer too, and what fails there
// fails only where the mask holds.
#include "schedule/inline.h"

#include <array>
#include <bit>

#include "base/check.h"
#include "ops/elements.h"
#include "schedule/kernel_graph.h"

namespace tandem::schedule {

using loop::Opcode;
using loop::Val;

namespace {

/// Rounds a computed value to the dtype it has between ops, then widens it again to compute with.
Val at_op_boundary(loop::ScalarPool& pool, Val value, DType dtype) {
  return pool.cast(pool.cast(value, dtype), compute_type(dtype));
}

Val both(loop::ScalarPool& pool, Val a, Val b) {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  return pool.binary(Opcode::bit_and, a, b);
}

/// A check that holds where the mask is false.
Val checked(loop::ScalarPool& pool, Val mask, Val holds, Val value, int32_t error) {
  const bool always = holds->opcode == Opcode::constant && holds->integer != 0;
  if (always || mask == nullptr) return pool.check(holds, value, error);
  const Val hidden = pool.unary(Opcode::logical_not, mask);
  return pool.check(pool.binary(Opcode::bit_or, hidden, holds), value, error);
}

}  // namespace

void bind_axes(sym::Substitution& map, const ops::Index& axes, const ops::Index& at) {
  TD_CHECK(axes.size() == at.size()) << axes.size() << " axes, " << at.size() << " indices";
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].is_symbol()) map.emplace_back(axes[i], at[i]);
}

Inliner::Key Inliner::key_of(const ir::Value* value, const ops::Index& at, Val mask) {
  Key key{value->id, mask == nullptr ? 0 : uint64_t{mask->id} + 1};
  for (const sym::Expr& each : at) {
    key.push_back(std::bit_cast<uint64_t>(each.node()));
    key.push_back(static_cast<uint64_t>(each.constant().value_or(0)));
  }
  return key;
}

Val Inliner::element(const ir::Value* value, const ops::Index& at, Val mask) {
  const auto [known, is_new] = known_.try_emplace(key_of(value, at, mask), nullptr);
  if (!is_new) return known->second;
  Val result = nullptr;
  if (has_place_(value)) {
    const Val stored = pool_.element(computations_.number(value), value->type.dtype, at, mask);
    result = pool_.cast(stored, compute_type(value->type.dtype));
  } else {
    result = producer(value, at, mask);
  }
  return known->second = result;
}

Val Inliner::producer(const ir::Value* value, const ops::Index& at, Val mask) {
  const Computation& from = computations_.of(value->node);
  TD_CHECK(from.kind == Computation::Kind::map) << value->node->op->name() << " does not inline";
  const Computation::Points& points = from.results[value->index];
  sym::Substitution map;
  bind_axes(map, points.axes, at);
  return at_op_boundary(pool_, written(std::span(&points.value, 1), map, mask)[0],
                        value->type.dtype);
}

/// Under a mask of its own and that of the place it is read at, which that place sees to.
Val Inliner::read(const ir::Value* value, const ops::Index& at, Val own, Val outer) {
  const Val mask = both(pool_, outer, own);
  const Val found = element(value, at, mask);
  if (mask == outer || has_place_(value)) return found;
  return pool_.select(mask, found, pool_.constant(found->dtype, 0));
}

std::vector<Val> Inliner::written(std::span<const Val> roots, const sym::Substitution& at,
                                  Val mask) {
  loop::Rewrite how;
  how.map_index = [&](sym::Expr e) { return sym::substitute(e, at); };
  how.replace = [&](const loop::Scalar& node, std::span<const Val> args) -> Val {
    if (node.opcode != Opcode::check) return nullptr;
    return checked(pool_, mask, args[0], args[1], node.slot);
  };
  how.element = [&](const loop::Scalar& element, std::span<const Val> args) -> Val {
    const ir::Value* value = computations_.value(element.slot);
    if (!value->type.is_tensor()) return nullptr;
    Val found = read(value, element.at, element.masked ? args[0] : nullptr, mask);
    for (Val place : args.subspan(element.masked ? 1 : 0))
      found = ops::with_check(pool_, found, place);
    return found;
  };
  return loop::rewrite(pool_, computations_.scalars(), roots, how);
}

Computation Inliner::inlined(const Computation& of, size_t result) {
  Computation made = of;
  std::vector<Val> points;
  if (!of.results.empty()) points.push_back(of.results[result].value);
  if (points = written(points, {}, nullptr); !points.empty())
    made.results[result].value = points[0];
  made.inputs = written(of.inputs, {}, nullptr);
  made.finished = written(of.finished, {}, nullptr);
  if (of.value == nullptr) return made;
  const std::array scattered{of.destination, of.value};
  const std::vector<Val> over = written(scattered, {}, nullptr);
  made.destination = over[0];
  made.value = over[1];
  return made;
}

std::vector<Val> roots_of(const Computation& of, size_t result) {
  std::vector<Val> roots;
  if (!of.results.empty()) roots.push_back(of.results[result].value);
  roots.insert(roots.end(), of.inputs.begin(), of.inputs.end());
  if (!of.inputs.empty()) roots.insert(roots.end(), of.finished.begin(), of.finished.end());
  if (of.value != nullptr) roots.insert(roots.end(), {of.destination, of.value});
  return roots;
}

std::vector<Val> masked(loop::ScalarPool& pool, std::span<const Val> roots,
                        const sym::Substitution& at, Val mask) {
  loop::Rewrite how;
  how.map_index = [&](sym::Expr e) { return sym::substitute(e, at); };
  how.replace = [&](const loop::Scalar& node, std::span<const Val> args) -> Val {
    if (node.opcode != Opcode::check) return nullptr;
    return checked(pool, mask, args[0], args[1], node.slot);
  };
  how.element = [&](const loop::Scalar& read, std::span<const Val> args) -> Val {
    if (read.at.empty()) return nullptr;
    return pool.element(read.slot, read.dtype, read.at,
                        both(pool, mask, read.masked ? args[0] : nullptr));
  };
  return loop::rewrite(pool, pool, roots, how);
}

void inline_values(KernelGraph& graph) {
  Inliner inliner(graph.scalars, graph.computations,
                  [&](const ir::Value* value) { return graph.is_materialized(value); });
  for (const std::unique_ptr<Item>& item : graph.items) {
    if (item->kind == Item::Kind::library) continue;
    item->computation = inliner.inlined(graph.computations.of(item->node), item->result);
  }
}

}  // namespace tandem::schedule
