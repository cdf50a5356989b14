// Which values are known before the first call, because they depend on constants alone; and which
// arguments are numbers.
#pragma once

#include <optional>

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::passes {

/// Whether any input is constant.
bool has_constants(const ir::Graph& graph);

/// Constant inputs that nothing writes, and results of fixed size that are made from such values or
/// from nothing, by ops that neither write nor draw random numbers nor fail because of data.
class KnownValues {
 public:
  explicit KnownValues(const ir::Graph& graph);
  bool has(const ir::Value* value) const { return known_.at(value) != 0; }
  bool has(const ir::Node& node) const { return !node.results.empty() && has(node.results[0]); }

 private:
  bool is_known(const ir::Node& node) const;
  DenseMap<ir::Value, char> known_;
};

/// A number argument, or the number that a fill repeats.
std::optional<double> number_of(const ir::Arg& arg);
/// It is that number, sign of a zero included.
bool is_number(const ir::Arg& arg, double wanted);

}  // namespace tandem::passes
