// Whether kernels can be computed at common rows: what each asks of the others.
#pragma once

#include "schedule/compute_at.h"
#include "schedule/joining.h"

namespace tandem::schedule {

/// Groups under construction as one.
struct RowChain {
  std::vector<uint32_t> members;  // in the order of their stages
  std::set<uint32_t> gathering;   // members that sum along the rows
  ir::Sizes rows;                 // sizes of the outer axes
};

/// Why a group cannot walk the chain's rows, knowing of the chain's values its own row only; null
/// where it can. A product needs factors that walk apart: the rows one, the columns the other.
const char* misfit_at_rows(const Joining& joining, const RowChain& chain, uint32_t number);
/// The same of a product, for each of a batch, that sums along the rows and stores the sums as they
/// are: each row adds its part.
const char* misfit_gathering(const Joining& joining, const RowChain& chain, uint32_t number);

}  // namespace tandem::schedule
