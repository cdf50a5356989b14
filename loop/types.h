// Operand types of the opcodes.
#pragma once

#include <string>

#include "loop/scalar.h"

namespace tandem::loop {

/// What is wrong with the operands of one scalar; empty when nothing is.
std::string type_problem(Val value);

}  // namespace tandem::loop
