// Graph in, Program and kernels out.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/program.h"
#include "base/target.h"
#include "ir/graph.h"
#include "loop/kernel.h"

namespace tandem::schedule {

struct Note {
  std::string place;  // "%12 aten.exp"
  std::string text;
};

/// One of several ways to map the same kernel.
struct Candidate {
  std::string name;     // the strategy, and what is changed of the target's numbers
  loop::Kernel kernel;  // mapped, canonical
};
/// The number of the best of at least two candidates, the first of which is the model's choice.
/// `elements`: how many each buffer holds that is no scratch, in their order.
using Chooser = std::function<size_t(const std::vector<Candidate>& candidates,
                                     const std::vector<int64_t>& elements)>;

struct Scheduled {
  abi::Program program;
  std::vector<loop::Kernel>
      kernels;  // mapped, canonical, distinct; in the order of Program::kernels
  std::vector<loop::Kernel> setup_kernels;  // of Program::setup
  std::vector<Note> notes;
  std::vector<ir::Sizes> output_strides;  // in the order of Program::outputs; empty for scalars
  std::string answers;  // where they are asked for: why the library, why two kernels and not one
};

/// All of it, with the setup graph of the module as Program::setup. `choose` is asked where a
/// kernel of known sizes can be mapped in several ways; without one the model's choice is taken.
/// Throws Unsupported when an op has no route.
Scheduled schedule(const ir::Graph& graph, const Target& target, const Chooser& choose = {},
                   bool explains = false);

/// The steps between graph and program, by the names that the flags know.
std::vector<std::string_view> step_names();

/// Text of the kernel graph after a step. `kernels`: its text before that step; where it is empty
/// all steps up to that one run. UserError for text that does not parse and for a step that is
/// none.
std::string after_step(const ir::Graph& graph, const Target& target, std::string_view step,
                       std::string_view kernels = {});

/// Where each value is computed and why there, and of each two in a row why they are not computed
/// by one kernel. Names are those of the graph's text; "all": what Scheduled::answers says.
/// UserError for a name that no node makes.
std::string why(const ir::Graph& graph, const Target& target, std::span<const std::string> values);

/// Human-readable: instructions, notes, kernels.
std::string report(const Scheduled& scheduled);

}  // namespace tandem::schedule
