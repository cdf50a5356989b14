// What a step, a forward and its backward, holds at once.
#pragma once

#include <optional>

#include "driver/compiler.h"

namespace tandem::driver {

/// Bytes. What the caller has of gradients from before, and the optimizer's state, are beside it.
struct StepMemory {
  int64_t arguments = 0;  // of forward, parameters included, and the tangents
  int64_t saved = 0;      // by forward, in blocks of its own
  int64_t forward = 0;    // beside the arguments while forward runs, at most
  int64_t backward = 0;   // the same of backward: what is saved, results and gradients
  int64_t most() const { return arguments + std::max(forward, backward); }
};

/// Of programs as GraphFunction runs them, with the team of the caller; the first `results` outputs
/// of forward are the caller's, and the caller drops what was saved. Kernels may be null. Nothing
/// where a size is not known. `backward`: null where there is none.
std::optional<StepMemory> step_memory(const runtime::LoadedProgram& forward,
                                      const runtime::LoadedProgram* backward, size_t results);

/// StepMemory::most, if these values of the joint graph were saved: cuts a copy of it and schedules
/// both halves. Throws UserError where a size is not known.
int64_t bytes_of_step(const ir::Graph& joint, const ir::Values& saved, const Options& options);

}  // namespace tandem::driver
