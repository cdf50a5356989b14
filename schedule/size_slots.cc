// Size expressions become postfix code; nothing of the symbol pool is left in a program.
#include "schedule/size_slots.h"

namespace tandem::schedule {

using abi::SizeCode;
using abi::SizeInstruction;
using sym::Expr;

namespace {

SizeInstruction::Op size_op(sym::Kind kind) {
  switch (kind) {
    case sym::Kind::add: return SizeInstruction::Op::add;
    case sym::Kind::mul: return SizeInstruction::Op::mul;
    case sym::Kind::floor_div: return SizeInstruction::Op::floor_div;
    case sym::Kind::mod: return SizeInstruction::Op::mod;
    case sym::Kind::min: return SizeInstruction::Op::min;
    case sym::Kind::max: return SizeInstruction::Op::max;
    case sym::Kind::constant:
    case sym::Kind::symbol: break;
  }
  return SizeInstruction::Op::constant;
}

}  // namespace

uint32_t SizeSlots::slot_of(const std::string& symbol) {
  std::map<std::string, uint32_t>::iterator it = slots_.find(symbol);
  if (it == slots_.end()) it = slots_.emplace(symbol, program_.slots++).first;
  return it->second;
}

uint32_t SizeSlots::slot_of(const ir::Value* scalar) {
  const auto [known, is_new] = scalars_.try_emplace(scalar, program_.slots);
  program_.slots += is_new;
  return known->second;
}

SizeInstruction SizeSlots::of_symbol(Expr symbol) {
  const std::map<std::string, LaunchArg>::const_iterator arg = args_.find(symbol.name());
  if (arg == args_.end()) return {SizeInstruction::Op::slot, slot_of(symbol.name())};
  if (const int64_t* number = std::get_if<int64_t>(&arg->second))
    return {SizeInstruction::Op::constant, *number};
  return {SizeInstruction::Op::slot, slot_of(std::get<const ir::Value*>(arg->second))};
}

SizeCode SizeSlots::code(Expr e) {
  if (e.constant()) return {{SizeInstruction::Op::constant, *e.constant()}};
  if (e.is_symbol()) return {of_symbol(e)};
  SizeCode result;
  std::span<const Expr> args = e.args();
  for (size_t i = 0; i < args.size(); ++i) {
    SizeCode part = code(args[i]);  // depth of a size expression, not of the user's program
    result.insert(result.end(), part.begin(), part.end());
    if (i > 0) result.push_back({size_op(e.kind()), 0});
  }
  return result;
}

std::vector<SizeCode> SizeSlots::codes(const ir::Sizes& sizes) {
  std::vector<SizeCode> result;
  for (Expr size : sizes) result.push_back(code(size));
  return result;
}

}  // namespace tandem::schedule
