// Problem: what a stage computes stands in several of its members, and each walk over them written
// by hand forgets one. Approach: the walks are here. A rewrite takes all scalars of a stage at
// once, so that what several values share stays shared, and binds the indirect symbols of addresses
// again to what their scalars became.
#include "loop/stage.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "loop/walk.h"

namespace tandem::loop {
namespace {

using sym::Expr;

/// Scalars behind indirect symbols of the addresses of stores and prefetches, with those symbols.
struct AddressScalars {
  std::vector<Expr> symbols;
  std::vector<Val> values;

  void add(const ScalarPool& pool, Expr index) {
    for (Expr symbol : sym::free_symbols(index))
      if (Val value = pool.indirect(symbol)) {
        symbols.push_back(symbol);
        values.push_back(value);
      }
  }
};

AddressScalars address_scalars(const ScalarPool& pool, const Stage& stage) {
  AddressScalars found;
  for_each_store(stage, [&](const Store& store) { found.add(pool, store.index); });
  for (const Prefetch& hint : stage.prefetches) found.add(pool, hint.index);
  return found;
}

Rewrite scalar_rewrite(const StageRewrite& how) {
  Rewrite scalars;
  scalars.map_index = how.map_index;
  scalars.replace = how.replace;
  scalars.adjust = [&](Scalar& copy) {
    if (copy.opcode == Opcode::local) copy.slot += how.first_local;
    if (copy.opcode == Opcode::load && how.place) how.place(copy.slot, copy.index);
  };
  return scalars;
}

}  // namespace

std::vector<Val> roots_of(const Stage& stage) {
  std::vector<Val> roots;
  for (const Reduction& reduction : stage.reductions)
    roots.insert(roots.end(), reduction.inputs.begin(), reduction.inputs.end());
  for_each_store(stage, [&](const Store& store) { roots.push_back(store.value); });
  return roots;
}

std::vector<Val> scalars_of(const Stage& stage) { return reachable(roots_of(stage)); }

std::vector<Val> loop_scalars_of(const Stage& stage) {
  Stage loops = stage;
  loops.after.clear();
  return scalars_of(loops);
}

std::vector<Val> all_scalars_of(const ScalarPool& pool, const Stage& stage) {
  std::vector<Val> roots = roots_of(stage);
  const AddressScalars addresses = address_scalars(pool, stage);
  roots.insert(roots.end(), addresses.values.begin(), addresses.values.end());
  return reachable(roots);
}

std::vector<Expr> index_expressions(const Kernel& kernel, const Stage& stage) {
  LineOrder order(*kernel.scalars);
  std::vector<Val> lines;
  std::vector<Expr> indices;
  std::unordered_set<Val> known;
  const auto add = [&](Val value) {
    if (!known.insert(value).second) return;
    if (value->opcode == Opcode::load || value->opcode == Opcode::index)
      indices.push_back(value->index);
    indices.insert(indices.end(), value->at.begin(), value->at.end());
  };
  const auto add_root = [&](Val root) {
    order.visit(root, lines);
    if (is_inline(root)) add(root);
  };
  for (const Reduction& reduction : stage.reductions)
    for (Val input : reduction.inputs) add_root(input);
  for_each_store(stage, [&](const Store& store) {
    add_root(store.value);
    order.visit_index(store.index, lines);
    indices.push_back(store.index);
  });
  for (Val line : lines) {
    add(line);
    for (Val operand : line->args)
      if (is_inline(operand)) add(operand);
  }
  for (Val value : all_scalars_of(*kernel.scalars, stage)) add(value);
  return indices;
}

std::vector<Expr> index_expressions(const Kernel& kernel) {
  std::vector<Expr> all;
  for (const Stage& stage : kernel.stages) {
    const std::vector<Expr> indices = index_expressions(kernel, stage);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

namespace {

const Axis* lanes_of(const Stage& stage) {
  for (const Axis& axis : stage.axes)
    if (axis.kind == AxisKind::vector) return &axis;
  return nullptr;
}

/// Whether an address moves with the symbol, also by way of data.
bool varies_with(const ScalarPool& pool, sym::Expr address, sym::Expr symbol) {
  for (const sym::Expr part : sym::free_symbols(address)) {
    if (part == symbol) return true;
    const Val from = pool.indirect(part);
    if (from != nullptr && walks(from, symbol)) return true;
  }
  return false;
}

}  // namespace

bool lies_point_by_point(const Kernel& kernel, const Stage& stage) {
  const Axis* lanes = lanes_of(stage);
  if (lanes == nullptr || stage.axes.empty() || !stage.reductions.empty()) return false;
  const Axis& last = stage.axes.back();
  const std::optional<int64_t> points = last.extent.constant();
  if (&last == lanes || !points || *points < 2 || *points > last.lanes) return false;
  return std::ranges::all_of(stage.body, [&](const Store& store) {
    const std::optional<sym::Affine> along = sym::affine_in(store.index, last.index);
    const std::optional<sym::Affine> across = sym::affine_in(store.index, lanes->index);
    return !store.accumulate && along && along->coefficient == sym::Expr(1) && across &&
           across->coefficient == sym::Expr(*points) &&
           !varies_with(*kernel.scalars, across->rest, lanes->index);
  });
}

bool starts_on_registers(const Stage& stage, const Store& store, DType dtype) {
  constexpr int64_t kLine = 64;
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& axis : *axes) {
      if (axis.kind != AxisKind::vector || axis.lanes < 2) continue;
      const std::optional<sym::Affine> along = sym::affine_in(store.index, axis.index);
      const int64_t elements = std::min<int64_t>(axis.lanes, kLine / size_of(dtype));
      return along && along->coefficient == sym::Expr(1) &&
             sym::known_divisible(along->rest, elements);
    }
  return false;
}

std::vector<Val> turned_loads(const Stage& stage) {
  const Axis* lanes = lanes_of(stage);
  if (lanes == nullptr || stage.axes.empty()) return {};
  const Axis& last = stage.axes.back();
  std::vector<Val> roots;
  for (const Store& store : stage.body) roots.push_back(store.value);
  std::vector<Val> found = reachable(roots);
  std::erase_if(found, [&](Val val) {
    if (val->opcode != Opcode::load || !val->args.empty()) return true;
    const std::optional<sym::Affine> along = sym::affine_in(val->index, last.index);
    const std::optional<sym::Affine> across = sym::affine_in(val->index, lanes->index);
    return !along || along->coefficient != sym::Expr(1) || !across ||
           sym::depends_on(across->coefficient, last.index) ||
           across->coefficient == sym::Expr(0) || across->coefficient == sym::Expr(1);
  });
  return found;
}

bool turns_pairs(const Kernel& kernel, const Stage& stage) {
  const Axis* lanes = lanes_of(stage);
  if (lanes == nullptr || stage.axes.size() < 3 || !stage.reductions.empty() ||
      stage.body.size() != 1 || stage.axes.back().extent != Expr(2))
    return false;
  const Store& store = stage.body[0];
  const Val from = store.value;
  const DType to = kernel.buffers[static_cast<size_t>(store.buffer)].dtype;
  if (from->opcode != Opcode::load || !from->args.empty() || size_of(from->dtype) != 2 ||
      to != from->dtype || store.accumulate)
    return false;
  const auto goes = [](Expr index, Expr axis, int64_t step) {
    const std::optional<sym::Affine> affine = sym::affine_in(index, axis);
    return affine && affine->coefficient == Expr(step);
  };
  const Expr pair = stage.axes.back().index;
  const Expr along = stage.axes[stage.axes.size() - 2].index;
  const std::optional<sym::Affine> across = sym::affine_in(from->index, lanes->index);
  return goes(from->index, pair, 1) && goes(store.index, pair, 1) && goes(from->index, along, 2) &&
         goes(store.index, lanes->index, 2) && across &&
         !sym::depends_on(across->coefficient, along) &&
         !sym::depends_on(across->coefficient, pair);
}

bool walks(Val value, Expr axis) {
  const std::vector<Val> parts = reachable(std::span(&value, 1));
  return std::any_of(parts.begin(), parts.end(),
                     [&](Val part) { return sym::depends_on(part->index, axis); });
}

void rewrite(ScalarPool& to, const ScalarPool& from, Stage& stage, const StageRewrite& how) {
  std::vector<Val> roots = roots_of(stage);
  const size_t direct = roots.size();
  const AddressScalars addresses = address_scalars(from, stage);
  roots.insert(roots.end(), addresses.values.begin(), addresses.values.end());
  roots = rewrite(to, from, roots, scalar_rewrite(how));
  const auto mapped = [&](Expr e) { return how.map_index ? how.map_index(e) : e; };
  sym::Substitution rebound;
  for (size_t i = 0; i < addresses.symbols.size(); ++i) {
    const Expr symbol = addresses.symbols[i];
    rebound.emplace_back(symbol, to.as_index(roots[direct + i], mapped(sym::extent_of(symbol))));
  }
  const auto place = [&](int32_t& buffer, Expr& index) {
    index = sym::substitute(mapped(index), rebound);
    if (how.place) how.place(buffer, index);
  };
  size_t next = 0;
  for (Reduction& reduction : stage.reductions) {
    for (Val& input : reduction.inputs) input = roots[next++];
    reduction.first_local += how.first_local;
  }
  for_each_store(stage, [&](Store& store) {
    store.value = roots[next++];
    place(store.buffer, store.index);
  });
  for (Prefetch& hint : stage.prefetches) place(hint.buffer, hint.index);
}

void substitute(Kernel& kernel, Stage& stage, const sym::Substitution& map) {
  StageRewrite how;
  how.map_index = [&](Expr e) { return sym::substitute(e, map); };
  rewrite(*kernel.scalars, *kernel.scalars, stage, how);
}

void substitute(Kernel& kernel, const sym::Substitution& map) {
  for (Stage& stage : kernel.stages) substitute(kernel, stage, map);
}

}  // namespace tandem::loop
