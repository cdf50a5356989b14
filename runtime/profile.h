// Where the time of a program goes, instruction by instruction. Off unless started: then each
// instruction is timed at each call.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "abi/program.h"

namespace tandem::runtime {

/// Kernel symbol or library op, and the ops it holds.
std::string label_of(const abi::Program& program, const abi::Instruction& instruction);

struct InstructionTime {
  uint32_t instruction = 0;
  std::string label;        // kernel symbol or library op, and the ops it holds
  double milliseconds = 0;  // over all calls since start
  int64_t calls = 0;
};

class Profile {
 public:
  void start(const abi::Program& program);
  bool running() const { return running_; }
  void add(uint32_t instruction, int64_t nanoseconds);
  /// Slowest first.
  std::vector<InstructionTime> times() const;

 private:
  mutable std::mutex mutex_;
  bool running_ = false;
  std::vector<InstructionTime> times_;
};

/// A table of `times` with shares, the `count` slowest.
std::string to_string(const std::vector<InstructionTime>& times, size_t count);

}  // namespace tandem::runtime
