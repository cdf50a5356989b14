// Inference with weights that do not change: parameters and buffers become constants. What the
// program itself writes cannot, nor what has a symbolic size. Runs after functionalize, when writes
// through views have become writes to inputs.
#include <algorithm>

#include "ir/writes.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Value;

bool is_weight(const Value* input) {
  return input->type.is_tensor() &&
         (input->role == ir::Role::parameter || input->role == ir::Role::buffer);
}

bool may_be_constant(const Value* input) {
  auto is_number = [](const sym::Expr& size) { return size.constant().has_value(); };
  return !ir::is_written(input) && std::ranges::all_of(input->type.sizes, is_number) &&
         std::ranges::all_of(input->type.strides, is_number);
}

}  // namespace

void freeze(ir::Graph& graph, GraphCtx&) {
  for (Value* input : graph.inputs()) {
    if (!is_weight(input) || !may_be_constant(input)) continue;
    input->constant = true;
    input->requires_grad = false;
  }
}

}  // namespace tandem::passes
