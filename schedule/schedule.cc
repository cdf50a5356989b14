// A graph and its setup: the steps (steps.cc), then the program.
#include "schedule/schedule.h"

#include "schedule/emit_program.h"
#include "schedule/kernel_graph.h"

namespace tandem::schedule {
namespace {

/// Joins the constants that setup computes with its outputs, by name.
void link_setup(Scheduled& main, Scheduled setup) {
  for (abi::Constant& constant : main.program.constants)
    for (size_t i = 0; i < setup.program.outputs.size(); ++i)
      if (setup.program.outputs[i].name == constant.name)
        constant.setup_output = static_cast<int32_t>(i);
  main.program.setup = std::make_shared<abi::Program>(std::move(setup.program));
  main.setup_kernels = std::move(setup.kernels);
  main.notes.insert(main.notes.end(), setup.notes.begin(), setup.notes.end());
}

Scheduled schedule_one(const ir::Graph& graph, const Target& target, const Chooser& choose) {
  KernelGraph kernels(graph, target);
  kernels.choose = choose;
  run_steps(kernels);
  return emit_program(kernels);
}

}  // namespace

Scheduled schedule(const ir::Graph& graph, const Target& target, const Chooser& choose) {
  Scheduled scheduled = schedule_one(graph, target, choose);
  if (const ir::Graph* setup = graph.module().find(ir::GraphRole::Kind::setup, graph))
    link_setup(scheduled, schedule_one(*setup, target, choose));
  return scheduled;
}

}  // namespace tandem::schedule
