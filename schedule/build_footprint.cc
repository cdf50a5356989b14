// Problem: windows read a sum at many places, and the sum has no place in memory. Approach: a stage
// in front of theirs computes all that one point of the outer axes reads, at axes of its own.
// It is written at a place inside of the tensor, then moved to the nearest one: where the mask is
// false nothing sees which.
#include <array>

#include "schedule/inline.h"
#include "schedule/kernel_writer.h"

namespace tandem::schedule {
namespace {

using loop::Val;
using sym::Expr;

/// The axes of a footprint: those of the sum that reads it, where they have several elements.
struct Seen {
  sym::Substitution map;
  Expr written = 0;
  Expr read = 0;
  Expr elements = 1;
};

Seen axes_of_footprint(sym::Pool& symbols, const ops::Index& inner, const ir::Sizes& sizes,
                       loop::Stage& footprint) {
  Seen seen;
  footprint.kind = loop::StageKind::footprint;
  for (size_t i = 0; i < inner.size(); ++i) {
    const Expr size = sizes[i];
    if (size == Expr(1)) {
      seen.map.emplace_back(inner[i], Expr(0));
      continue;
    }
    const Expr axis = symbols.index("y", size);
    footprint.axes.push_back({axis, size});
    seen.map.emplace_back(inner[i], axis);
    seen.written = seen.written * size + axis;
    seen.read = seen.read * size + inner[i];
    seen.elements = seen.elements * size;
  }
  return seen;
}

/// The nearest place of the tensor.
ops::Index inside(const ops::Index& index, const ir::Sizes& sizes) {
  ops::Index at = index;
  for (size_t i = 0; i < at.size(); ++i) {
    if (!sym::known_le(0, at[i])) at[i] = sym::max(at[i], 0);
    if (!sym::known_lt(at[i], sizes[i])) at[i] = sym::min(at[i], sizes[i] - 1);
  }
  return at;
}

}  // namespace

Val sum_at_footprint(KernelWriter& writer, const Item& item, const ops::Index& inner,
                     const ir::Sizes& inner_sizes, loop::Stage& footprint, const ops::Index& index,
                     Val mask) {
  loop::ScalarPool& scalars = writer.scalars();
  const Computation& def = item.computation;
  ops::Index at;
  for (Expr size : item.slots[0].sizes) at.push_back(writer.symbols().index("p", size));
  ops::Index r;
  for (Expr size : def.reduce_sizes) {
    r.push_back(size == Expr(1) ? Expr(0) : writer.symbols().index("y", size));
    if (size != Expr(1)) footprint.reduce_axes.push_back({r.back(), size});
  }
  const int32_t local = writer.kernel().locals++;
  std::vector<Val> values = writer.inputs(def, at, r);
  const std::array total{scalars.local(local, values[0]->dtype)};
  values.push_back(writer.finished(def, total, at)[0]);
  const Seen seen = axes_of_footprint(writer.symbols(), inner, inner_sizes, footprint);
  const ops::Index there = inside(index, item.slots[0].sizes);
  sym::Substitution map;
  for (size_t i = 0; i < at.size(); ++i)
    map.emplace_back(at[i], sym::substitute(there[i], seen.map));
  values = loop::substituted(scalars, values, map);
  const DType dtype = item.slots[0].dtype;
  const int32_t number = writer.add_scratch(dtype, seen.elements);
  footprint.after = {{number, seen.written, scalars.cast(values.back(), dtype), false}};
  values.pop_back();
  footprint.reductions.push_back({def.combiner, std::move(values), local});
  const Val value = scalars.load(number, dtype, seen.read);
  return mask == nullptr ? value : scalars.select(mask, value, scalars.constant(dtype, 0));
}

}  // namespace tandem::schedule
