// What was decided, for people.
#include <fmt/format.h>

#include "loop/kernel.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

struct Line {
  const abi::Program& program;
  std::string operator()(const abi::Launch& launch) const {
    return fmt::format("launch {} ({})", program.kernels[launch.kernel].symbol, launch.label);
  }
  std::string operator()(const abi::LibraryCall& call) const { return "library " + call.label; }
  std::string operator()(const abi::Copy& copy) const { return "copy " + copy.label; }
};

std::string instructions(const abi::Program& program, size_t kernels) {
  std::string text =
      fmt::format("program {}: {} instructions, {} kernels, {} buffers\n", program.name,
                  program.instructions.size(), kernels, program.buffers.size());
  for (const abi::Instruction& instruction : program.instructions)
    text += "  " + std::visit(Line{program}, instruction) + "\n";
  return text;
}

}  // namespace

std::string report(const Scheduled& scheduled) {
  std::string text = instructions(scheduled.program, scheduled.kernels.size());
  if (scheduled.program.setup != nullptr)
    text += instructions(*scheduled.program.setup, scheduled.setup_kernels.size());
  for (const Note& note : scheduled.notes)
    text += fmt::format("  note {}: {}\n", note.place, note.text);
  for (const std::vector<loop::Kernel>* kernels : {&scheduled.kernels, &scheduled.setup_kernels})
    for (const loop::Kernel& kernel : *kernels) text += loop::to_string(kernel);
  return text;
}

}  // namespace tandem::schedule
