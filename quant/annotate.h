// Which values of a graph are quantized, and which of them share a scale. Annotating changes
// nothing; instrument and convert go by what it says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "quant/recipe.h"

namespace tandem::quant {

/// Nodes that a rule took.
struct Layer {
  std::string name;  // "blocks.0.fc", of its weight; "fc#2" where it is read again; "cat#1"
  std::string rule;
  std::vector<ir::Node*> nodes;
  std::vector<size_t> after;  // of one that propagates: the layers that it takes its operands from
};

/// A value as one node reads it, or as its producer makes it (`use.node` is null then).
struct Place {
  size_t layer = 0;
  ir::Value* value = nullptr;
  ir::Use use;
  size_t group = 0;
  bool is_output() const { return use.node == nullptr; }
};

/// Places that share a scale.
struct Group {
  std::string name;  // of its first place: "conv1.input"
  QSpec spec;
  std::vector<ir::Value*> values;  // what is observed, each once, in program order
};

struct Annotation {
  std::vector<Layer> layers;  // in program order
  std::vector<Place> places;  // in program order: operands of layers, then results
  std::vector<Group> groups;
  std::vector<std::string> notes;  // what was left as it is, and why
};

/// Whether a value is known before the first call.
using IsKnown = std::function<bool(const ir::Value*)>;

/// `graph` must be functional. Specifications of constants are for known values alone, all others
/// for values that are not; of f32 alone.
///
/// Scales are shared where a rule says so; besides, all that read one value with equal
/// specifications share a scale, and share that of its producer.
Annotation annotate(const ir::Graph& graph, const Recipe& recipe, const IsKnown& is_known);

/// One line a layer and one a group; names are those of the graph's text.
std::string to_string(const Annotation& annotation, const ir::Graph& graph);

}  // namespace tandem::quant
