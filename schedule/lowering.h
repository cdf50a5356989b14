// Computations written into a kernel: what has no home is inlined, the sink of the kernel in
// progress is asked for everything else.
#pragma once

#include <map>
#include <span>
#include <utility>

#include "schedule/plan.h"

namespace tandem::schedule {

/// Where elements of realised values come from while an expression is written.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual loop::ScalarPool& scalars() = 0;
  /// Element of a realised value or input in its storage dtype.
  virtual loop::Val element(const ir::Value* value, const ops::Index& index, loop::Val mask) = 0;
  virtual loop::Val scalar_input(const ir::Value* value) = 0;
  virtual int32_t error(const std::string& text) = 0;
};

/// Writes expressions into a pool of its own, to be looked at; remembers what they read and where.
class ProbeSink final : public Sink {
 public:
  explicit ProbeSink(sym::Pool& symbols) : pool_(symbols) {}
  loop::ScalarPool& scalars() override { return pool_; }
  loop::Val element(const ir::Value* value, const ops::Index& index, loop::Val mask) override;
  loop::Val scalar_input(const ir::Value* value) override;
  int32_t error(const std::string&) override {
    can_fail = true;
    return 0;
  }

  std::vector<std::pair<const ir::Value*, ops::Index>> reads;
  bool can_fail = false;

 private:
  loop::ScalarPool pool_;
};

class GraphLowering {
 public:
  explicit GraphLowering(Plan& plan) : plan_(&plan), computations_(plan.graph->pool()) {}
  Plan& plan() const { return *plan_; }
  loop::ScalarPool& scalars() { return sink_->scalars(); }
  Computations& computations() { return computations_; }
  const Computation& computation(const ir::Node* node) { return computations_.of(node); }

  /// Element of a tensor in its compute type (16-bit floats widened). With a mask: 0 where it is
  /// false, and the index may be anything there.
  loop::Val load(const ir::Value* value, const ops::Index& index, loop::Val mask = nullptr);

  // A computation at the given axes.
  /// A result of a map, or what a scatter starts from.
  loop::Val point(const Computation& of, size_t result, const ops::Index& at);
  /// Inputs of the combiner.
  std::vector<loop::Val> inputs(const Computation& of, const ops::Index& out, const ops::Index& r);
  /// Results of what was combined.
  std::vector<loop::Val> finished(const Computation& of, std::span<const loop::Val> combined,
                                  const ops::Index& out);
  /// Of a scatter: place along its dimension and value of a source point.
  std::pair<loop::Val, loop::Val> scattered(const Computation& of, const ops::Index& source);

  /// Directs expressions to `sink` while alive; also drops remembered expressions of the previous
  /// one.
  class Into {
   public:
    Into(GraphLowering& lowering, Sink& sink);
    ~Into();
    Into(const Into&) = delete;
    Into& operator=(const Into&) = delete;

   private:
    GraphLowering& lowering_;
    Sink* old_;
    std::map<std::vector<uint64_t>, loop::Val> old_memo_;
  };

  /// While alive, every value but `root`s is inlined whatever its home, and `root`s are read as
  /// realised.
  void set_root(const ir::Value* root) { root_ = root; }

  /// Runs `write` with loads under no mask but their own.
  template <class F>
  auto unmasked(F write) {
    loop::Val outer = std::exchange(mask_, nullptr);
    auto result = write();
    mask_ = outer;
    return result;
  }

 private:
  bool is_home(const ir::Value* value) const;
  loop::Val inlined(const ir::Value* value, const ops::Index& index);
  std::vector<loop::Val> written(std::span<const loop::Val> roots, const sym::Substitution& at,
                                 std::span<const loop::Val> locals = {});
  loop::Val check(loop::Val holds, loop::Val value, int32_t error);

  Plan* plan_;
  Computations computations_;
  Sink* sink_ = nullptr;
  const ir::Value* root_ = nullptr;
  loop::Val mask_ = nullptr;
  std::map<std::vector<uint64_t>, loop::Val> memo_;
};

/// Rounds a computed value to the dtype it has between ops, then widens it again to compute with.
loop::Val at_op_boundary(loop::ScalarPool& pool, loop::Val value, DType dtype);

}  // namespace tandem::schedule
