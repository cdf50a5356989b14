// Sums per instruction under a lock: a profile run may be a little slower, never wrong.
#include "runtime/profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::runtime {
namespace {

struct Label {
  const abi::Program& program;
  std::string operator()(const abi::Launch& launch) const {
    return program.kernels[launch.kernel].symbol + " " + launch.label;
  }
  std::string operator()(const abi::LibraryCall& call) const { return "library " + call.label; }
  std::string operator()(const abi::ReadScalar& read) const { return "read " + read.label; }
  std::string operator()(const abi::HostCall& call) const { return "host " + call.label; }
  std::string operator()(const abi::Control& control) const { return "control " + control.label; }
};

}  // namespace

std::string label_of(const abi::Program& program, const abi::Instruction& instruction) {
  return std::visit(Label{program}, instruction);
}

void Profile::start(const abi::Program& program) {
  const std::lock_guard<std::mutex> lock(mutex_);
  times_.clear();
  for (uint32_t i = 0; i < program.instructions.size(); ++i)
    times_.push_back({i, label_of(program, program.instructions[i]), 0, 0});
  running_ = true;
}

void Profile::add(uint32_t instruction, int64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  times_[instruction].milliseconds += static_cast<double>(nanoseconds) * 1e-6;
  ++times_[instruction].calls;
}

std::vector<InstructionTime> Profile::times() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<InstructionTime> sorted = times_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const InstructionTime& a, const InstructionTime& b) {
                     return a.milliseconds > b.milliseconds;
                   });
  return sorted;
}

std::string to_string(const std::vector<InstructionTime>& times, size_t count) {
  double total = 0;
  for (const InstructionTime& time : times) total += time.milliseconds;
  std::string text = "  share      ms a call  instruction\n";
  for (size_t i = 0; i < times.size() && i < count; ++i) {
    const InstructionTime& time = times[i];
    double calls = static_cast<double>(std::max<int64_t>(time.calls, 1));
    text +=
        fmt::format("{:6.2f}% {:12.4f}  {}: {}\n", 100 * time.milliseconds / std::max(total, 1e-9),
                    time.milliseconds / calls, time.instruction, time.label);
  }
  return text;
}

}  // namespace tandem::runtime
