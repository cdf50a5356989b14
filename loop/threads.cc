// Problem: threads of a block read what others wrote, and nothing but a barrier orders them.
// Approach: stages are walked in order with a list of what was touched since the last barrier. Two
// touches of one buffer, one of them a store, need a barrier between them unless the same thread
// touches the same element in both: the same index, over thread axes of the same lanes, that gives
// different points different elements. A loop of the whole block (an outer axis that is no block
// axis) is walked twice, as its second turn follows the first.
#include "loop/threads.h"

#include <algorithm>

#include "loop/stage.h"
#include "loop/walk.h"

namespace tandem::loop {
namespace {

using sym::Expr;

bool is_thread(const Axis& axis) { return axis.kind == AxisKind::thread; }

std::vector<Axis> all_axes(const Stage& stage) {
  std::vector<Axis> axes = stage.axes;
  axes.insert(axes.end(), stage.reduce_axes.begin(), stage.reduce_axes.end());
  return axes;
}

bool reduces_over_threads(const Stage& stage) {
  return std::ranges::any_of(stage.reduce_axes, is_thread);
}

/// Axes that repeat the stages for the whole block.
std::vector<Axis> block_loops(const Kernel& kernel) {
  std::vector<Axis> loops;
  for (const Axis& axis : kernel.outer)
    if (axis.kind != AxisKind::block && axis.extent != Expr(1)) loops.push_back(axis);
  return loops;
}

struct Touch {
  int32_t buffer = 0;
  Expr index;
  const Stage* stage = nullptr;
  bool stores = false;
  bool after = false;  // of a reduction: by its first lane
};

class BarrierFinder {
 public:
  explicit BarrierFinder(const Kernel& kernel) : kernel_(kernel), loops_(block_loops(kernel)) {
    std::vector<char> stored(kernel.buffers.size());
    for (const Stage& stage : kernel.stages)
      for_each_store(stage, [&](const Store& store) {
        if (is_seen_by_all(store.buffer)) stored[static_cast<size_t>(store.buffer)] = 1;
      });
    stored_ = std::move(stored);
  }

  /// Calls `ask(number, buffer)` for each stage that needs a barrier and has none; it says whether
  /// there is one now.
  template <class Ask>
  void run(Ask ask) {
    for (int turn = 0; turn < (loops_.empty() ? 1 : 2); ++turn) {
      const size_t before = open_.size();
      bool waited = false;
      for (size_t i = 0; i < kernel_.stages.size(); ++i) {
        const Stage& stage = kernel_.stages[i];
        const std::vector<Touch> touches = touches_of(stage);
        const auto wait = [&] { open_.clear(), waited = true; };
        if (stage.barrier) wait();
        if (const Touch* first = conflict(touches, waited ? 0 : before))
          if (ask(i, first->buffer)) wait();
        open_.insert(open_.end(), touches.begin(), touches.end());
      }
    }
  }

 private:
  bool is_seen_by_all(int32_t buffer) const {
    return buffer >= 0 && static_cast<size_t>(buffer) < kernel_.buffers.size() &&
           kernel_.buffers[static_cast<size_t>(buffer)].space != Space::registers;
  }
  bool counts(int32_t buffer) const {
    return is_seen_by_all(buffer) && stored_[static_cast<size_t>(buffer)] != 0;
  }

  std::vector<Touch> touches_of(const Stage& stage) const {
    std::vector<Touch> touches;
    Stage ends;
    ends.after = stage.after;
    Stage loops = stage;
    loops.after.clear();
    for (const Stage* part : {&loops, &ends})
      for (Val value : all_scalars_of(*kernel_.scalars, *part))
        if (value->opcode == Opcode::load && counts(value->slot))
          touches.push_back({value->slot, value->index, &stage, false, part == &ends});
    const auto add = [&](const std::vector<Store>& stores, bool after) {
      for (const Store& store : stores)
        if (counts(store.buffer))
          touches.push_back({store.buffer, store.index, &stage, true, after});
    };
    add(stage.body, false);
    add(stage.after, true);
    return touches;
  }

  /// The first touch that has to wait for an open one; those before `wrapped` are of the turn
  /// before.
  const Touch* conflict(const std::vector<Touch>& touches, size_t wrapped) const {
    for (const Touch& touch : touches)
      for (size_t i = 0; i < open_.size(); ++i) {
        const Touch& other = open_[i];
        if (other.buffer == touch.buffer && (other.stores || touch.stores) &&
            !is_same_thread(other, touch, i < wrapped))
          return &touch;
      }
    return nullptr;
  }

  bool is_same_thread(const Touch& a, const Touch& b, bool wraps) const {
    const std::vector<Axis> first = thread_axes(*a.stage);
    const std::vector<Axis> second = thread_axes(*b.stage);
    if (first.empty() && second.empty()) return true;  // thread 0
    if (first.size() != second.size() || is_apart(a) != is_apart(b)) return false;
    sym::Substitution renamed;
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i].lanes != second[i].lanes) return false;
      renamed.emplace_back(second[i].index, first[i].index);
    }
    return a.index == sym::substitute(b.index, renamed) && knows_only_threads(a, wraps) &&
           is_one_to_one(a.index, first);
  }

  /// Whether it is the first lane that touches, and no other.
  static bool is_apart(const Touch& touch) {
    return touch.after && reduces_over_threads(*touch.stage);
  }

  bool knows_only_threads(const Touch& touch, bool wraps) const {
    if (!indirects_of(*kernel_.scalars, touch.index).empty()) return false;
    const auto moves = [&](const Axis& axis) { return sym::depends_on(touch.index, axis.index); };
    if (wraps && std::ranges::any_of(loops_, moves)) return false;
    return std::ranges::none_of(all_axes(*touch.stage), [&](const Axis& axis) {
      return !is_thread(axis) && axis.extent != Expr(1) && moves(axis);
    });
  }

  /// Whether different points of the axes have different places: each step is at least as wide as
  /// all steps further in.
  static bool is_one_to_one(Expr index, const std::vector<Axis>& axes) {
    Expr inside = 1;
    for (size_t i = axes.size(); i-- > 0;) {
      const std::optional<sym::Affine> affine = sym::affine_in(index, axes[i].index);
      if (!affine || !sym::known_lt(0, affine->coefficient) ||
          !sym::known_le(inside, affine->coefficient))
        return false;
      inside = affine->coefficient * axes[i].extent;
    }
    return true;
  }

  const Kernel& kernel_;
  std::vector<Axis> loops_;
  std::vector<char> stored_;  // by buffer
  std::vector<Touch> open_;
};

/// The rules of one stage, and of the kernel around it.
class ThreadRules {
 public:
  explicit ThreadRules(const Kernel& kernel) : kernel_(kernel) {}

  std::vector<std::string> run() {
    outer();
    for (size_t i = 0; i < kernel_.buffers.size(); ++i) buffer(i);
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      place_ = "stage " + std::to_string(i) + ": ";
      stage(kernel_.stages[i]);
    }
    if (kernel_.threads > 0 && problems_.empty()) barriers();
    return std::move(problems_);
  }

 private:
  void require(bool holds, std::string text) {
    if (!holds) problems_.push_back(place_ + std::move(text));
  }
  bool has_threads() const { return kernel_.threads > 0; }
  const Buffer* buffer_of(int32_t number) const {
    const bool known = number >= 0 && static_cast<size_t>(number) < kernel_.buffers.size();
    return known ? &kernel_.buffers[static_cast<size_t>(number)] : nullptr;
  }

  void outer() {
    for (const Axis& axis : kernel_.outer) {
      require(axis.kind != AxisKind::thread, "an outer axis is thread");
      require(axis.kind != AxisKind::block || has_threads(), "a block axis without threads");
      require(axis.kind != AxisKind::task || !has_threads(), "a task axis beside threads");
      require(axis.kind != AxisKind::block || kernel_.parallel || axis.extent == Expr(1),
              "an ordered kernel has blocks");
    }
  }

  void buffer(size_t number) {
    const Buffer& buffer = kernel_.buffers[number];
    if (buffer.space == Space::global) return;
    const std::string name = "buffer b" + std::to_string(number);
    require(buffer.access == Access::scratch, name + " is no scratch and not global");
    require(has_threads(), name + " is " + std::string(name_of(buffer.space)) + " without threads");
    require(buffer.space == Space::shared || buffer.elements.constant().has_value(),
            "the extent of " + name + " in registers is no constant");
  }

  void stage(const Stage& stage) {
    require(!stage.barrier || has_threads(), "a barrier without threads");
    for (const Axis& axis : all_axes(stage)) {
      require(axis.kind != AxisKind::block, "a block axis inside a stage");
      require(axis.kind != AxisKind::thread || has_threads(), "a thread axis without threads");
      require(axis.kind != AxisKind::vector || !has_threads(), "a vector axis beside threads");
    }
    if (!has_threads()) return;
    require(std::ranges::count_if(stage.reduce_axes, is_thread) <= 1,
            "more than one reduce axis over threads");
    require(threads_of(stage) <= kernel_.threads, "takes " + std::to_string(threads_of(stage)) +
                                                      " threads of " +
                                                      std::to_string(kernel_.threads));
    for (const Store& store : stage.body) one_thread(store, thread_axes(stage));
    std::vector<Axis> kept;
    std::ranges::copy_if(stage.axes, std::back_inserter(kept), is_thread);
    for (const Store& store : stage.after) one_thread(store, kept);
    own_registers(stage);
    if (!thread_axes(stage).empty()) one_place(stage);
  }

  /// What a point stores to a buffer it stores to one place: the next store might be to that of
  /// another thread's point, and nothing would order the two.
  void one_place(const Stage& stage) {
    std::vector<const Store*> stores;
    for_each_store(stage, [&](const Store& store) {
      const Buffer* to = buffer_of(store.buffer);
      if (to != nullptr && to->space != Space::registers) stores.push_back(&store);
    });
    for (size_t i = 0; i < stores.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        require(stores[i]->buffer != stores[k]->buffer || stores[i]->index == stores[k]->index,
                "two stores to different places of b" + std::to_string(stores[i]->buffer));
  }

  void one_thread(const Store& store, const std::vector<Axis>& axes) {
    const Buffer* to = buffer_of(store.buffer);
    if (to == nullptr || to->space == Space::registers) return;
    for (const Axis& axis : axes)
      require(are_threads_apart(*kernel_.scalars, store, axis), "threads of " + axis.index.name() +
                                                                    " store to one place of b" +
                                                                    std::to_string(store.buffer));
  }

  void own_registers(const Stage& stage) {
    const auto check = [&](int32_t number, Expr index) {
      const Buffer* buffer = buffer_of(number);
      if (buffer == nullptr || buffer->space != Space::registers) return;
      for (const Axis& axis : thread_axes(stage))
        require(!sym::depends_on(index, axis.index), "registers b" + std::to_string(number) +
                                                         " are indexed by thread axis " +
                                                         axis.index.name());
    };
    for (Val value : all_scalars_of(*kernel_.scalars, stage))
      if (value->opcode == Opcode::load) check(value->slot, value->index);
    for_each_store(stage, [&](const Store& store) { check(store.buffer, store.index); });
  }

  void barriers() {
    BarrierFinder(kernel_).run([&](size_t number, int32_t buffer) {
      place_ = "stage " + std::to_string(number) + ": ";
      require(false,
              "no barrier before it, and other threads have touched b" + std::to_string(buffer));
      return true;
    });
  }

  const Kernel& kernel_;
  std::vector<std::string> problems_;
  std::string place_;
};

}  // namespace

std::string_view name_of(Space space) {
  switch (space) {
    case Space::global: return "";
    case Space::shared: return "shared";
    case Space::registers: return "registers";
  }
  return "";
}

std::vector<Axis> thread_axes(const Stage& stage) {
  std::vector<Axis> axes = all_axes(stage);
  std::erase_if(axes, [](const Axis& axis) { return !is_thread(axis); });
  return axes;
}

int64_t threads_of(const Stage& stage) {
  int64_t threads = 1;
  for (const Axis& axis : thread_axes(stage))
    threads = std::min<int64_t>(threads * axis.lanes, INT32_MAX);
  return threads;
}

bool are_lanes_apart(Expr address, const Axis& axis, const std::vector<Indirect>& indirects) {
  const std::optional<sym::Affine> lane = sym::affine_in(address, axis.index);
  if (!lane || !sym::known_ne(lane->coefficient, 0)) return false;
  int moving = 0;
  for (const Indirect& from : indirects) {
    if (!walks(from.value, axis.index)) continue;
    const std::optional<sym::Affine> place = sym::affine_in(lane->rest, from.symbol);
    if (!place || ++moving > 1 || !sym::known_lt(0, lane->coefficient)) return false;
    const Expr steps = sym::extent_of(from.symbol);
    const bool is_wide = sym::known_le(lane->coefficient * axis.extent, place->coefficient);
    const bool is_narrow = sym::known_lt(0, place->coefficient) &&
                           sym::known_le(place->coefficient * steps, lane->coefficient);
    if (!is_wide && !is_narrow) return false;
  }
  return true;
}

bool are_threads_apart(const ScalarPool& pool, const Store& store, const Axis& axis) {
  if (axis.lanes == 1 || axis.extent == Expr(1)) return true;
  const std::vector<Indirect> indirects = indirects_of(pool, store.index);
  return indirects.empty() ? sym::depends_on(store.index, axis.index)
                           : are_lanes_apart(store.index, axis, indirects);
}

std::vector<std::string> thread_problems(const Kernel& kernel) { return ThreadRules(kernel).run(); }

void place_barriers(Kernel& kernel) {
  for (Stage& stage : kernel.stages) stage.barrier = false;
  BarrierFinder(kernel).run(
      [&](size_t number, int32_t) { return kernel.stages[number].barrier = true; });
}

}  // namespace tandem::loop
