// Evaluation of the postfix size code that the compiler leaves in a Program.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "abi/program.h"

namespace tandem::runtime {

/// Value of `code` over the slots. Overflow of i64 raises UserError; floor_div rounds toward minus
/// infinity and mod takes the divisor's sign, as sym::Kind says; a divisor of zero raises
/// UserError.
int64_t evaluate(const abi::SizeCode& code, std::span<const int64_t> slots);

bool evaluate(const abi::Guard& guard, std::span<const int64_t> slots);

/// Whether every operation finds its operands, one value is left, and every slot is below `slots`.
bool is_well_formed(const abi::SizeCode& code, uint32_t slots);

/// "s0", "784", "(s0 * 2)": for messages.
std::string to_text(const abi::SizeCode& code);

/// The slot, where the code is nothing but one; -1 otherwise.
int64_t single_slot(const abi::SizeCode& code);

}  // namespace tandem::runtime
