// Broadcasting at the level of elements: a size-1 dimension always reads index 0.
#include "ops/elements.h"

#include <algorithm>

namespace tandem::ops {

Index broadcast_index(const ir::Sizes& sizes, const Index& index) {
  Index mapped(sizes.size());
  size_t added = index.size() - sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i)
    mapped[i] = sizes[i] == sym::Expr(1) ? sym::Expr(0) : index[added + i];
  return mapped;
}

Index reshape_index(const ir::Sizes& from, const ir::Sizes& to, const Index& index) {
  Index result(from.size(), sym::Expr(0));
  // Empty tensors have no elements to index, but sizes of 0 must not reach a division.
  if (std::find(from.begin(), from.end(), sym::Expr(0)) != from.end()) return result;
  size_t i = 0;
  while (i < from.size() && i < to.size() && from[i] == to[i]) result[i] = index[i], ++i;
  size_t f = from.size();
  size_t t = to.size();
  while (f > i && t > i && from[f - 1] == to[t - 1]) result[--f] = index[--t];
  sym::Expr linear = 0;
  for (size_t k = i; k < t; ++k) linear = linear * to[k] + index[k];
  for (size_t k = f; k-- > i;) {
    bool first = k == i;
    result[k] = first ? linear : sym::mod(linear, from[k]);
    if (!first) linear = sym::floor_div(linear, from[k]);
  }
  return result;
}

Element operand(Lowering& lowering, const ir::Call& call, std::string_view name, const Index& index,
                DType dtype) {
  loop::ScalarPool& pool = lowering.scalars();
  const ir::Arg& arg = call.arg(name);
  ir::Value* const* value = std::get_if<ir::Value*>(&arg);
  if (value == nullptr || !(*value)->type.is_tensor()) return {pool, lowering.scalar(arg, dtype)};
  loop::Val element = lowering.load(*value, broadcast_index((*value)->type.sizes, index));
  return {pool, pool.cast(element, dtype)};
}

Definition map_definition(const ir::Call&, std::function<loop::Val(size_t, const Index&)> map) {
  Definition definition;
  definition.map = std::move(map);
  return definition;
}

loop::Val number_of(loop::ScalarPool& pool, const ir::Arg& arg, DType dtype) {
  if (const double* number = std::get_if<double>(&arg)) return pool.constant(dtype, *number);
  if (const bool* flag = std::get_if<bool>(&arg)) return pool.integer(dtype, *flag ? 1 : 0);
  const sym::Expr* size = std::get_if<sym::Expr>(&arg);
  if (size == nullptr) return nullptr;
  if (size->constant()) return pool.integer(dtype, *size->constant());
  return pool.cast(pool.index(*size), dtype);
}

loop::Val with_check(loop::ScalarPool& pool, loop::Val value, loop::Val position) {
  if (position->opcode != loop::Opcode::check) return value;
  std::vector<loop::Val> parts = loop::reachable(std::vector<loop::Val>{value});
  bool reads_it = std::find(parts.begin(), parts.end(), position) != parts.end();
  return reads_it ? value : pool.check(position->args[0], value, position->slot);
}

}  // namespace tandem::ops
