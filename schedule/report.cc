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

}  // namespace

std::string report(const Scheduled& scheduled) {
  std::string text = fmt::format("program {}: {} instructions, {} kernels, {} buffers\n",
                                 scheduled.program.name, scheduled.program.instructions.size(),
                                 scheduled.kernels.size(), scheduled.program.buffers.size());
  for (const abi::Instruction& instruction : scheduled.program.instructions)
    text += "  " + std::visit(Line{scheduled.program}, instruction) + "\n";
  for (const Note& note : scheduled.notes)
    text += fmt::format("  note {}: {}\n", note.place, note.text);
  for (const loop::Kernel& kernel : scheduled.kernels) text += loop::to_string(kernel);
  return text;
}

}  // namespace tandem::schedule
