// Problem: rows in hand save what else passes through memory (the scores of attention are far
// larger than what they are made from), and cost copies: a task owns few rows, and copies the right
// factor of each product for them. Approach: both are counted. A value that only members read is
// scratch of a block of rows; each product copies its right factor for each block, whether it
// stands alone (blocks are larger there) or not; a sum along the rows is read and written for each
// block, and its tasks are the batch.
#include "schedule/row_cost.h"

#include <algorithm>
#include <cmath>

#include "schedule/column_pieces.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using ir::Value;
using sym::Expr;

double count_of_rows(const ir::Sizes& rows, const Target& target) {
  double count = 1;
  for (Expr size : rows) count *= count_of(size, target);
  return count;
}

/// A product's right factor of one of a batch, its sums, and its operations.
struct ProductSize {
  double panel = 0;  // bytes
  double sums = 0;   // bytes
  double flops = 0;
  double rows = 1;  // of one of a batch
  double columns = 1;
  double batch = 1;
};

ProductSize size_of_product(const Group& group, const Target& target) {
  const loop::Stage& stage = group.kernel.stages[0];
  const std::vector<loop::Axis>& outer = group.kernel.outer;
  const double element = size_of(stage.reductions[0].inputs[0]->dtype);
  double terms = 1;
  for (const loop::Axis& axis : stage.reduce_axes) terms *= count_of(axis.extent, target);
  ProductSize product;
  if (!outer.empty()) product.columns = count_of(outer.back().extent, target);
  if (outer.size() > 1) product.rows = count_of(outer[outer.size() - 2].extent, target);
  for (size_t i = 0; i + 2 < outer.size(); ++i) product.batch *= count_of(outer[i].extent, target);
  product.panel = terms * product.columns * element;
  product.sums = product.rows * product.columns * element;
  product.flops = 2 * product.batch * product.rows * terms * product.columns;
  return product;
}

/// Copies of the right factor, one for each block of rows. The first read of it is counted with the
/// kernel's values; the core that copies it again has read it not long ago.
void count_panels(Cost& cost, const Target& target, const ProductSize& product, double rows) {
  const double copies = product.batch * std::ceil(product.rows / rows);
  count_scratch(cost, target, product.panel, 2 * copies * product.panel);
  cost.flops += product.flops;
}

/// Of a product by itself. Where its rows are too few for all cores, its columns are cut too, down
/// to those of a register tile. More blocks of rows than cores count as they are, though columns
/// would even them out: without the idle core of its 5 blocks, a head of 150 rows would be 18.9 us
/// apart and 19.8 together, and takes 113 and 89 (Zen 4, AVX-512; what else is missing in the
/// former is not known).
double tasks_alone(const ProductSize& product, const Target& target) {
  const double smallest = static_cast<double>(target.tuning.products.smallest_block);
  const double blocks = product.batch * std::ceil(product.rows / smallest);
  if (blocks >= target.cores) return blocks;
  return blocks * std::ceil(product.columns / (2.0 * target.lanes()));
}

std::set<const Value*> values_of(const Joining& joining, GroupNumbers members) {
  std::set<const Value*> values;
  for (uint32_t member : members)
    for (const Value* value : joining.graph.groups[member].buffer_values)
      if (value != nullptr) values.insert(value);
  return values;
}

/// How many of the members' buffers hold the value: once it is written, then it is read.
double passes(const Joining& joining, GroupNumbers members, const Value* value) {
  double count = 0;
  for (uint32_t member : members)
    count +=
        static_cast<double>(std::ranges::count(joining.graph.groups[member].buffer_values, value));
  return count;
}

/// Whether a member combines rows of that width to a number each, by a maximum or in any way.
bool reduces_rows(const Joining& joining, GroupNumbers members, Expr width, bool by_maximum) {
  return std::ranges::any_of(members, [&](uint32_t member) {
    const Group& group = joining.graph.groups[member];
    return !is_product(group) &&
           std::ranges::any_of(group.kernel.stages, [&](const loop::Stage& stage) {
             return !stage.reduce_axes.empty() && stage.reduce_axes.back().extent == width &&
                    (!by_maximum || stage.reductions[0].combiner == loop::Combiner::max);
           });
  });
}

/// Rows of scratch as map_chain has them in hand: pieces of those that are long, if they have a
/// softmax, or are summed and have none (column_pieces.cc).
double row_in_hand(const Joining& joining, const RowChain& chain, const Value& widest) {
  const Target& target = joining.graph.target;
  const Expr width = width_of(widest, chain.rows);
  const double element = static_cast<double>(size_of(widest.type.dtype));
  const double columns = count_of(width, target);
  const double piece = static_cast<double>(longest_piece(target));
  const bool gathers = !chain.gathering.empty();
  const bool is_cut =
      are_cut(width, target) && reduces_rows(joining, chain.members, width, !gathers) != gathers;
  return element * (is_cut ? piece : columns);
}

}  // namespace

Cost cost_apart(const Joining& joining, uint32_t number) {
  const Group& group = joining.graph.groups[number];
  const Target& target = joining.graph.target;
  Cost cost;
  cost.launches = 1;
  for (const Value* value : group.buffer_values) {
    if (value == nullptr) continue;
    const double bytes = bytes_of(*value, target);
    count_shared(cost, target, bytes, bytes);
  }
  double tasks = target.cores;
  if (is_product(group)) {
    const ProductSize product = size_of_product(group, target);
    const double rows = static_cast<double>(target.tuning.products.most_rows);
    count_panels(cost, target, product, rows);
    tasks = tasks_alone(product, target);
  }
  count_slack(cost, target, tasks);
  return cost;
}

Cost cost_apart(const Joining& joining, GroupNumbers groups) {
  Cost cost;
  for (uint32_t group : groups) cost += cost_apart(joining, group);
  return cost;
}

Cost cost_together(const Joining& joining, const RowChain& chain) {
  const Target& target = joining.graph.target;
  const double all_rows = count_of_rows(chain.rows, target);
  const double rows_of_one = count_of(chain.rows.back(), target);
  Cost cost;
  cost.launches = 1;
  std::vector<const Value*> inside;
  double row = 1;  // bytes
  for (const Value* value : values_of(joining, chain.members)) {
    const double bytes = bytes_of(*value, target);
    if (!is_inside(joining, chain.members, value)) {
      count_shared(cost, target, bytes, bytes);
      continue;
    }
    inside.push_back(value);
    row = std::max(row, row_in_hand(joining, chain, *value));
  }
  const double block =
      std::min(rows_of_one, static_cast<double>(rows_of_block(chain.rows, static_cast<int64_t>(row),
                                                              !chain.gathering.empty(), target)));
  for (const Value* value : inside)
    count_scratch(cost, target, 2 * row * block,
                  bytes_of(*value, target) * passes(joining, chain.members, value));
  for (uint32_t member : chain.members) {
    const Group& group = joining.graph.groups[member];
    if (!is_product(group)) continue;
    ProductSize product = size_of_product(group, target);
    const bool gathers = chain.gathering.count(member) != 0;
    if (!gathers) count_panels(cost, target, product, block);
    if (!gathers) continue;
    const double blocks = product.batch * std::ceil(rows_of_one / block);
    cost.flops += product.flops;
    count_scratch(cost, target, product.sums, 2 * blocks * product.sums);
  }
  const double batch = all_rows / rows_of_one;
  count_slack(cost, target,
              chain.gathering.empty() ? batch * std::ceil(rows_of_one / block) : batch);
  return cost;
}

bool fits_shared_memory(const Joining& joining, const RowChain& chain) {
  const Target& target = joining.graph.target;
  int64_t row = target.tuning.blocks.chain_numbers * size_of(DType::f64);
  for (const Value* value : values_of(joining, chain.members)) {
    if (!is_inside(joining, chain.members, value)) continue;
    const int64_t width = width_of(*value, chain.rows).range().hi;
    if (width > target.gpu.shared_bytes) return false;
    row += width * size_of(value->type.dtype);
  }
  return row * target.tuning.blocks.chain_rows <= target.gpu.shared_bytes;
}

}  // namespace tandem::schedule
