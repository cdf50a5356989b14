// A signature as plain data: the views between what a program takes and gives and what its caller
// gets, for a binding that replays them on tensors of its own.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace tandem::driver {

/// One view. Texts are names of values and symbols, numbers, expressions of them, lists in
/// brackets, `None`, `True`, `False`, element types.
struct ReplayStep {
  std::string op;  // "aten.view"
  std::vector<std::string> arguments;
  std::vector<std::string> results;  // names
  bool no_grad = false;
};

/// What the caller of a program gets: names of its inputs, of its results (`result0`, …) and of
/// what the steps make.
struct Replay {
  std::vector<ReplayStep> steps;
  std::vector<std::string> returned;
};

Replay replay_of(const ir::Graph& signature);

/// For people: what is returned, "aten.view of input %x".
std::string describe(const ir::Value& returned);

/// For people: a line for each input that is written, and for each thing returned.
std::string describe_signature(const ir::Graph& signature);

}  // namespace tandem::driver
