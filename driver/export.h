// A graph lifted out of its caller: all that it reads is an input, all that it changes a result.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace tandem::driver {

struct ExportOptions {
  /// Number of the result that is a scalar loss: the graph becomes the joint graph, with gradients
  /// of the inputs that require one. Nothing: inference.
  std::optional<size_t> loss;
  /// The joint graph as a function of inputs and tangents, without a loss: what it gave, then
  /// gradients.
  bool joint = false;
};

/// What inputs and results of an exported graph are. Numbers count its results.
struct ExportSignature {
  using Named = std::pair<std::string, std::string>;  // input, qualified name
  using Result = std::pair<size_t, std::string>;      // number, what it belongs to
  std::vector<Named> parameters;
  std::vector<Named> buffers;
  std::vector<std::string> user_inputs;
  std::vector<std::pair<std::string, size_t>> tangents;  // input, number of the result it is of
  std::vector<Result> buffers_to_mutate;                 // qualified names
  std::vector<Result> user_inputs_to_mutate;             // inputs
  std::vector<size_t> user_outputs;
  std::vector<Result> gradients_to_parameters;   // qualified names
  std::vector<Result> gradients_to_user_inputs;  // inputs
  std::optional<size_t> loss_output;
};

/// Rewrites the graph. Results: new values of what it writes (`mutated "x"`), then what it gave,
/// then gradients. It writes nothing any more, so its text is a program for whoever reads it.
/// UserError, with the condition, for what cannot be lifted: a parameter, or an input that requires
/// a gradient, that is written with history; a loss that is none, or no scalar, or needs no
/// gradient; another result with a history; a parameter without a gradient; a body of a loop or
/// branch that writes to what it is given. Of a joint graph as a function also: any written input,
/// a result that is an input, a view or another result, and no result with a history.
ExportSignature export_graph(ir::Graph& graph, const ExportOptions& options = {});

/// A line each.
std::string to_string(const ExportSignature& signature);

}  // namespace tandem::driver
