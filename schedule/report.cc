// What was decided, for people.
#include <fmt/format.h>

#include "loop/kernel.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

struct Line {
  const std::vector<abi::KernelRef>& kernels;
  std::string operator()(const abi::Launch& launch) const {
    const char* const how = launch.beside ? "  beside" : launch.follows ? "  along" : "launch";
    return fmt::format("{} {} ({})", how, kernels[launch.kernel].symbol, launch.label);
  }
  std::string operator()(const abi::LibraryCall& call) const { return "library " + call.label; }
  std::string operator()(const abi::ReadScalar& read) const { return "read " + read.label; }
  std::string operator()(const abi::HostCall& call) const { return "host " + call.label; }
  std::string operator()(const abi::Control& control) const {
    std::string text = control.label;
    for (const abi::Callee& callee : control.callees) text += fmt::format(" body {}", callee.body);
    return text;
  }
};

/// Inputs that the program changes: copied to after the last instruction, or written by a kernel.
std::string mutations(const abi::Program& program) {
  std::string text;
  std::vector<bool> is_copied(program.inputs.size(), false);
  for (const abi::WriteBack& write_back : program.write_backs) {
    is_copied[write_back.input] = true;
    text += fmt::format("  write back %{} from {}\n", program.inputs[write_back.input].name,
                        program.buffers[write_back.src.buffer].label);
  }
  for (size_t i = 0; i < program.inputs.size(); ++i)
    if (program.inputs[i].mutated && !is_copied[i])
      text += fmt::format("  in place %{}\n", program.inputs[i].name);
  return text;
}

std::string lines(const abi::Program& program, const std::vector<abi::KernelRef>& kernels) {
  std::string text;
  for (const abi::Instruction& instruction : program.instructions)
    text += "  " + std::visit(Line{kernels}, instruction) + "\n";
  return text + mutations(program);
}

std::string instructions(const abi::Program& program, size_t kernels) {
  std::string text =
      fmt::format("program {}: {} instructions, {} kernels, {} buffers\n", program.name,
                  program.instructions.size(), kernels, program.buffers.size());
  text += lines(program, program.kernels);
  for (size_t i = 0; i < program.bodies.size(); ++i) {
    const abi::Program& body = *program.bodies[i];
    text += fmt::format("body {} {}: {} instructions, {} buffers\n", i, body.name,
                        body.instructions.size(), body.buffers.size());
    text += lines(body, program.kernels);
  }
  return text;
}

}  // namespace

std::string report(const Scheduled& scheduled) {
  std::string text = instructions(scheduled.program, scheduled.kernels.size());
  if (scheduled.program.setup != nullptr)
    text += instructions(*scheduled.program.setup, scheduled.setup_kernels.size());
  for (const Note& note : scheduled.notes)
    text += fmt::format("  note {}: {}\n", note.place, note.text);
  if (!scheduled.answers.empty()) text += "why:\n" + scheduled.answers;
  for (const std::vector<loop::Kernel>* kernels : {&scheduled.kernels, &scheduled.setup_kernels})
    for (const loop::Kernel& kernel : *kernels) text += loop::to_string(kernel);
  return text;
}

}  // namespace tandem::schedule
