// Inlining is calling the producer's map at the index the consumer wants. Remembered by (value,
// index, mask), so an expression with sharing costs what its distinct parts cost. Depth is bounded:
// realize.cc realises a value before chains of inlined ones grow long.
#include "schedule/lowering.h"

#include <bit>

#include "base/check.h"
#include "schedule/fuse.h"

namespace tandem::schedule {

using loop::Val;

loop::Val at_op_boundary(loop::ScalarPool& pool, Val value, DType dtype) {
  return pool.cast(pool.cast(value, dtype), compute_type(dtype));
}

Val ProbeSink::element(const ir::Value* value, const ops::Index& index, Val mask) {
  reads.emplace_back(value, index);
  return pool_.load(static_cast<int32_t>(value->id), value->type.dtype,
                    linear_index(index, value->type.sizes), mask);
}

Val ProbeSink::scalar_input(const ir::Value* value) {
  return pool_.load(static_cast<int32_t>(value->id), value->type.dtype, 0);
}

GraphLowering::Into::Into(GraphLowering& lowering, Sink& sink)
    : lowering_(lowering), old_(lowering.sink_), old_memo_(std::move(lowering.memo_)) {
  lowering_.sink_ = &sink;
  lowering_.memo_.clear();
}

GraphLowering::Into::~Into() {
  lowering_.sink_ = old_;
  lowering_.memo_ = std::move(old_memo_);
}

const ops::Definition& GraphLowering::definition(const ir::Node* node) {
  std::unique_ptr<ops::Definition>& slot = definitions_[node];
  if (slot == nullptr) {
    const ops::OpDef& def = ops::def_of(*node);
    TD_CHECK(def.lower != nullptr) << node->op->name() << " has no lowering: decompose first";
    slot = std::make_unique<ops::Definition>(def.lower(*this, node->call()));
  }
  return *slot;
}

bool GraphLowering::is_home(const ir::Value* value) const {
  if (opaque_) return true;
  if (root_ != nullptr) return value == root_ || value->node == nullptr;
  return plan_->is_realized(value);
}

Val GraphLowering::inlined(const ir::Value* value, const ops::Index& index) {
  const ops::Definition& def = definition(value->node);
  TD_CHECK(def.kind == ops::Definition::Kind::map) << value->node->op->name() << " does not inline";
  return at_op_boundary(scalars(), def.map(value->index, index), value->type.dtype);
}

Val GraphLowering::load(const ir::Value* value, const ops::Index& index, Val mask) {
  loop::ScalarPool& pool = scalars();
  Val outer = mask_;
  if (mask != nullptr && outer != nullptr) mask = pool.binary(loop::Opcode::bit_and, outer, mask);
  if (mask == nullptr) mask = outer;
  std::vector<uint64_t> key{value->id, mask == nullptr ? 0 : uint64_t{mask->id} + 1};
  for (const sym::Expr& at : index) {
    key.push_back(std::bit_cast<uint64_t>(at.node()));
    key.push_back(static_cast<uint64_t>(at.constant().value_or(0)));
  }
  std::map<std::vector<uint64_t>, Val>::iterator it = memo_.find(key);
  if (it != memo_.end()) return it->second;
  Val result = nullptr;
  if (is_home(value)) {
    result = pool.cast(sink_->element(value, index, mask), compute_type(value->type.dtype));
  } else {
    mask_ = mask;
    result = inlined(value, index);
    mask_ = outer;
    if (mask != nullptr && mask != outer)
      result = pool.select(mask, result, pool.constant(result->dtype, 0));
  }
  memo_.emplace(std::move(key), result);
  return result;
}

Val GraphLowering::check(Val holds, Val value, int32_t error) {
  loop::ScalarPool& pool = scalars();
  if (mask_ != nullptr) {
    Val hidden = pool.unary(loop::Opcode::logical_not, mask_);
    holds = pool.binary(loop::Opcode::bit_or, hidden, holds);
  }
  return pool.check(holds, value, error);
}

Val GraphLowering::scalar(const ir::Arg& arg, DType dtype) {
  loop::ScalarPool& pool = scalars();
  if (const double* number = std::get_if<double>(&arg)) return pool.constant(dtype, *number);
  if (const bool* flag = std::get_if<bool>(&arg)) return pool.integer(dtype, *flag ? 1 : 0);
  if (const sym::Expr* expr = std::get_if<sym::Expr>(&arg)) {
    if (expr->constant()) return pool.integer(dtype, *expr->constant());
    return pool.cast(pool.index(*expr), dtype);
  }
  ir::Value* const* value = std::get_if<ir::Value*>(&arg);
  TD_CHECK(value != nullptr) << "a scalar argument is " << ir::to_string(arg);
  return pool.cast(sink_->scalar_input(*value), dtype);
}

}  // namespace tandem::schedule
