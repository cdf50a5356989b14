// The Lowering that definitions write their expressions through: inlines what has no home, asks the
// sink of the kernel in progress for everything else.
#pragma once

#include <map>
#include <unordered_map>
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
  virtual loop::Val launch_number(int64_t number) { return scalars().integer(DType::i64, number); }
  virtual int32_t error(const std::string& text) = 0;
};

/// Writes expressions into a pool of its own, to be looked at; remembers what they read and where.
class ProbeSink final : public Sink {
 public:
  explicit ProbeSink(sym::Pool& symbols) : pool_(symbols) {}
  loop::ScalarPool& scalars() override { return pool_; }
  loop::Val element(const ir::Value* value, const ops::Index& index, loop::Val mask) override;
  loop::Val scalar_input(const ir::Value* value) override;
  int32_t error(const std::string&) override { return 0; }

  std::vector<std::pair<const ir::Value*, ops::Index>> reads;

 private:
  loop::ScalarPool pool_;
};

class GraphLowering final : public ops::Lowering {
 public:
  explicit GraphLowering(Plan& plan) : plan_(&plan) {}
  Plan& plan() const { return *plan_; }

  loop::ScalarPool& scalars() override { return sink_->scalars(); }
  loop::Val load(const ir::Value* tensor, const ops::Index& index,
                 loop::Val mask = nullptr) override;
  loop::Val scalar(const ir::Arg& arg, DType dtype) override;
  loop::Val launch_number(int64_t number) override { return sink_->launch_number(number); }
  int32_t error(const std::string& text) override { return sink_->error(text); }
  loop::Val check(loop::Val holds, loop::Val value, int32_t error) override;

  /// The op's loops, made once per node.
  const ops::Definition& definition(const ir::Node* node);

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
  /// While set, every operand is read from the sink: what an op itself computes.
  void set_opaque(bool opaque) { opaque_ = opaque; }

  /// Runs `write` with loads under no mask but their own.
  template <class F>
  auto unmasked(F write) {
    loop::Val outer = std::exchange(mask_, nullptr);
    auto result = write();
    mask_ = outer;
    return result;
  }

  /// Runs `write` with every load under `mask`.
  template <class F>
  auto masked(loop::Val mask, F write) {
    loop::Val outer = mask_;
    bool always = mask->opcode == loop::Opcode::constant && mask->integer != 0;
    if (!always)
      mask_ = outer == nullptr ? mask : scalars().binary(loop::Opcode::bit_and, outer, mask);
    auto result = write();
    mask_ = outer;
    return result;
  }

 private:
  bool is_home(const ir::Value* value) const;
  loop::Val inlined(const ir::Value* value, const ops::Index& index);

  Plan* plan_;
  Sink* sink_ = nullptr;
  const ir::Value* root_ = nullptr;
  bool opaque_ = false;
  loop::Val mask_ = nullptr;
  std::unordered_map<const ir::Node*, std::unique_ptr<ops::Definition>> definitions_;
  std::map<std::vector<uint64_t>, loop::Val> memo_;
};

/// Rounds a computed value to the dtype it has between ops, then widens it again to compute with.
loop::Val at_op_boundary(loop::ScalarPool& pool, loop::Val value, DType dtype);

}  // namespace tandem::schedule
