// Options are taken out of the words, wherever they stand; what is left is for the sub-command.
#include "driver/command/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "ops/bodies.h"

namespace tandem::driver::command {

std::string taken_word(Words& args, std::string_view option, std::string_view what) {
  const auto at = std::find(args.begin(), args.end(), option);
  if (at == args.end()) return "";
  if (at + 1 == args.end()) throw UserError(fmt::format("{} needs {}", option, what));
  std::string word = *(at + 1);
  args.erase(at, at + 2);
  return word;
}

std::vector<std::string> taken_words(Words& args, std::string_view option, std::string_view what) {
  std::vector<std::string> words;
  while (std::ranges::find(args, option) != args.end())
    words.push_back(taken_word(args, option, what));
  return words;
}

std::string word_or(Words& args, std::string_view option, std::string_view otherwise) {
  const std::string word = taken_word(args, option, "a name");
  return word.empty() ? std::string(otherwise) : word;
}

int count_or(Words& args, const std::string& option, int otherwise) {
  if (std::ranges::find(args, option) == args.end()) return otherwise;
  return count_of(option, taken_word(args, option, "a number of at least 1"));
}

bool taken(Words& args, std::string_view option) { return std::erase(args, option) > 0; }

int count_of(const std::string& option, const std::string& text) {
  int count = 0;
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), count);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || count < 1)
    throw UserError(fmt::format("{} needs a number of at least 1, not '{}'", option, text));
  return count;
}

std::optional<Target> taken_target(Words& args) {
  const std::string cpu = taken_word(args, "--target", "the name of a processor");
  return cpu.empty() ? std::nullopt : std::optional(target_named(cpu));
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream words(list);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

std::string only_path(const Words& args, std::string_view what) {
  for (const std::string& word : args)
    if (word.starts_with("--")) throw UserError(fmt::format("no option '{}' here", word));
  if (args.size() != 1)
    throw UserError(fmt::format("{} is needed, {} names are given", what, args.size()));
  return args[0];
}

std::string path_or_input(const Words& args) {
  return args.empty() ? "-" : only_path(args, "one graph");
}

std::vector<ir::Graph*> graphs_of(const ir::Module& module) {
  std::vector<ir::Graph*> graphs;
  for (const std::unique_ptr<ir::Graph>& graph : module.graphs()) graphs.push_back(graph.get());
  return graphs;
}

std::vector<ir::Graph*> programs_of(const ir::Module& module) {
  std::vector<ir::Graph*> graphs = graphs_of(module);
  std::vector<ir::Graph*> bodies;
  for (const ir::Graph* graph : graphs)
    for (ir::Graph* body : ops::bodies_of(*graph)) bodies.push_back(body);
  std::erase_if(graphs, [&](ir::Graph* graph) {
    return std::find(bodies.begin(), bodies.end(), graph) != bodies.end();
  });
  return graphs;
}

}  // namespace tandem::driver::command
