// The text form of graphs. What prints parses back to an equal graph.
//
//   graph @mlp(%x: f32[s0, 784], %w: f32[10, 784] {param "fc.weight"}) where s0 in [2, 4096] {
//     %0: f32[784, 10] = aten.t(%w)
//     %1: f32[s0, 10] = aten.mm(%x, %0) {no_grad} loc("model.py:41")
//     return %1 order [1, 0], grad "w" %0, none
//   }
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::ir {

std::string to_string(const Graph& graph);
std::string to_string(const Module& module);
/// `aten.mm(f32[3, 4], f32[4, 5])`: op and operand types, for messages.
std::string to_string(const Node& node);
/// Names that the text gives to the graph's values, without `%`.
DenseMap<Value, std::string> value_names(const Graph& graph);

/// Parses one or more graphs. Types of results are inferred; where the text gives them they must
/// agree. Throws UserError with every problem found, each at its line (`line 4`).
std::unique_ptr<Module> parse_module(std::string_view text, const OpTable& ops);

/// Names of a text that stand for something known. An input of such a name stays.
struct Bindings {
  std::map<std::string, int64_t> sizes;  // of symbols
  std::map<std::string, std::string>
      equal;                             // symbol -> another one, which is itself in no map here
  std::map<std::string, double> floats;  // of f64 values, where they are arguments
  bool empty() const { return sizes.empty() && equal.empty() && floats.empty(); }
};
std::unique_ptr<Module> parse_module(std::string_view text, const OpTable& ops,
                                     const Bindings& bindings);

}  // namespace tandem::ir
