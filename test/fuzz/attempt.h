// One input, or many in a row, in a process of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "test/fuzz/engine.h"

namespace tandem::fuzz {

/// How a row of inputs ended.
struct Outcome {
  uint64_t taken = 0;
  uint64_t refused = 0;
  bool failed = false;
  bool hung = false;
  uint64_t at = 0;      // number of the input that failed
  std::string message;  // one line that names the defect; equal for equal defects, mostly
  std::string report;   // what the process wrote
};

/// Inputs `first` and on of a seed, at most `count`, until `seconds` have passed or one fails.
Outcome attempt(const Engine& engine, uint64_t seed, uint64_t first, uint64_t count,
                double seconds);
/// This input alone.
Outcome attempt(const Engine& engine, const std::string& input);

/// The input of a number.
std::string input_of(const Engine& engine, uint64_t seed, uint64_t number);

/// Leaves out what the same defect does not need, for at most so long.
std::string minimised(const Engine& engine, std::string input, const Outcome& outcome,
                      double seconds);

}  // namespace tandem::fuzz
