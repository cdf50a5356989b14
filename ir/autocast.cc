// A region's casts are ordinary nodes: equal ones merge, and the gradient goes back through them.
#include "ir/autocast.h"

#include <algorithm>

namespace tandem::ir {
namespace {

bool is_eligible(const Value* value) {
  return value->type.is_tensor() && is_float(value->type.dtype) && value->type.dtype != DType::f64;
}

DType target_of(const Op& op, const std::vector<Arg>& args, DType lower) {
  if (op.autocast == Autocast::lower || op.autocast == Autocast::lower_factors) return lower;
  if (op.autocast == Autocast::full) return DType::f32;
  DType widest = lower;
  for_each_operand(args, [&](const Value* value) {
    if (is_eligible(value) && value->type.dtype == DType::f32) widest = DType::f32;
  });
  return widest;
}

}  // namespace

void autocast(Builder& builder, const Op& op, std::vector<Arg>& args, DType dtype) {
  if (op.autocast == Autocast::none) return;
  const DType target = target_of(op, args, dtype);
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.autocast == Autocast::lower_factors && op.schema.params[i].name == "hx") continue;
    args[i] = map_operands(args[i], [&](Value* value) {
      if (!is_eligible(value) || value->type.dtype == target) return value;
      return builder.call("aten._to_copy", {value}, {{"dtype", target}})->results[0];
    });
  }
}

}  // namespace tandem::ir
