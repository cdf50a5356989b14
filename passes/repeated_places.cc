// An expanded tensor shows a place of its base several times. Eager takes two kinds of writes to
// one: to a part of it that has no place twice (a row of what was expanded to rows), and of one
// number. What its base holds then is told by the elements that were written:
//   base'[j] = value[i] for the first i that shows j and was written, else base[j].
// So which elements were written goes up the chain of views beside the values.
#include "passes/repeated_places.h"

#include <fmt/format.h>

#include "base/diagnostic.h"
#include "passes/strides.h"

namespace tandem::passes {
namespace {

using ops::Tensor;

/// One element along `dims`: the first that was written.
Part first_written(Part part, const std::vector<int64_t>& dims) {
  for (int64_t dim : dims) {
    if (!part.written) {
      part.value = ops::slice(part.value, dim, 0, 1);
      continue;
    }
    ir::Builder& builder = part.value.builder();
    const Tensor counts = ops::to(part.written, DType::i32);
    const Tensor first = ops::call(builder, "aten.argmax", {counts, dim, true});
    part.value = ops::call(builder, "aten.gather", {part.value, dim, first});
    part.written = ops::call(builder, "aten.gather", {part.written, dim, first});
  }
  return part;
}

/// The value, taken apart into nodes with loops; none where its elements may differ.
Tensor as_one_number(Tensor value) {
  while (const ir::Node* node = value.value()->node) {
    const ops::OpDef& def = ops::def_of(*node);
    if (def.lower != nullptr)
      return is_one_number(value.builder().graph(), *node) ? value : Tensor();
    if (def.decompose == nullptr) return {};
    value = def.decompose(value.builder(), node->call())[value.value()->index];
  }
  return {};
}

Tensor all(Tensor like, bool flag) {
  return ops::full(like.builder(), like.sizes(), flag ? 1 : 0, DType::boolean);
}

Tensor rows_written(const ir::Node& fill, Tensor value) {
  const ir::Call call = fill.call();
  return ops::call(value.builder(), "aten.index_fill.int_Scalar",
                   {all(value, false), call.arg("dim"), call.arg("index"), true});
}

}  // namespace

Tensor write_through(const ir::Node& view, uint32_t number, Tensor base, Tensor updated) {
  if (view.results[number]->type.numel() == sym::Expr(0)) return base;
  const ops::OpDef& def = ops::def_of(view);
  if (def.scatter_part != nullptr)
    return def.scatter_part(base.builder(), view.call(), number, base, updated);
  if (def.scatter == nullptr)
    throw Unsupported(fmt::format("[{}] a write through this view", view.op->schema.full_name()),
                      view.origin.place);
  return def.scatter(base.builder(), view.call(), base, updated);
}

Part carry_up(const ir::Node& view, uint32_t number, Tensor base, Part part,
              const std::vector<int64_t>& repeated) {
  const sym::Expr shown = view.results[number]->type.numel();
  if (shown == sym::Expr(0)) return {base, all(base, false)};
  part = first_written(part, repeated);
  const Tensor updated = write_through(view, number, base, part.value);
  const bool shows_all = !repeated.empty() || shown == base.type().numel();
  if (!part.written && shows_all) return {updated, {}};
  const Tensor written = part.written ? part.written : all(part.value, true);
  const Tensor places = write_through(view, number, all(base, false), written);
  if (repeated.empty()) return {updated, places};
  return {ops::where(places, updated, base), places};
}

Part of_one_number(const ir::Node& write, Tensor value) {
  const ir::Node& node = *value.value()->node;
  if (const Tensor number = as_one_number(value)) return {number, {}};
  if (node.op->schema.find("mask") >= 0 && node.op->schema.find("value") >= 0) {
    const Tensor mask(value.builder(), node.call().value("mask"));
    return {value, ops::expand(mask, value.sizes())};
  }
  if (node.op->schema.name == "aten::index_fill") return {value, rows_written(node, value)};
  throw Unsupported(fmt::format("[{}] writing to an expanded tensor: more than one element refers "
                                "to one memory place; a clone of it is accepted",
                                write.op->schema.full_name()),
                    write.origin.place);
}

}  // namespace tandem::passes
