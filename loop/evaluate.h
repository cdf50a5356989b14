// Arithmetic of the opcodes on single values: the meaning of the loop IR, one value at a time.
#pragma once

#include "loop/kernel.h"

namespace tandem::loop {

/// A value of any dtype: integers extended to 64 bits by their signedness, bool as 0 or 1, floats
/// as their bit pattern in the low bits.
using Bits = int64_t;

Bits constant_bits(Val constant);
Bits read_element(const void* base, DType dtype, int64_t index);
void write_element(void* base, DType dtype, int64_t index, Bits value);

Bits unary_bits(Opcode opcode, DType dtype, Bits x);
/// dtype is that of the operands.
Bits binary_bits(Opcode opcode, DType dtype, Bits a, Bits b);
/// a * b + c: floats round once, integers wrap.
Bits multiply_add_bits(DType dtype, Bits a, Bits b, Bits c);
Bits cast_bits(Bits x, DType from, DType to);
Bits bitcast_bits(Bits x, DType to);
/// Integers side by side in 32 bits, the first in the lowest.
Bits pack_bits(std::span<const Bits> parts);

/// What a reduction starts from. Of argmin and argmax the second member is the largest index, so
/// that any real element wins a tie.
std::vector<Bits> identity_of(Combiner combiner, DType dtype);
/// One step: into = combine(into, inputs); dtype is that of the first input.
void accumulate_bits(Combiner combiner, DType dtype, std::vector<Bits>& into,
                     const std::vector<Bits>& inputs);
/// The fold of two partial results.
void combine_bits(Combiner combiner, DType dtype, std::vector<Bits>& into,
                  const std::vector<Bits>& from);

}  // namespace tandem::loop
