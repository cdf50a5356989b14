// Texts that users write: graphs, kernels, sizes, schemas. What is taken must print and read back
// as the same text.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "ir/schema.h"
#include "ir/text.h"
#include "loop/kernel.h"
#include "loop/threads.h"
#include "ops/opdef.h"
#include "schedule/schedule.h"
#include "sym/sym.h"
#include "test/fuzz/engine.h"
#include "test/fuzz/mutate.h"
#include "test/fuzz/sample_graphs.h"

namespace tandem::fuzz {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Files ".tir" below a folder of the repository, in the order of their names.
Texts files_below(const std::string& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(fs::path(TANDEM_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".tir") paths.push_back(entry.path());
  std::ranges::sort(paths);
  Texts texts;
  for (const fs::path& path : paths) texts.push_back(content_of(path));
  return texts;
}

/// The pieces that begin with `word` at the start of a line.
Texts pieces(const Texts& texts, const std::string& word) {
  Texts found;
  for (const std::string& text : texts)
    for (size_t at = text.find("\n" + word); at != std::string::npos;) {
      const size_t next = text.find("\n" + word, at + 1);
      found.push_back(text.substr(at + 1, next == std::string::npos ? next : next - at - 1));
      at = next;
    }
  return found;
}

const Texts& graphs() {
  static const Texts kGraphs = pieces(files_below("test/golden"), "graph ");
  return kGraphs;
}

const Texts& kernels() {
  static const Texts kKernels = [] {
    Texts plain;
    for (std::string text : files_below("test/golden/schedule")) {
      for (size_t at = 0; (at = text.find("\n; ", at)) != std::string::npos;) text.erase(at + 1, 2);
      plain.push_back(text);
    }
    for (const std::string& text : files_below("test/golden/loop")) plain.push_back(text);
    return pieces(plain, "kernel ");
  }();
  return kKernels;
}

const Texts& schemas() {
  static const Texts kSchemas = [] {
    Texts lines;
    std::ifstream file(fs::path(TANDEM_SOURCE_DIR) / "test/ops/torch_schemas.txt");
    for (std::string line; std::getline(file, line);)
      if (!line.starts_with("#")) lines.push_back(line);
    return lines;
  }();
  return kSchemas;
}

const Texts kSizes = {"s0",
                      "(s0 + 63)//64*64",
                      "min(s0 - x0*256, 256)",
                      "s0*s1 % (s2 + 1)",
                      "max(1, s0//2 + 1, s1)",
                      "-(s0 - 3)*-2",
                      "((s0 - 3)//2 + 1 - 3)//2 + 1",
                      "9223372036854775807",
                      "s0*(s1 + s2)*(s0 + 4)",
                      "s0//s1//s2 % s1"};

std::function<std::string(Random&)> mutated(const Texts& (*seeds)()) {
  return [seeds](Random& random) { return mutate_text(random.pick(seeds()), seeds(), random); };
}

void expect_same(const std::string& first, const std::string& second) {
  if (first != second) throw std::logic_error("prints as\n" + first + "\nand then as\n" + second);
}

/// What was printed is no user's text any more: refusing it is a defect.
template <class Read>
void expect_reads_back(const std::string& text, Read&& read) {
  std::string again;
  try {
    again = read(text);
  } catch (const UserError& error) {
    throw std::logic_error("prints as\n" + text + "\nwhich is refused: " + error.what());
  }
  expect_same(text, again);
}

void run_tir(const std::string& input) {
  const auto read = [](const std::string& text) {
    return ir::to_string(*ir::parse_module(text, ops::op_table()));
  };
  expect_reads_back(read(input), read);
}

/// Those that are derived are enough, and nothing else was made wrong.
void expect_barriers_suffice(loop::Kernel kernel) {
  loop::place_barriers(kernel);
  for (const std::string& problem : loop::verify(kernel))
    throw std::logic_error("with its own barriers: " + problem);
}

void run_loop(const std::string& input) {
  const loop::Kernel kernel = loop::parse_kernel(input);
  if (!loop::verify(kernel).empty()) return;
  expect_reads_back(loop::to_string(kernel), [](const std::string& text) {
    return loop::to_string(loop::parse_kernel(text));
  });
  if (kernel.threads > 0) expect_barriers_suffice(kernel);
}

sym::Expr parse_size(sym::Pool& pool, const std::string& text) {
  std::string error;
  const std::optional<sym::Expr> expr = sym::parse(pool, text, &error);
  if (!expr) throw UserError(error);
  return *expr;
}

void run_sizes(const std::string& input) {
  sym::Pool pool;
  const sym::Expr expr = parse_size(pool, input);
  sym::evaluate(expr, [](const sym::Node* node) { return std::optional<int64_t>(node->id % 7); });
  expect_reads_back(sym::to_string(expr), [&](const std::string& text) {
    return sym::to_string(parse_size(pool, text));
  });
}

/// Behind the parser: passes and schedule of what it takes.
void run_passes_of(const std::string& input) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(input, ops::op_table());
  if (module->graphs().empty()) return;
  ir::Graph& graph = *module->graphs()[0];
  driver::Options options;
  if (input.size() % 3 == 1) options.gradients = driver::Gradients::tangents;
  options.freeze = input.size() % 3 == 2;
  driver::GraphCtx ctx;
  driver::run_passes(graph, options, ctx);
  schedule::schedule(graph, driver::target_of(options));
}

}  // namespace

std::vector<Engine> text_engines() {
  const auto size = [](Random& random) { return mutate_text(random.pick(kSizes), kSizes, random); };
  const auto called = [](Random& random) {
    const std::string& text = random.pick(sample_graphs());
    return random.one_in(4) ? mutate_text(text, sample_graphs(), random)
                            : mutate_numbers(text, random);
  };
  return {{"tir", mutated(graphs), run_tir},
          {"loop", mutated(kernels), run_loop},
          {"sizes", size, run_sizes},
          {"schemas", mutated(schemas), [](const std::string& text) { ir::parse_schema(text); }},
          {"passes", mutated(graphs), run_passes_of, 20},
          {"ops", called, run_passes_of, 20}};
}

}  // namespace tandem::fuzz
