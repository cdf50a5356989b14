// The samples of ops/opdef.h are argument lists in a language of their own. Here their tensors
// become inputs of a graph: `$[3, 4]{1, 3}:fill, 2` is `%x0: f32[3, 4]{1, 3}` and the call `(%x0,
// 2)`.
#include "test/fuzz/sample_graphs.h"

#include <fmt/format.h>

#include <regex>

#include "base/diagnostic.h"
#include "driver/face.h"
#include "ir/schema.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::fuzz {
namespace {

std::string graph_of(const driver::OpInfo& op, const std::string& sample) {
  static const std::regex kTensor(
      R"((\$|[fiub][a-z]*\d+|bool)\[([^\]]*)\](\{[^}]*\})?(:[a-z_]+(\([^)]*\))?)?)");
  std::string inputs;
  std::string arguments;
  size_t count = 0;
  size_t end = 0;
  for (std::sregex_iterator at(sample.begin(), sample.end(), kTensor), last; at != last; ++at) {
    const std::smatch& found = *at;
    const std::string dtype = found[1] != "$"                  ? found[1].str()
                              : op.sample_dtypes == "booleans" ? "bool"
                                                               : "f32";
    inputs += fmt::format("{}%x{}: {}[{}]{}", count == 0 ? "" : ", ", count, dtype, found[2].str(),
                          found[3].str());
    arguments += sample.substr(end, static_cast<size_t>(found.position()) - end);
    arguments += fmt::format("%x{}", count++);
    end = static_cast<size_t>(found.position() + found.length());
  }
  arguments += sample.substr(end);
  std::string results;
  for (size_t i = 0; i < ir::parse_schema(op.schema).results.size(); ++i)
    results += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return fmt::format("graph @f({}) {{\n  {} = {}({})\n  return {}\n}}\n", inputs, results, op.name,
                     arguments, results);
}

bool parses(const std::string& text) {
  try {
    ir::parse_module(text, ops::op_table());
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

const std::vector<std::string>& sample_graphs() {
  static const std::vector<std::string> kGraphs = [] {
    std::vector<std::string> graphs;
    for (const driver::OpInfo& op : driver::vocabulary())
      for (const std::string& sample : op.samples)
        if (std::string graph = graph_of(op, sample); parses(graph)) graphs.push_back(graph);
    return graphs;
  }();
  return kGraphs;
}

}  // namespace tandem::fuzz
