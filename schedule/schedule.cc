// A graph and its setup: the steps (steps.cc), then the program.
#include "schedule/schedule.h"

#include <algorithm>

#include "ops/bodies.h"
#include "schedule/emit_program.h"
#include "schedule/kernel_graph.h"
#include "schedule/steps.h"

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
  main.answers += setup.answers;
}

struct Request {
  const Target& target;
  const Chooser& choose;
  bool explains;
};

Scheduled schedule_alone(const ir::Graph& graph, const Request& request) {
  ops::check_bodies(graph);
  KernelGraph kernels(graph, request.target);
  kernels.choose = request.choose;
  run_steps(kernels);
  Scheduled made = emit_program(kernels);
  if (request.explains) made.answers = answers(kernels);
  return made;
}

/// Bodies launch kernels of the whole program; equal ones are one: those of one text, which a
/// number only finds.
uint32_t kernel_of(Scheduled& whole, const abi::KernelRef& kernel, const loop::Kernel& code) {
  std::vector<abi::KernelRef>& known = whole.program.kernels;
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i].identity == kernel.identity &&
        loop::identity_text(whole.kernels[i]) == loop::identity_text(code))
      return static_cast<uint32_t>(i);
  known.push_back(kernel);
  whole.kernels.push_back(code);
  return static_cast<uint32_t>(known.size()) - 1;
}

void take_body(Scheduled& whole, Scheduled body, const std::vector<uint32_t>& numbers) {
  std::vector<uint32_t> kernels;
  for (size_t i = 0; i < body.kernels.size(); ++i)
    kernels.push_back(kernel_of(whole, body.program.kernels[i], body.kernels[i]));
  body.program.kernels.clear();
  for (abi::Instruction& instruction : body.program.instructions) {
    if (abi::Launch* launch = std::get_if<abi::Launch>(&instruction))
      launch->kernel = kernels[launch->kernel];
    if (abi::Control* control = std::get_if<abi::Control>(&instruction))
      for (abi::Callee& callee : control->callees) callee.body = numbers[callee.body];
  }
  for (Note& note : body.notes) whole.notes.push_back(std::move(note));
  whole.answers += body.answers;
  whole.program.bodies.push_back(std::make_shared<abi::Program>(std::move(body.program)));
}

/// Numbers that the bodies of `graph` have among those of the whole.
std::vector<uint32_t> numbers_in(const std::vector<ir::Graph*>& whole, const ir::Graph& graph) {
  std::vector<uint32_t> numbers;
  for (const ir::Graph* body : ops::bodies_of(graph))
    numbers.push_back(static_cast<uint32_t>(std::ranges::find(whole, body) - whole.begin()));
  return numbers;
}

/// With the bodies of its loops and branches.
Scheduled schedule_one(const ir::Graph& graph, const Request& request) {
  Scheduled whole = schedule_alone(graph, request);
  const std::vector<ir::Graph*> bodies = ops::bodies_of(graph);
  for (const ir::Graph* body : bodies)
    take_body(whole, schedule_alone(*body, request), numbers_in(bodies, *body));
  return whole;
}

}  // namespace

Scheduled schedule(const ir::Graph& graph, const Target& target, const Chooser& choose,
                   bool explains) {
  const Request request{target, choose, explains};
  Scheduled scheduled = schedule_one(graph, request);
  if (const ir::Graph* setup = graph.module().find(ir::GraphRole::Kind::setup, graph))
    link_setup(scheduled, schedule_one(*setup, request));
  return scheduled;
}

}  // namespace tandem::schedule
