// What quant/ makes of a golden file's graph.
#pragma once

#include <string>

#include "ir/graph.h"

namespace tandem::golden {

/// Layers and groups that the recipe finds.
std::string annotation_text(const ir::Graph& graph, const std::string& recipe);
/// The quantized graph, where all values were seen in [low, high]; then its scales.
std::string converted_text(ir::Graph& graph, const std::string& recipe, float low, float high);

}  // namespace tandem::golden
