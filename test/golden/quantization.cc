// Ranges of a golden file are the same for all groups: what is shown is where they go.
#include "test/golden/quantization.h"

#include <fmt/format.h>

#include "ir/text.h"
#include "passes/known.h"
#include "quant/convert.h"

namespace tandem::golden {
namespace {

quant::Annotation annotation_of(const ir::Graph& graph, const std::string& recipe) {
  const passes::KnownValues known(graph);
  return quant::annotate(graph, quant::recipe_named(recipe),
                         [&](const ir::Value* value) { return known.has(value); });
}

}  // namespace

std::string annotation_text(const ir::Graph& graph, const std::string& recipe) {
  return quant::to_string(annotation_of(graph, recipe), graph);
}

std::string converted_text(ir::Graph& graph, const std::string& recipe, float low, float high) {
  const quant::Annotation annotation = annotation_of(graph, recipe);
  quant::Statistics statistics;
  for (const quant::Group& group : annotation.groups) {
    const size_t parts = static_cast<size_t>(quant::parts_of(group));
    statistics.groups[group.name].range = {std::vector<float>(parts, low),
                                           std::vector<float>(parts, high)};
  }
  const quant::Converted converted = quant::convert(graph, annotation, statistics);
  std::string text = ir::to_string(graph);
  for (const std::pair<const std::string, std::vector<float>>& scales : converted.scales)
    text += fmt::format("scales {}: {}\n", scales.first, fmt::join(scales.second, " "));
  return text;
}

}  // namespace tandem::golden
