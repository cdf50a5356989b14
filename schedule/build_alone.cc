// Scans and scatters: a kernel for one item, whose loops no other item has.
#include <array>

#include "schedule/inline.h"
#include "schedule/kernel_writer.h"

namespace tandem::schedule {

using loop::Val;
using sym::Expr;

void build_scan(KernelWriter& writer, const Item& item) {
  loop::Kernel& kernel = writer.kernel();
  const Slot& slot = item.slots[0];
  int64_t dim = item.computation.reduced_dims[0];
  loop::Stage& stage = kernel.stages.emplace_back();
  ops::Index out;
  for (size_t i = 0; i < slot.sizes.size(); ++i) {
    bool scanned = static_cast<int64_t>(i) == dim;
    out.push_back(writer.symbols().index(scanned ? "y" : "x", slot.sizes[i]));
    loop::Axis axis{out.back(), slot.sizes[i]};
    (scanned ? stage.reduce_axes : kernel.outer).push_back(axis);
  }
  loop::Reduction reduction;
  reduction.combiner = item.computation.combiner;
  reduction.inputs = writer.inputs(item.computation, out, {out[dim]});
  reduction.scan = true;
  kernel.locals = loop::results(reduction.combiner);
  std::vector<Val> locals;
  for (int32_t i = 0; i < kernel.locals; ++i)
    locals.push_back(writer.scalars().local(i, reduction.inputs[static_cast<size_t>(i)]->dtype));
  stage.reductions.push_back(std::move(reduction));
  std::vector<Val> results = writer.finished(item.computation, locals, out);
  for (uint32_t i = 0; i < item.slots.size(); ++i)
    if (item.slots[i].is_stored)
      writer.store(stage.body, {&item, i}, out,
                   writer.scalars().cast(results[i], item.slots[i].dtype));
}

/// First stage: the initial values, which in place are there; second: the sources, in order. Tasks
/// own ranges of the dimensions that destination and source share, so no two tasks touch one place.
void build_scatter(KernelWriter& writer, const Item& item) {
  loop::Kernel& kernel = writer.kernel();
  loop::ScalarPool& scalars = writer.scalars();
  const Computation& def = item.computation;
  const Slot& slot = item.slots[0];
  SlotKey key{&item, 0};
  kernel.stages.emplace_back();
  ops::Index index;
  for (size_t i = 0; i < slot.sizes.size(); ++i) {
    index.push_back(writer.symbols().index("x", slot.sizes[i]));
    bool shared =
        static_cast<int64_t>(i) != def.scatter_dim && def.source_sizes[i] == slot.sizes[i];
    loop::Axis axis{index.back(), slot.sizes[i]};
    (shared ? kernel.outer : kernel.stages.back().axes).push_back(axis);
  }
  if (slot.in_place_of != nullptr) {
    kernel.stages.clear();
  } else {
    writer.store(kernel.stages.back().body, key, index,
                 scalars.cast(writer.point(def, 0, index), slot.dtype));
  }
  kernel.stages.emplace_back();
  ops::Index source;
  ops::Index target;
  for (size_t i = 0; i < def.source_sizes.size(); ++i) {
    bool shared =
        static_cast<int64_t>(i) != def.scatter_dim && def.source_sizes[i] == slot.sizes[i];
    source.push_back(shared ? index[i] : writer.symbols().index("y", def.source_sizes[i]));
    if (!shared) kernel.stages.back().axes.push_back({source.back(), def.source_sizes[i]});
  }
  target = source;
  sym::Substitution map;
  bind_axes(map, def.source, source);
  const std::vector<Val> scattered = writer.written(std::array{def.destination, def.value}, map);
  target[def.scatter_dim] = scalars.as_index(scattered[0], slot.sizes[def.scatter_dim]);
  Val value = scalars.cast(scattered[1], slot.dtype);
  writer.store(kernel.stages.back().body, key, target, value);
  kernel.stages.back().body.back().accumulate = def.accumulate;
  kernel.stages.back().body.back().combiner = def.combiner;
}

}  // namespace tandem::schedule
