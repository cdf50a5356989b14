// Size code is evaluated when a call brings sizes not seen before, never in between, so it is
// written for clarity: one value stack. Most codes are one constant or one slot and take the first
// lines. Arithmetic is checked: a size that overflows is the user's input out of range, not a
// number to go on with.
#include "runtime/size_code.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/diagnostic.h"

namespace tandem::runtime {
namespace {

using Op = abi::SizeInstruction::Op;

[[noreturn]] void overflow(const char* what, int64_t a, int64_t b) {
  throw UserError("size arithmetic out of range: " + std::to_string(a) + " " + what + " " +
                  std::to_string(b));
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) overflow("//", a, b);
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) overflow("mod", a, b);
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t apply(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &result)) overflow("+", a, b);
      return result;
    case Op::mul:
      if (__builtin_mul_overflow(a, b, &result)) overflow("*", a, b);
      return result;
    case Op::floor_div: return floor_div(a, b);
    case Op::mod: return floor_mod(a, b);
    case Op::min: return std::min(a, b);
    case Op::max: return std::max(a, b);
    case Op::constant:
    case Op::slot: break;
  }
  TD_CHECK(false) << "operation " << static_cast<int>(op);
  return 0;
}

int64_t run(const abi::SizeCode& code, std::span<const int64_t> slots, int64_t* stack) {
  int64_t* top = stack;
  for (const abi::SizeInstruction& instruction : code) {
    if (instruction.op == Op::constant) {
      *top++ = instruction.value;
    } else if (instruction.op == Op::slot) {
      *top++ = slots[static_cast<size_t>(instruction.value)];
    } else {
      --top;
      top[-1] = apply(instruction.op, top[-1], top[0]);
    }
  }
  return stack[0];
}

}  // namespace

int64_t evaluate(const abi::SizeCode& code, std::span<const int64_t> slots) {
  TD_CHECK(!code.empty());
  if (code.size() == 1) {
    const abi::SizeInstruction& only = code.front();
    return only.op == Op::constant ? only.value : slots[static_cast<size_t>(only.value)];
  }
  constexpr size_t kSmall = 64;
  std::array<int64_t, kSmall> small;
  if (code.size() <= kSmall) return run(code, slots, small.data());
  std::vector<int64_t> large(code.size());
  return run(code, slots, large.data());
}

bool evaluate(const abi::Guard& guard, std::span<const int64_t> slots) {
  const int64_t left = evaluate(guard.left, slots);
  const int64_t right = evaluate(guard.right, slots);
  switch (guard.relation) {
    case abi::Guard::Relation::eq: return left == right;
    case abi::Guard::Relation::ne: return left != right;
    case abi::Guard::Relation::lt: return left < right;
    case abi::Guard::Relation::le: return left <= right;
  }
  return false;
}

bool is_well_formed(const abi::SizeCode& code, uint32_t slots) {
  size_t depth = 0;
  for (const abi::SizeInstruction& instruction : code) {
    if (instruction.op == Op::constant) {
      ++depth;
    } else if (instruction.op == Op::slot) {
      if (instruction.value < 0 || instruction.value >= slots) return false;
      ++depth;
    } else {
      if (depth < 2) return false;
      --depth;
    }
  }
  return depth == 1;
}

std::string to_text(const abi::SizeCode& code) {
  std::vector<std::string> stack;
  for (const abi::SizeInstruction& instruction : code) {
    if (instruction.op == Op::constant) {
      stack.push_back(std::to_string(instruction.value));
    } else if (instruction.op == Op::slot) {
      stack.push_back("s" + std::to_string(instruction.value));
    } else {
      constexpr std::array<const char*, 8> kSigns = {"",     "",      " + ",   " * ",
                                                     " // ", " mod ", " min ", " max "};
      const std::string right = std::move(stack.back());
      stack.pop_back();
      stack.back() = "(" + stack.back() + kSigns[static_cast<size_t>(instruction.op)] + right + ")";
    }
  }
  return stack.empty() ? "0" : stack.back();
}

int64_t single_slot(const abi::SizeCode& code) {
  return code.size() == 1 && code.front().op == Op::slot ? code.front().value : -1;
}

}  // namespace tandem::runtime
