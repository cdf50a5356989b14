// A stage leaves a local, or a row of scratch, for the stages after it. Where a task owns several
// rows there is one for each of them: locals that later stages read are stored when they are
// finished, and every address of scratch moves on by a row's width.
#include "schedule/row_block.h"

#include <map>

#include "schedule/axes.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

class RowWidener {
 public:
  explicit RowWidener(Kernel& kernel) : kernel_(kernel), pool_(*kernel.scalars) {}

  RowBlock run(int64_t block) {
    height_ = sym::min(kernel_.outer.back().extent, block);
    std::vector<Stage*> all;
    for (Stage& stage : kernel_.stages) all.push_back(&stage);
    rows_ = take_block(kernel_, kernel_.outer.size() - 1, block, all);
    scratch_rows_ = kernel_.buffers.size();
    for (size_t i = 0; i < scratch_rows_; ++i) widths_.push_back(kernel_.buffers[i].elements);
    keep_locals();
    for (Stage& stage : kernel_.stages) widen(stage);
    for (size_t i = 0; i < scratch_rows_; ++i)
      if (is_scratch(static_cast<int32_t>(i))) kernel_.buffers[i].elements = widths_[i] * height_;
    return {rows_, height_};
  }

 private:
  /// Locals of a row that later stages read get an element of scratch for each row.
  void keep_locals() {
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      Stage& stage = kernel_.stages[i];
      if (!stage.axes.empty()) continue;
      for (const loop::Reduction& reduction : stage.reductions)
        for (int part = 0; part < loop::results(reduction.combiner); ++part)
          keep_local(i, reduction.first_local + part,
                     reduction.inputs[static_cast<size_t>(part)]->dtype);
    }
  }

  void keep_local(size_t made_in, int32_t local, DType dtype) {
    bool is_read = false;
    for (size_t i = made_in + 1; i < kernel_.stages.size(); ++i)
      for (Val value : loop::scalars_of(kernel_.stages[i]))
        is_read |= value->opcode == loop::Opcode::local && value->slot == local;
    if (!is_read) return;
    int32_t number = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, height_, true, ""});
    kept_[local] = pool_.load(number, dtype, rows_.index);
    made_in_[local] = made_in;
    kernel_.stages[made_in].after.push_back(
        {number, rows_.index, pool_.local(local, dtype), false});
  }

  /// Rows of scratch become matrices; locals of other stages are read from where they are kept.
  void widen(Stage& stage) {
    size_t number = static_cast<size_t>(&stage - kernel_.stages.data());
    loop::StageRewrite how;
    how.replace = [&](const loop::Scalar& node, std::span<const Val>) -> Val {
      if (node.opcode != loop::Opcode::local || kept_.count(node.slot) == 0) return nullptr;
      return made_in_.at(node.slot) == number ? nullptr : kept_.at(node.slot);
    };
    how.place = [&](int32_t& slot, Expr& index) { index = placed(slot, index); };
    loop::rewrite(pool_, pool_, stage, how);
  }

  Expr placed(int32_t slot, Expr index) const {
    size_t number = static_cast<size_t>(slot);
    if (number >= scratch_rows_ || !is_scratch(slot)) return index;
    return rows_.index * widths_[number] + index;
  }

  bool is_scratch(int32_t slot) const {
    return kernel_.buffers[static_cast<size_t>(slot)].access == loop::Access::scratch;
  }

  Kernel& kernel_;
  loop::ScalarPool& pool_;
  Axis rows_;
  Expr height_;
  size_t scratch_rows_ = 0;  // buffers before this one may be rows of scratch
  std::vector<Expr> widths_;
  std::map<int32_t, Val> kept_;
  std::map<int32_t, size_t> made_in_;
};

}  // namespace

RowBlock widen_rows(Kernel& kernel, int64_t block) { return RowWidener(kernel).run(block); }

}  // namespace tandem::schedule
