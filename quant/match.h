// Finding the layers of a graph: which nodes a recipe's rules take.
#pragma once

#include <optional>
#include <vector>

#include "quant/annotate.h"

namespace tandem::quant {

/// A layer, with what its rule and the exceptions make of its operands.
struct Match {
  struct Operand {
    ir::Use use;
    std::string param;  // "input", or "other" of an addition in the chain
    const QSpec* spec = nullptr;
  };
  const Rule* rule = nullptr;
  Layer layer;
  std::vector<Operand> operands;
};

/// In program order of their first nodes; `after` is filled in. What a rule would take but for its
/// operands is in `notes`.
std::vector<Match> find_layers(const ir::Graph& graph, const Recipe& recipe,
                               const IsKnown& is_known, std::vector<std::string>& notes);

}  // namespace tandem::quant
