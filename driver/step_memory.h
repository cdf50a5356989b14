// What a step, a forward and its backward, holds at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// What a step holds over its instructions, those of forward and then those of backward. Bytes, the
/// arguments' included.
struct StepTimeline {
  int64_t arguments = 0;
  uint32_t forward_steps = 0;
  std::vector<std::string> steps;
  std::vector<int64_t> planned;   // by step, at most
  std::vector<int64_t> measured;  // the same, of the last call that was traced; or empty
  std::vector<runtime::CallTimeline::Block> blocks;  // by steps of both programs

  bool is_known() const { return !steps.empty(); }
};

/// Of programs as step_memory takes them; without steps where a size is not known, or where there
/// is no backward.
StepTimeline step_timeline(const runtime::LoadedProgram& forward,
                           const runtime::LoadedProgram* backward, size_t results);

/// Of the halves of a graph that was cut, `forward` and its backward, without code.
StepTimeline timeline_of_halves(ir::Graph& forward, const Options& options);

/// If all that backward reads of forward were saved. `joint`: the text of a joint graph, as choose
/// gets it.
StepTimeline timeline_saving_all(std::string_view joint, const Options& options);

/// StepMemory::most, if these values of the joint graph were saved: cuts a copy of it and schedules
/// both halves. Throws UserError where a size is not known.
int64_t bytes_of_step(const ir::Graph& joint, const ir::Values& saved, const Options& options);

}  // namespace tandem::driver
