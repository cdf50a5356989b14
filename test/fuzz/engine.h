// What is attacked: a source of inputs, and the code that must take each of them or refuse it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "test/fuzz/random.h"

namespace tandem::fuzz {

struct Engine {
  std::string name;
  /// The input of a seed and number: well formed, and then damaged here and there.
  std::function<std::string(Random&)> make;
  /// Returns for an input that was taken, throws UserError for one that was refused. Everything
  /// else is a defect: another exception, a failed check, a signal, no end.
  std::function<void(const std::string& input)> run;
  double seconds = 5;  // an input that takes longer hangs
  /// Smaller inputs that obey the same rules, where leaving out tokens would break them: the
  /// smallest first.
  std::function<std::vector<std::string>(const std::string& input)> smaller = {};
};

/// All of them, by the names that the command takes.
const std::vector<Engine>& engines();

std::vector<Engine> text_engines();          // tir, loop, sizes, schemas, passes, ops
std::vector<Engine> file_engines();          // safetensors, npz, cache, image
std::vector<Engine> graph_engines();         // graphs
std::vector<Engine> kernel_graph_engines();  // kernels

}  // namespace tandem::fuzz
