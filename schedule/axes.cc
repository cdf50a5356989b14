// Axis moves. Each substitutes an axis by an expression of new axes; the simplifier does the rest.
#include "schedule/axes.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Store;
using loop::Val;
using sym::Expr;

/// Lists of axes that belong together: merging and splitting stay inside one. The axes of a
/// footprint are those of the sums that read it, one by one, so neither changes.
std::vector<std::vector<Axis>*> axis_lists(Kernel& kernel) {
  std::vector<std::vector<Axis>*> lists{&kernel.outer};
  bool reads_footprint = false;
  for (Stage& stage : kernel.stages) {
    const bool is_footprint = stage.kind == loop::StageKind::footprint;
    if (!is_footprint) lists.push_back(&stage.axes);
    if (!reads_footprint) lists.push_back(&stage.reduce_axes);
    reads_footprint = is_footprint;
  }
  return lists;
}

/// c when some index divides by a multiple of the axis' step so that a // c and a % c appear.
std::optional<Expr> divisor_of(const std::vector<Expr>& indices, const Axis& axis) {
  std::vector<Expr> stack = indices;
  while (!stack.empty()) {
    Expr e = stack.back();
    stack.pop_back();
    bool divides = e.kind() == sym::Kind::floor_div || e.kind() == sym::Kind::mod;
    if (divides && sym::depends_on(e, axis.index)) {
      std::optional<sym::Affine> affine = sym::affine_in(e.args()[0], axis.index);
      bool forward =
          affine && sym::known_lt(0, affine->coefficient);  // a window's gradient walks backward
      if (forward && sym::known_divisible(e.args()[1], affine->coefficient)) {
        Expr cut = sym::floor_div(e.args()[1], affine->coefficient);
        bool useful =
            cut != Expr(1) && cut != axis.extent && sym::known_divisible(axis.extent, cut);
        if (useful) return cut;
      }
    }
    for (Expr arg : e.args())
      if (sym::depends_on(arg, axis.index)) stack.push_back(arg);
  }
  return std::nullopt;
}

bool split_once(Kernel& kernel) {
  std::vector<Expr> indices = loop::index_expressions(kernel);
  for (std::vector<Axis>* list : axis_lists(kernel)) {
    for (size_t i = 0; i < list->size(); ++i) {
      Axis axis = (*list)[i];
      std::optional<Expr> cut = divisor_of(indices, axis);
      if (!cut) continue;
      sym::Pool& symbols = kernel.scalars->symbols();
      Expr rest = sym::floor_div(axis.extent, *cut);
      Axis high{symbols.index("x", rest), rest};
      Axis low{symbols.index("x", *cut), *cut};
      (*list)[i] = high;
      list->insert(list->begin() + i + 1, low);
      loop::substitute(kernel, {{axis.index, high.index * *cut + low.index}});
      return true;
    }
  }
  return false;
}

}  // namespace

bool walks_as_one(const std::vector<Expr>& indices, const Axis& a, const Axis& b) {
  for (Expr e : indices) {
    if (!sym::depends_on(e, a.index) && !sym::depends_on(e, b.index)) continue;
    std::optional<sym::Affine> in_a = sym::affine_in(e, a.index);
    std::optional<sym::Affine> in_b = sym::affine_in(e, b.index);
    if (!in_a || !in_b) return false;
    if (sym::depends_on(in_a->coefficient, b.index) ||
        in_a->coefficient != in_b->coefficient * b.extent)
      return false;
  }
  return true;
}

namespace {

/// What one step along the axis adds to the address; nothing when that is no fixed number.
std::optional<Expr> stride_along(Expr address, Expr axis) {
  if (!sym::depends_on(address, axis)) return Expr(0);
  std::optional<sym::Affine> affine = sym::affine_in(address, axis);
  return affine ? std::optional(affine->coefficient) : std::nullopt;
}

/// Address of the store that says in which order memory is walked: of those that depend on most
/// outer axes the first.
std::optional<Expr> leading_address(const Kernel& kernel) {
  std::optional<Expr> leading;
  size_t most = 0;
  for (const Stage& stage : kernel.stages)
    loop::for_each_store(stage, [&](const Store& store) {
      const auto walks = [&](const Axis& axis) { return sym::depends_on(store.index, axis.index); };
      const size_t count = std::count_if(kernel.outer.begin(), kernel.outer.end(), walks);
      if (count <= most) return;
      most = count;
      leading = store.index;
    });
  return leading;
}

}  // namespace

void merge_with_next(Kernel& kernel, std::vector<Axis>& axes, size_t number) {
  const Axis a = axes[number];
  const Axis b = axes[number + 1];
  const Expr extent = a.extent * b.extent;
  const Axis merged{kernel.scalars->symbols().index("x", extent), extent};
  axes[number] = merged;
  axes.erase(axes.begin() + static_cast<long>(number) + 1);
  loop::substitute(kernel, {{a.index, sym::floor_div(merged.index, b.extent)},
                            {b.index, sym::mod(merged.index, b.extent)}});
}

namespace {

bool merge_once(Kernel& kernel) {
  std::vector<Expr> indices = loop::index_expressions(kernel);
  for (std::vector<Axis>* list : axis_lists(kernel)) {
    for (size_t i = 0; i + 1 < list->size(); ++i) {
      const Axis& b = (*list)[i + 1];
      if (b.extent == Expr(0) || !walks_as_one(indices, (*list)[i], b)) continue;
      merge_with_next(kernel, *list, i);
      return true;
    }
  }
  return false;
}

}  // namespace

void split_by_divisors(Kernel& kernel) {
  while (split_once(kernel)) {
  }
}

void replace_locals(loop::ScalarPool& pool, std::vector<Store>& stores,
                    const std::map<int32_t, Val>& values) {
  loop::Rewrite how;
  how.map_index = [](Expr e) { return e; };
  how.replace = [&](const loop::Scalar& node, std::span<const Val>) -> Val {
    return node.opcode == loop::Opcode::local ? values.at(node.slot) : nullptr;
  };
  for (Store& store : stores)
    store.value = loop::rewrite(pool, pool, std::array{store.value}, how)[0];
}

int choose_lanes(const Stage& stage, const Target& target, Expr extent, bool reduces) {
  int64_t widest = 4;
  bool heavy = false;
  bool random = false;
  for (Val value : reduces ? loop::loop_scalars_of(stage) : loop::scalars_of(stage)) {
    bool counts = value->opcode != loop::Opcode::index && value->opcode != loop::Opcode::constant;
    if (counts) widest = std::max(widest, size_of(value->dtype));
    heavy |= loop::is_transcendental(value->opcode);
    random |= value->opcode == loop::Opcode::philox;
  }
  int lanes = target.lanes() * (heavy ? 1 : 2) * (reduces ? 2 : 1);
  if (widest == 8) lanes /= 2;
  if (random) lanes = 64;  // the four words of a counter block serve 64 neighbours
  if (std::optional<int64_t> n = extent.constant())
    lanes = std::min(
        lanes,
        static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(*n, 1, lanes)))));
  return lanes;
}

void make_vector(Axis& axis, const Stage& stage, const Target& target, bool reduces) {
  axis.kind = loop::AxisKind::vector;
  axis.lanes = choose_lanes(stage, target, axis.extent, reduces);
}

int64_t column_block(const Kernel& kernel, int lanes, const Tuning::Columns& tuning) {
  Expr others = 1;
  for (size_t i = 0; i + 1 < kernel.outer.size(); ++i) others = others * kernel.outer[i].extent;
  int64_t count = others.constant().value_or(tuning.few_tasks);
  int64_t width = kernel.outer.back().extent.constant().value_or(tuning.block);
  int64_t block = tuning.block;
  while (block > lanes && (count * width < block * tuning.few_tasks || block >= 2 * width))
    block /= 2;
  return block;
}

Axis take_block(Kernel& kernel, size_t number, int64_t block, const std::vector<Stage*>& stages) {
  Axis axis = kernel.outer[number];
  sym::Pool& symbols = kernel.scalars->symbols();
  Expr blocks = sym::ceil_div(axis.extent, block);
  Axis high{symbols.index("x", blocks), blocks, loop::AxisKind::task};
  bool one = blocks == Expr(1);  // its number is 0 and must not occur in extents
  Expr first = one ? Expr(0) : high.index * block;
  Expr extent = sym::known_divisible(axis.extent, block)
                    ? Expr(block)
                    : sym::min(Expr(block), axis.extent - first);
  Axis low{symbols.index("y", one ? extent : Expr(block)), extent};
  for (Stage* stage : stages) loop::substitute(kernel, *stage, {{axis.index, first + low.index}});
  kernel.outer[number] = high;
  return low;
}

void order_axes(Kernel& kernel) {
  std::optional<Expr> address = leading_address(kernel);
  if (!address) return;
  std::vector<Expr> strides;
  for (const Axis& axis : kernel.outer) {
    std::optional<Expr> stride = stride_along(*address, axis.index);
    if (!stride) return;
    strides.push_back(*stride);
  }
  // By insertion: symbolic strides are ordered in part only, and what is not known stays.
  for (size_t i = 1; i < strides.size(); ++i)
    for (size_t k = i; k > 0 && sym::known_lt(strides[k - 1], strides[k]); --k) {
      std::swap(strides[k - 1], strides[k]);
      std::swap(kernel.outer[k - 1], kernel.outer[k]);
    }
}

void lanes_last(std::vector<Axis>& axes) {
  const auto is_long = [](const Axis& axis) { return axis.extent != Expr(1); };
  const auto last = std::ranges::find_if(axes.rbegin(), axes.rend(), is_long);
  if (last != axes.rend()) std::ranges::rotate(axes, last.base());
}

void merge_axes(Kernel& kernel) {
  while (merge_once(kernel)) {
  }
}

bool gathers(const Kernel& kernel) {
  return std::ranges::any_of(
      kernel.stages, [](const Stage& stage) { return stage.kind == loop::StageKind::gather; });
}

bool reduces(const Stage& stage, Expr extent) {
  return std::ranges::any_of(stage.reduce_axes,
                             [&](const Axis& axis) { return axis.extent == extent; });
}

}  // namespace tandem::schedule
