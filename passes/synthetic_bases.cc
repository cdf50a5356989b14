// Inputs that share memory with one that is written: a write to the one is seen through the others.
// The program takes the memory itself instead, and its inputs are views that it takes of it, so
// that functionalize knows who sees which write:
//   x[i, k], which begins at `offset` of base b and has strides s, t, is as_strided(b, ..., [s, t],
//   offset).
// What the caller gets is told by then (share_outputs), in terms of its own inputs.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/builder.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Value;

Value* base_of(const ir::Graph& graph, const Value& member) {
  const auto found = std::ranges::find_if(graph.inputs(), [&](const Value* input) {
    return input->name == member.within.base && input->role == ir::Role::base;
  });
  TD_CHECK(found != graph.inputs().end()) << "no base %" << member.within.base;
  return *found;
}

/// Bits are read through a float of 32 bits where a base is one of 16: those of a NaN would change.
bool keeps_bits(DType dtype) { return !is_float(dtype) || size_of(dtype) >= 4; }

void check_bits(const Value& member, const Value& base) {
  const DType from = base.type.dtype;
  const DType to = member.type.dtype;
  if (from == to) return;
  if (size_of(from) == size_of(to) && keeps_bits(from) && from != DType::boolean &&
      to != DType::boolean)
    return;
  throw Unsupported(fmt::format(
      "[synthetic_bases] input %{} {} shares the memory of a written input, as {}: types of one "
      "size are accepted, but for bool, and for floats of 16 bits as base",
      member.name, to_string(member.type), to_string(base.type)));
}

Value* view_of(ir::Builder& builder, const Value& member, Value* base) {
  check_bits(member, *base);
  const ir::Sizes strides =
      member.type.strides.empty() ? ir::contiguous_strides(member.type.sizes) : member.type.strides;
  Value* view = builder
                    .call("aten.as_strided",
                          {base, member.type.sizes, strides, sym::Expr(member.within.offset)})
                    ->results[0];
  if (member.type.dtype != base->type.dtype)
    view = builder.call("aten.view.dtype", {view, member.type.dtype})->results[0];
  view->type.strides = strides;
  return view;
}

}  // namespace

bool has_bases(const ir::Graph& graph) {
  return std::ranges::any_of(graph.inputs(),
                             [](const Value* input) { return input->role == ir::Role::base; });
}

void synthetic_bases(ir::Graph& graph, GraphCtx&) {
  ir::Builder builder(graph, graph.first());
  const ir::Values inputs = graph.inputs();
  for (Value* member : inputs) {
    if (member->within.base.empty()) continue;
    graph.replace_all_uses(member, view_of(builder, *member, base_of(graph, *member)));
    graph.erase_input(member);
  }
  for (Value* input : inputs)
    if (input->role == ir::Role::base) input->role = ir::Role::input;
}

}  // namespace tandem::passes
