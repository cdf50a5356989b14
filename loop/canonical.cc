// Problem: the same loop nest arises in many graphs (the layers of a network) under other symbols;
// it is to be compiled once. This runs for every kernel of a compilation, so it is one pass over
// the kernel. Approach: rebuild the kernel in pools of its own, naming symbols as they occur and
// meeting expressions in the order of the text form. Where the copy folds what the original had not
// folded, expressions were met that the copy does not hold, so it is copied once more.
#include "base/check.h"
#include "loop/kernel.h"
#include "loop/transfer.h"
#include "loop/walk.h"

namespace tandem::loop {
namespace {

class Copier {
 public:
  /// Into pools of its own.
  explicit Copier(const Kernel& from) : from_(from), order_(*from.scalars) {
    to_.symbols = std::make_shared<sym::Pool>();
    to_.scalars = std::make_shared<ScalarPool>(*to_.symbols);
    for (size_t i = 0; i < from_.sizes.size(); ++i)
      to_.sizes.push_back(to_.symbols->symbol("n" + std::to_string(i), from_.sizes[i].range()));
  }
  Copier(const Kernel& from, std::shared_ptr<ScalarPool> into, std::vector<sym::Expr> sizes)
      : from_(from), order_(*from.scalars) {
    to_.scalars = std::move(into);
    to_.sizes = std::move(sizes);
  }
  Kernel run();
  bool folded() const { return folded_ || transfer_.folded(); }

 private:
  sym::Expr fresh(char letter, int& next, sym::Expr extent) {
    return to_.scalars->symbols().index(letter + std::to_string(next++), extent);
  }
  Axis copy_axis(const Axis& axis, char letter, int& next);
  void bind_axis(const Axis& from, const Axis& to);
  void copy_stage(const Stage& stage);
  Reduction copy_reduction(const Reduction& reduction);
  Store copy_store(const Store& store);
  /// Copies the lines that a statement needs.
  void copy_lines();
  void copy_line(Val value);
  sym::Expr copy_index(sym::Expr index);
  Val copied(Val value);

  const Kernel& from_;
  Kernel to_;
  Transfer transfer_;
  LineOrder order_;
  std::unordered_map<Val, Val> copies_;
  std::unordered_set<sym::Expr, sym::ExprHash> axes_;
  std::unordered_set<sym::Expr, sym::ExprHash> bound_indirects_;
  std::vector<Val> lines_;
  int next_outer_ = 0;
  int next_axis_ = 0;
  int next_reduce_ = 0;
  int next_indirect_ = 0;
  bool folded_ = false;
};

Kernel Copier::run() {
  to_.name = from_.name;
  to_.locals = from_.locals;
  to_.errors = from_.errors;
  to_.target = from_.target;
  to_.parallel = from_.parallel;
  to_.threads = from_.threads;
  for (size_t i = 0; i < from_.sizes.size(); ++i) transfer_.bind(from_.sizes[i], to_.sizes[i]);
  for (Buffer buffer : from_.buffers) {
    buffer.elements = transfer_(buffer.elements);
    to_.buffers.push_back(std::move(buffer));
  }
  for (const Axis& axis : from_.outer) to_.outer.push_back(copy_axis(axis, 'x', next_outer_));
  for (const Stage& stage : from_.stages) copy_stage(stage);
  return std::move(to_);
}

Axis Copier::copy_axis(const Axis& axis, char letter, int& next) {
  Axis copy = axis;
  copy.extent = transfer_(axis.extent);
  copy.index = fresh(letter, next, copy.extent);
  bind_axis(axis, copy);
  return copy;
}

/// Stages may share an axis symbol; the second one makes a new name, and everything over it is new.
void Copier::bind_axis(const Axis& from, const Axis& to) {
  if (!axes_.insert(from.index).second) {
    copies_.clear();
    bound_indirects_.clear();
    order_.clear();
  }
  transfer_.bind(from.index, to.index);
}

void Copier::copy_stage(const Stage& stage) {
  Stage copy;
  copy.kind = stage.kind;
  copy.barrier = stage.barrier;
  for (const Axis& axis : stage.axes) copy.axes.push_back(copy_axis(axis, 'y', next_axis_));
  for (const Axis& axis : stage.reduce_axes)
    copy.reduce_axes.push_back(copy_axis(axis, 'r', next_reduce_));
  for (const Reduction& reduction : stage.reductions)
    copy.reductions.push_back(copy_reduction(reduction));
  for (const Prefetch& each : stage.prefetches)
    copy.prefetches.push_back({each.buffer, transfer_(each.index)});
  for (const Store& store : stage.body) copy.body.push_back(copy_store(store));
  for (const Store& store : stage.after) copy.after.push_back(copy_store(store));
  to_.stages.push_back(std::move(copy));
}

Reduction Copier::copy_reduction(const Reduction& reduction) {
  for (Val input : reduction.inputs) order_.visit(input, lines_);
  copy_lines();
  Reduction copy = reduction;
  for (Val& input : copy.inputs) input = copied(input);
  return copy;
}

Store Copier::copy_store(const Store& store) {
  order_.visit(store.value, lines_);
  order_.visit_index(store.index, lines_);
  copy_lines();
  Store copy = store;
  copy.index = copy_index(store.index);
  copy.value = copied(store.value);
  return copy;
}

void Copier::copy_lines() {
  for (Val line : lines_) copy_line(line);
  lines_.clear();
}

void Copier::copy_line(Val value) {
  std::vector<Val> args;
  Scalar line = *value;
  for (sym::Expr& at : line.at) at = copy_index(at);
  bool reads = value->opcode == Opcode::load || value->opcode == Opcode::element;
  sym::Expr index = value->opcode == Opcode::load ? copy_index(value->index) : value->index;
  size_t count = reads ? (value->masked ? 1 : 0) : value->args.size();
  args.reserve(count);
  for (size_t i = 0; i < count; ++i) args.push_back(copied(value->args[i]));
  Val result = to_.scalars->rebuild(line, args, index);
  folded_ |= result->opcode != value->opcode || result->args.size() != value->args.size() ||
             !std::equal(args.begin(), args.end(), result->args.begin());
  copies_.emplace(value, result);
}

sym::Expr Copier::copy_index(sym::Expr index) {
  for (const Indirect& indirect : indirects_of(*from_.scalars, index)) {
    if (!bound_indirects_.insert(indirect.symbol).second) continue;
    sym::Expr extent = transfer_(extent_of(indirect.symbol));
    sym::Expr symbol =
        to_.scalars->as_index(copied(indirect.value), extent, "t" + std::to_string(next_indirect_));
    bool is_new = symbol.is_symbol() && symbol.name() == "t" + std::to_string(next_indirect_);
    next_indirect_ += is_new ? 1 : 0;
    transfer_.bind(indirect.symbol, symbol);
  }
  return transfer_(index);
}

/// Constants and indices have no line: they are made where they are used.
Val Copier::copied(Val value) {
  std::unordered_map<Val, Val>::iterator known = copies_.find(value);
  if (known != copies_.end()) return known->second;
  TD_CHECK(is_inline(value)) << "an operand must precede its user";
  sym::Expr index = value->opcode == Opcode::index ? copy_index(value->index) : value->index;
  Val result = to_.scalars->rebuild(*value, {}, index);
  copies_.emplace(value, result);
  return result;
}

}  // namespace

Kernel canonical(const Kernel& kernel) {
  TD_CHECK(kernel.scalars != nullptr) << "a kernel without scalars";
  Copier first(kernel);
  Kernel copy = first.run();
  if (!first.folded()) return copy;
  return Copier(copy).run();
}

Kernel copied(const Kernel& kernel, std::shared_ptr<ScalarPool> into,
              std::vector<sym::Expr> sizes) {
  TD_CHECK(sizes.size() == kernel.sizes.size()) << "a size for each size of the kernel";
  return Copier(kernel, std::move(into), std::move(sizes)).run();
}

}  // namespace tandem::loop
