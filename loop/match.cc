// Problem: the layers of a network give the same kernel again and again, under other symbols. Its
// canonical text says so, but is dear to make, and it is asked for each kernel. Approach: both are
// walked side by side, and a symbol is bound to the one that stands in its place; most pairs part
// at an extent. What makes expressions does so in the same order for each layer, so their terms
// stand in the same order, too.
#include "loop/match.h"

#include <bit>
#include <unordered_map>

namespace tandem::loop {
namespace {

using sym::Expr;

class Matcher {
 public:
  Matcher(const Kernel& a, const Kernel& b) : a_(a), b_(b) {}

  std::optional<sym::Substitution> run() {
    if (a_.sizes.size() != b_.sizes.size()) return std::nullopt;
    for (size_t i = 0; i < a_.sizes.size(); ++i)
      if (!bind(a_.sizes[i], b_.sizes[i])) return std::nullopt;
    if (!same(a_, b_) || !compare_values()) return std::nullopt;
    return std::move(others_);
  }

 private:
  // Members are taken apart, so that a new one is decided on here.
  bool same(const Kernel& a, const Kernel& b) {
    const auto& [name, symbols, scalars, buffers, sizes, outer, stages, locals, errors, target,
                 parallel, threads] = a;
    return locals == b.locals && parallel == b.parallel && threads == b.threads &&
           errors.size() == b.errors.size() && target == b.target && all(sizes, b.sizes) &&
           all(outer, b.outer) && all(buffers, b.buffers) && all(stages, b.stages);
  }
  bool same(const Buffer& a, const Buffer& b) {
    const auto& [dtype, access, elements, no_alias, label, space, far] = a;
    return dtype == b.dtype && access == b.access && no_alias == b.no_alias && space == b.space &&
           far == b.far && same(elements, b.elements);
  }
  bool same(const Axis& a, const Axis& b) {
    const auto& [index, extent, kind, lanes, steps, stride, ahead, streams] = a;
    return kind == b.kind && lanes == b.lanes && steps == b.steps && stride == b.stride &&
           ahead == b.ahead && streams == b.streams && same(extent, b.extent) &&
           bind(index, b.index);
  }
  bool same(const Stage& a, const Stage& b) {
    const auto& [kind, barrier, axes, reduce_axes, reductions, body, after, prefetches] = a;
    return kind == b.kind && barrier == b.barrier && all(axes, b.axes) &&
           all(reduce_axes, b.reduce_axes) && all(reductions, b.reductions) && all(body, b.body) &&
           all(after, b.after) && all(prefetches, b.prefetches);
  }
  bool same(const Reduction& a, const Reduction& b) {
    const auto& [combiner, inputs, first_local, scan] = a;
    return combiner == b.combiner && first_local == b.first_local && scan == b.scan &&
           all(inputs, b.inputs);
  }
  bool same(const Store& a, const Store& b) {
    const auto& [buffer, index, value, accumulate, combiner, nontemporal] = a;
    return buffer == b.buffer && accumulate == b.accumulate && combiner == b.combiner &&
           nontemporal == b.nontemporal && same(index, b.index) && same(value, b.value);
  }
  bool same(const Prefetch& a, const Prefetch& b) {
    const auto& [buffer, index] = a;
    return buffer == b.buffer && same(index, b.index);
  }
  template <class T>
  bool all(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!same(a[i], b[i])) return false;
    return true;
  }

  // --- index expressions; their depth is bounded by the loop nest

  bool same(Expr a, Expr b) {
    if (a == b && !renamed_) return true;
    if (a.is_constant() || b.is_constant()) return a == b;
    if (a.kind() != b.kind() || a.args().size() != b.args().size()) return false;
    if (a.is_symbol()) return same_symbol(a, b);
    for (size_t i = 0; i < a.args().size(); ++i)
      if (!same(a.args()[i], b.args()[i])) return false;
    return true;
  }
  bool same_symbol(Expr a, Expr b) {
    const auto known = stands_for_.find(a.node());
    if (known != stands_for_.end()) return known->second == b.node();
    const Val from = a_.scalars->indirect(a);
    const Val to = b_.scalars->indirect(b);
    if ((from == nullptr) != (to == nullptr) || !bind(a, b)) return false;
    if (from != nullptr) return same(sym::extent_of(a), sym::extent_of(b)) && same(from, to);
    if (a != b) others_.emplace_back(a, b);
    return true;
  }
  /// One for one.
  bool bind(Expr a, Expr b) {
    const bool is_known = !stands_for_.emplace(a.node(), b.node()).second;
    const bool is_taken = !taken_by_.emplace(b.node(), a.node()).second;
    renamed_ |= a != b;
    if (!is_known && !is_taken) return a.range() == b.range();
    return stands_for_.at(a.node()) == b.node() && taken_by_.at(b.node()) == a.node();
  }

  // --- scalars, of any depth: their operands are compared later

  bool same(Val a, Val b) {
    if (a == b && !renamed_) return true;
    const auto [known, is_new] = values_.emplace(a, b);
    if (is_new) open_.emplace_back(a, b);
    return known->second == b;
  }
  bool compare_values() {
    while (!open_.empty()) {
      const auto [a, b] = open_.back();
      open_.pop_back();
      if (!alike(*a, *b)) return false;
    }
    return true;
  }
  bool alike(const Scalar& a, const Scalar& b) {
    return a.opcode == b.opcode && a.dtype == b.dtype && a.slot == b.slot && a.masked == b.masked &&
           a.integer == b.integer &&
           std::bit_cast<uint64_t>(a.number) == std::bit_cast<uint64_t>(b.number) &&
           same(a.index, b.index) && all(a.at, b.at) && all(a.args, b.args);
  }

  const Kernel& a_;
  const Kernel& b_;
  bool renamed_ = false;  // until then what is the same expression is the same
  std::unordered_map<const sym::Node*, const sym::Node*> stands_for_, taken_by_;
  std::unordered_map<Val, Val> values_;
  std::vector<std::pair<Val, Val>> open_;
  sym::Substitution others_;
};

}  // namespace

std::optional<sym::Substitution> matched(const Kernel& a, const Kernel& b) {
  return Matcher(a, b).run();
}

}  // namespace tandem::loop
