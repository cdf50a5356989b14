// The instruction of a library item.
#pragma once

#include <functional>

#include "schedule/size_slots.h"
#include "schedule/strided.h"

namespace tandem::schedule {

/// Where an operand lies in the program.
using RefOf = std::function<abi::TensorRef(const StridedRef&)>;

abi::Instruction library_call(KernelGraph& graph, const Item& item, SizeSlots& sizes,
                              const RefOf& ref_of);

}  // namespace tandem::schedule
