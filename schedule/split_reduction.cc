// A long reduction with few results would occupy one core and one accumulator. It is cut into
// blocks of its reduced elements: an item of partial results, and the reduction of those. Blocks
// depend on shapes and layouts only, so bits do not depend on threads; they follow the order of the
// elements in memory, so that each block is one walk.
#include <algorithm>
#include <numeric>

#include "schedule/inline.h"
#include "schedule/routes.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using sym::Expr;

/// Whether memory runs along reduced elements: the dimension with stride 1 is reduced.
bool along_memory(const Item& item) {
  const std::vector<int64_t>& dims = item.computation.reduced_dims;
  int64_t last = static_cast<int64_t>(item.computation.full_sizes.size()) - 1;
  return std::find(dims.begin(), dims.end(), item.channels_last ? 1 : last) != dims.end();
}

/// Elements of a block; nothing when the reduction stays whole.
std::optional<int64_t> block_of(const Item& item, const Tuning::Splitting& tuning) {
  if (item.computation.full_sizes.empty() || item.slots.size() != 1) return std::nullopt;
  if (loop::results(item.computation.combiner) != 1) return std::nullopt;
  std::optional<int64_t> n = sym::product(item.computation.reduce_sizes).constant();
  std::optional<int64_t> m = item.slots[0].value->type.numel().constant();
  bool few_results = m.has_value() && *m < tuning.enough_results;
  bool across = item.channels_last && !along_memory(item);
  bool much_work = across && n.has_value() && m.has_value() && *n * *m >= tuning.many_elements;
  bool long_enough = !n.has_value() || *n >= tuning.long_reduction || much_work;
  if (!few_results || !long_enough) return std::nullopt;
  int64_t columns = std::max(tuning.block / std::max<int64_t>(*m, 1), tuning.fewest_column_rows);
  int64_t block = along_memory(item) ? tuning.block : columns;
  if (n.has_value() && *n < 2 * block) return std::nullopt;
  return block;
}

/// Numbers of the reduced dimensions, outermost in memory first.
std::vector<size_t> memory_order(const Item& item) {
  std::vector<size_t> order(item.computation.reduce_sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (!item.channels_last) return order;
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return item.computation.reduced_dims[i] != 1; });
  return order;
}

/// Position number `linear` of the reduced elements, counted in the given order of dimensions.
ops::Index reduce_position(const std::vector<Expr>& sizes, const std::vector<size_t>& order,
                           Expr linear) {
  ops::Index position(sizes.size());
  for (size_t i = order.size(); i-- > 0;) {
    Expr size = sizes[order[i]];
    position[order[i]] = i == 0 ? linear : sym::mod(linear, size);
    if (i != 0) linear = sym::floor_div(linear, size);
  }
  return position;
}

/// The reduction of one block: results [block number, results of the whole]. What hangs over the
/// end counts as the combiner's identity.
Computation partial_of(const Item& item, int64_t block, loop::ScalarPool& pool) {
  const Computation& whole = item.computation;
  sym::Pool& symbols = pool.symbols();
  Computation part;
  part.kind = Computation::Kind::reduce;
  part.combiner = whole.combiner;
  part.reduce_sizes = {Expr(block)};
  const Expr reduced = sym::product(whole.reduce_sizes);
  part.out = whole.out;
  part.out.insert(part.out.begin(), symbols.index("p", sym::ceil_div(reduced, block)));
  part.reduce = {symbols.index("p", block)};
  const Expr linear = part.out[0] * block + part.reduce[0];
  const ops::Index inner = reduce_position(whole.reduce_sizes, memory_order(item), linear);
  sym::Substitution map;
  bind_axes(map, whole.reduce, inner);
  const loop::Val is_there = pool.binary(loop::Opcode::lt, pool.index(linear), pool.index(reduced));
  part.inputs = masked(pool, whole.inputs, map, is_there);
  loop::Val& first = part.inputs[0];
  first = pool.select(is_there, first, loop::identity_of(pool, part.combiner, first->dtype));
  return part;
}

/// Whether the leading dimensions are summed, and all of them that come before a kept one.
bool sums_columns(const Item& item) {
  const std::vector<int64_t>& dims = item.computation.reduced_dims;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return item.computation.combiner == loop::Combiner::sum &&
         dims.size() < item.computation.full_sizes.size();
}

/// The item of partial results; `item` becomes the reduction of those.
std::unique_ptr<Item> split(Item& item, int64_t block, loop::ScalarPool& pool) {
  std::unique_ptr<Item> partial = std::make_unique<Item>();
  partial->kind = Item::Kind::reduce;
  partial->node = item.node;
  partial->reason = "partial results of a long reduction";
  partial->computation = partial_of(item, block, pool);
  partial->channels_last = item.channels_last;
  Expr reduced = sym::product(item.computation.reduce_sizes);
  Expr blocks = sym::ceil_div(reduced, block);
  if (sums_columns(item) && sym::known_divisible(reduced, block)) partial->partial_rows = reduced;
  ir::Sizes sizes = item.slots[0].value->type.sizes;
  sizes.insert(sizes.begin(), blocks);
  const DType dtype = item.computation.inputs[0]->dtype;
  partial->slots.push_back({nullptr, dtype, sizes, ir::contiguous_strides(sizes)});
  item.partial_of = partial.get();
  item.computation.combiner = combiner_of_parts(item.computation.combiner);
  item.computation.reduce_sizes = {blocks};
  item.computation.full_sizes.clear();
  item.computation.reduced_dims.clear();
  item.computation.inputs.clear();  // reads the partials
  item.computation.reduce.clear();
  return partial;
}

}  // namespace

void split_reductions(KernelGraph& graph) {
  std::vector<std::unique_ptr<Item>> items;
  for (std::unique_ptr<Item>& item : graph.items) {
    bool reduces = item->kind == Item::Kind::reduce;
    std::optional<int64_t> block =
        reduces ? block_of(*item, graph.target.tuning.splitting) : std::nullopt;
    if (!block && reduces) block = rows_of_part(graph, *item->node);
    if (block) items.push_back(split(*item, *block, graph.scalars));
    items.push_back(std::move(item));
  }
  graph.items = std::move(items);
  for (uint32_t i = 0; i < graph.items.size(); ++i) graph.items[i]->id = i;
}

}  // namespace tandem::schedule
