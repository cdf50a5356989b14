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

/// Why groups cannot be members of chains. Where a group's addresses are among the rows depends on
/// it and on the rows alone, and is kept: a chain asks after all its members with each group that
/// it tries.
class RowFits {
 public:
  explicit RowFits(const Joining& joining);
  ~RowFits();

  /// Why a group cannot walk the chain's rows, knowing of the chain's values its own row only; null
  /// where it can. A product needs factors that walk apart: the rows one, the columns the other.
  /// If it gathers, the same of a product, for each of a batch, that sums along the rows and stores
  /// the sums as they are: each row adds its part.
  const char* misfit(const RowChain& chain, uint32_t number);

 private:
  struct Fit;

  Fit& fit_of(const RowChain& chain, uint32_t number);

  const Joining& joining_;
  std::vector<std::vector<Fit>> fits_;  // by group, at the rows that were asked for
};

}  // namespace tandem::schedule
