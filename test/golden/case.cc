// Every command rewrites the file from its input alone, so checking is comparing and blessing is
// writing. Only errors are looser: a comment stays while it is part of the message, so that files
// need not quote messages in full.
#include "test/golden/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "driver/update_rule.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "loop/kernel.h"
#include "ops/opdef.h"
#include "schedule/schedule.h"
#include "test/golden/diff.h"
#include "test/golden/quantization.h"

namespace tandem::golden {
namespace {

using Lines = std::vector<std::string>;
constexpr std::string_view kMark = "; test ";
constexpr std::string_view kError = "; error:";

std::string join(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

struct Command {
  std::string name;  // "pass", "loop roundtrip"
  std::vector<std::string> passes;
  std::map<std::string, std::string, std::less<>> options;

  std::string_view option(std::string_view key, std::string_view otherwise) const {
    const auto it = options.find(key);
    return it == options.end() ? otherwise : std::string_view(it->second);
  }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

Command parse_command(const std::string& line) {
  if (!line.starts_with(kMark))
    throw UserError("the first line must be `; test COMMAND`", "line 1");
  Command command;
  for (const std::string& word : split(line.substr(kMark.size()), ' ')) {
    size_t equals = word.find('=');
    if (equals != std::string::npos) {
      command.options[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (command.name == "pass" || command.name == "step") {
      command.passes = split(word, ',');
    } else {
      command.name += (command.name.empty() ? "" : " ") + word;
    }
  }
  return command;
}

// --- round trips
// ----------------------------------------------------------------------------------

/// The command and the author's comments below it.
Lines header_of(const Lines& lines) {
  size_t end = 1;
  while (end < lines.size() && lines[end].starts_with(";;")) ++end;
  return {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::string graph_roundtrip(const Lines& lines) {
  std::unique_ptr<ir::Module> module = ir::parse_module(join(lines), ops::op_table());
  return join(header_of(lines)) + ir::to_string(*module);
}

std::string kernel_roundtrip(const Lines& lines) {
  Lines header = header_of(lines);
  Lines kernels;
  for (size_t i = header.size(); i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    if (lines[i].starts_with("kernel") || kernels.empty()) kernels.emplace_back();
    kernels.back() += lines[i] + "\n";
  }
  std::string text = join(header);
  for (size_t i = 0; i < kernels.size(); ++i) {
    loop::Kernel kernel = loop::parse_kernel(kernels[i]);
    text += (i > 0 ? "\n" : "") + loop::to_string(kernel);
  }
  return text;
}

// --- errors on their lines
// ------------------------------------------------------------------------

std::vector<Diagnostic> problems_of(const std::string& text) {
  try {
    std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
    std::vector<Diagnostic> problems;
    for (const std::unique_ptr<ir::Graph>& graph : module->graphs())
      for (Diagnostic& problem : ir::verify(*graph)) problems.push_back(std::move(problem));
    return problems;
  } catch (const UserError& error) {
    return error.problems();
  }
}

/// Number of the line that a problem's place names; the last line when it names none.
size_t line_of(const Diagnostic& problem, size_t last) {
  constexpr std::string_view kLine = "line ";
  size_t number = 0;
  if (!problem.place.starts_with(kLine)) return last;
  std::from_chars(problem.place.data() + kLine.size(), problem.place.data() + problem.place.size(),
                  number);
  return number >= 1 && number <= last ? number : last;
}

struct MarkedLine {
  std::string code;
  std::vector<std::string> expected;
};

MarkedLine unmark(const std::string& line) {
  size_t start = line.find(kError);
  if (start == std::string::npos) return {line, {}};
  MarkedLine marked{line.substr(0, start), {}};
  marked.code.erase(marked.code.find_last_not_of(' ') + 1);
  while (start != std::string::npos) {
    start = line.find_first_not_of(' ', start + kError.size());
    size_t end = start == std::string::npos ? start : line.find(kError, start);
    std::string text = start == std::string::npos ? "" : line.substr(start, end - start);
    text.erase(text.find_last_not_of(' ') + 1);
    marked.expected.push_back(text);
    start = end;
  }
  return marked;
}

std::string with_errors(const Lines& lines) {
  std::vector<std::vector<std::string>> found(lines.size());
  for (const Diagnostic& problem : problems_of(join(lines)))
    found[line_of(problem, lines.size()) - 1].push_back(problem.text);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    MarkedLine marked = unmark(lines[i]);
    text += marked.code;
    for (size_t k = 0; k < found[i].size(); ++k) {
      bool agrees = k < marked.expected.size() && !marked.expected[k].empty() &&
                    found[i][k].find(marked.expected[k]) != std::string::npos;
      text += (marked.code.empty() && k == 0 ? "" : " ") + std::string(kError) + " " +
              (agrees ? marked.expected[k] : found[i][k]);
    }
    text += "\n";
  }
  return text;
}

// --- results under each graph
// ---------------------------------------------------------------------

/// One machine for all, so that files do not depend on where they were blessed; `target=sm_90` for
/// another one.
Target golden_target(const Command& command) {
  const std::string named(command.option("target", ""));
  if (!named.empty()) return driver::target_named(named);
  Target target;
  target.cores = 8;
  if (command.option("isa", "avx2") == "avx512") {
    target.isa = Isa::avx512;
    target.vector_bytes = 64;
  }
  return target;
}

/// What passes are told by the command; `optimizer=sgd` for `updates`.
driver::GraphCtx context_of(const Command& command, State& state, const nn::Optimizer& optimizer) {
  driver::GraphCtx ctx;
  if (!command.option("target", "").empty()) {
    ctx.target = golden_target(command);
    ctx.multiplies_bytes = ctx.target.multiplies_bytes();
  }
  ctx.gradients = passes::gradients_named(command.option("gradients", "tangents"));
  const std::string_view partition = command.option("partition", "as_read");
  ctx.partition = passes::partition_named(partition);
  ctx.budget = passes::budget_named(partition, command.option("solver", "dp"),
                                    command.option("cost", "time"));
  if (const std::string knob(command.option("knob", "")); !knob.empty())
    ctx.budget.knobs =
        passes::knobs_named({knob + "=" + std::string(command.option("is", "false"))});
  ctx.storage = passes::storage_named(command.option("storage", "none"), /*least_bytes=*/1);
  if (command.option("optimizer", "") == "sgd") ctx.updates = driver::update_rule(state, optimizer);
  return ctx;
}

std::string run_passes_on(ir::Graph& graph, const Command& command) {
  State state;
  const nn::Sgd optimizer(/*rate=*/0.1, /*momentum=*/0.9);
  driver::GraphCtx ctx = context_of(command, state, optimizer);
  const std::vector<std::unique_ptr<ir::Graph>>& graphs = graph.module().graphs();
  size_t before = graphs.size();
  for (const std::string& name : command.passes) {
    const driver::GraphPass* pass = driver::find_pass(name);
    if (pass == nullptr) throw UserError("there is no pass " + name);
    driver::run_pass(graph, *pass, ctx);
  }
  std::vector<Diagnostic> problems = ir::verify(graph);
  if (!problems.empty()) throw UserError(std::move(problems));
  std::string text = ir::to_string(graph);
  for (size_t i = before; i < graphs.size(); ++i) {  // what the passes added
    problems = ir::verify(*graphs[i]);
    if (!problems.empty()) throw UserError(std::move(problems));
    text += "\n" + ir::to_string(*graphs[i]);
  }
  for (const std::string& note : ctx.notes) text += "note: " + note + "\n";
  return text;
}

std::string error_text(const UserError& error) {
  std::string text;
  for (const Diagnostic& problem : error.problems()) text += "error: " + problem.render() + "\n";
  return text;
}

std::string schedule_of(ir::Graph& graph, const Command& command) {
  driver::Options options;
  options.gradients = passes::gradients_named(command.option("gradients", ""));
  options.target = golden_target(command);
  driver::GraphCtx ctx;
  driver::run_passes(graph, options, ctx);
  return schedule::report(schedule::schedule(graph, golden_target(command)));
}

/// `kernels`: text of the kernel graph before the step; where there is none all steps before it
/// run.
std::string after_step(const ir::Graph& graph, const Command& command, const std::string& kernels) {
  try {
    return schedule::after_step(graph, golden_target(command), command.passes.at(0), kernels);
  } catch (const UserError& error) {
    return error_text(error);
  }
}

/// `annotate` or `convert`, of the named recipe.
std::string quantized_text(ir::Graph& graph, const Command& command) {
  const std::string recipe(command.option("recipe", "x86_default"));
  if (command.name == "annotate") return annotation_text(graph, recipe);
  const float low = std::stof(std::string(command.option("low", "-1")));
  return converted_text(graph, recipe, low, std::stof(std::string(command.option("high", "1"))));
}

std::string result_of(ir::Graph& graph, const Command& command) {
  try {
    if (command.name == "annotate" || command.name == "convert")
      return quantized_text(graph, command);
    return command.name == "pass" ? run_passes_on(graph, command) : schedule_of(graph, command);
  } catch (const UserError& error) {
    return error_text(error);
  }
}

bool is_expectation(const std::string& line) {
  return line.empty() || (line.starts_with(";") && !line.starts_with(";;"));
}

/// Writes results behind the closing lines of graphs, in place of what stood there.
std::string with_results(const Lines& lines, const Command& command) {
  std::unique_ptr<ir::Module> module = ir::parse_module(join(lines), ops::op_table());
  std::string text = lines[0] + "\n";
  size_t graph = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    text += lines[i] + "\n";
    if (lines[i] != "}") continue;
    for (const std::string& line : lines_of(result_of(*module->graphs().at(graph++), command)))
      text += (line.empty() ? ";" : "; " + line) + "\n";
    while (i + 1 < lines.size() && is_expectation(lines[i + 1])) ++i;
    if (i + 1 < lines.size()) text += "\n";
  }
  return text;
}

/// A graph of core operations, and kernels of it or none; what the step makes of them behind.
std::string with_step(const Lines& lines, const Command& command) {
  Lines kept;
  for (const std::string& line : lines)
    if (kept.empty() || !is_expectation(line)) kept.push_back(line);
  const auto kernels = std::ranges::find_if(
      kept, [](const std::string& line) { return line.starts_with("kernels @"); });
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(join(Lines(kept.begin(), kernels)), ops::op_table());
  std::string text = join(kept);
  const std::string made =
      after_step(*module->graphs().at(0), command, join(Lines(kernels, kept.end())));
  for (const std::string& line : lines_of(made)) text += "; " + line + "\n";
  return text;
}

}  // namespace

std::string expected_text(std::string_view text) {
  Lines lines = lines_of(text);
  Command command = parse_command(lines.empty() ? "" : lines[0]);
  if (command.name == "roundtrip") return graph_roundtrip(lines);
  if (command.name == "loop roundtrip") return kernel_roundtrip(lines);
  if (command.name == "verify" || command.name == "error") return with_errors(lines);
  constexpr std::array kWithResults{"pass", "schedule", "annotate", "convert"};
  if (std::ranges::find(kWithResults, command.name) != kWithResults.end())
    return with_results(lines, command);
  if (command.name == "step") return with_step(lines, command);
  throw UserError(fmt::format("there is no test command '{}'", command.name), "line 1");
}

}  // namespace tandem::golden
