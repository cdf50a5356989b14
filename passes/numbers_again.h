// Numbers that the backward half of a body reads for itself.
#pragma once

#include "ir/graph.h"

namespace tandem::passes {

/// Of a joint graph before `split`: where its backward half computes with a number that the program
/// reads, or with the size that it is, it reads it once more. So no number is saved, but the tensor
/// without dimensions that it is read from.
void read_numbers_again(ir::Graph& joint);

}  // namespace tandem::passes
