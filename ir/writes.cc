// Problem: an input that is written is no constant and no memory that lives anyway, and what is
// written back may be computed in the input's place: many passes ask who writes what. Approach: the
// uses of a value know it, so nothing is kept.
#include "ir/writes.h"

#include <algorithm>

namespace tandem::ir {
namespace {

constexpr uint32_t kInput = 0;
constexpr uint32_t kSource = 1;

bool is_write(const Use& use, uint32_t arg) {
  return use.node != nullptr && use.node->op->mutates() && use.arg == arg;
}

const Value* input_of(const Use& write) { return std::get<Value*>(write.node->args[kInput]); }

}  // namespace

bool is_written(const Value* input) {
  return std::ranges::any_of(input->uses, [](const Use& use) { return is_write(use, kInput); });
}

bool is_written_back(const Value* value) { return write_back_target(value) != nullptr; }

const Value* write_back_target(const Value* value) {
  for (const Use& use : value->uses)
    if (is_write(use, kSource)) return input_of(use);
  return nullptr;
}

bool is_written_back_to(const Value* value, const Value* input) {
  return std::ranges::any_of(value->uses, [&](const Use& use) {
    return is_write(use, kSource) && input_of(use) == input;
  });
}

}  // namespace tandem::ir
