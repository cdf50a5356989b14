// The command: so many random graphs along all roads, what they had, and what fails, made smaller,
// as files. Exit code 1 where a graph failed or was refused, or where no graph had a feature that
// the test is there for: one that is never generated is never tested.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "test/fuzz/attempt.h"
#include "test/property/annotated.h"
#include "test/property/graph.h"
#include "test/property/roads.h"

namespace tandem::property {
namespace {

struct Wanted {
  uint64_t count = 200;
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t most = 20;                    // graphs that fail: then it is told, and enough
  std::string found = "build/property";  // empty: keeps nothing
  std::string replay;                    // a file: only this graph, in this process
  std::string print;                     // a number: only its text
};

constexpr double kMinimise = 60;   // seconds
constexpr uint64_t kEnough = 200;  // graphs: all features are asked for
constexpr double kLongest = 120;   // seconds of a graph, where one is made smaller

/// For the handler of signals: which graph is at work.
std::array<char, 64> g_at{};

/// A signal ends the process, and says of which graph.
void say_graph(int number) {
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, g_at.data(), std::strlen(g_at.data()));
  signal(number, SIG_DFL);
  raise(number);
}

/// What was asked for and never counted.
std::string missing_in(const Counts& counts) {
  std::string names;
  const auto ask = [&](const std::string& name) {
    if (counts.find(name) == counts.end()) names += (names.empty() ? "" : ", ") + name;
  };
  for (const std::string& name : all_features()) ask("graph: " + name);
  for (const std::string& name : all_kernel_features()) ask("kernel: " + name);
  return names;
}

fuzz::Engine engine_for(Counts& counts) {
  return {
      "property",
      [](fuzz::Random& random) { return write_graph(random, static_cast<size_t>(random.seed())); },
      [&counts](const std::string& text) { run_roads(text, counts); }, kLongest, smaller};
}

void keep(const fuzz::Engine& engine, const Wanted& wanted, uint64_t number,
          const std::string& problem) {
  fmt::print("seed {} graph {}: {}\n", wanted.seed, number, problem);
  std::fflush(stdout);
  if (wanted.found.empty()) return;
  const std::string whole = fuzz::input_of(engine, wanted.seed, number);
  std::filesystem::create_directories(wanted.found);
  const std::string path = fmt::format("{}/{}.{}", wanted.found, wanted.seed, number);
  std::ofstream(path + ".whole") << whole << "; " << problem << "\n";
  // A fork computes on one thread, and may not fail.
  const fuzz::Outcome again = fuzz::attempt(engine, whole);
  std::ofstream(path) << (again.failed ? fuzz::minimised(engine, whole, again, kMinimise) : whole);
  fmt::print("  kept as {}\n", path);
}

/// Nothing, or what is wrong. In this process, whose programs run on all threads.
std::string problem_with(const fuzz::Engine& engine, const Wanted& wanted, uint64_t number) {
  const std::string at = fmt::format("seed {} graph {}\n", wanted.seed, number);
  std::copy_n(at.c_str(), std::min(at.size() + 1, g_at.size() - 1), g_at.data());
  try {
    engine.run(fuzz::input_of(engine, wanted.seed, number));
    return "";
  } catch (const UserError& error) {
    return fmt::format("refused: {}", error.what());
  } catch (const std::exception& error) {
    return error.what();
  }
}

void print(const Counts& counts) {
  for (const auto& [name, count] : counts) fmt::print("  {:<36} {:>8}\n", name, count);
}

int run(const Wanted& wanted) {
  Counts counts;
  const fuzz::Engine engine = engine_for(counts);
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGILL}) signal(number, say_graph);
  // A folder of objects, so that kernels that several roads have are compiled once.
  const std::filesystem::path cache =
      std::filesystem::temp_directory_path() / fmt::format("tandem-property-{}", getpid());
  const FlagOverride here(Flag::cache_dir, cache.string());
  uint64_t failed = 0;
  for (uint64_t i = wanted.first; i < wanted.first + wanted.count && failed < wanted.most; ++i) {
    if (i % 100 == 0) std::filesystem::remove_all(cache);
    const std::string problem = problem_with(engine, wanted, i);
    if (problem.empty()) continue;
    ++failed;
    keep(engine, wanted, i, problem);
  }
  std::filesystem::remove_all(cache);
  print(counts);
  const std::string missing = missing_in(counts);
  fmt::print("seed {}: {} graphs, {} failed{}\n", wanted.seed, wanted.count, failed,
             missing.empty() ? "" : "; never seen: " + missing);
  const bool is_enough = wanted.count < kEnough || missing.empty();
  return failed == 0 && is_enough ? 0 : 1;
}

Wanted parse(int count, char** words) {
  Wanted wanted;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (i + 1 == count) throw std::invalid_argument(name);
    const std::string value = words[i + 1];
    if (name == "--count") {
      wanted.count = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--seed") {
      wanted.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--first") {
      wanted.first = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--most") {
      wanted.most = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--found") {
      wanted.found = value;
    } else if (name == "--replay") {
      wanted.replay = value;
    } else if (name == "--print") {
      wanted.print = value;
    } else {
      throw std::invalid_argument(name);
    }
  }
  return wanted;
}

int run_or_show(const Wanted& wanted) {
  Counts counts;
  const fuzz::Engine engine = engine_for(counts);
  if (!wanted.print.empty()) {
    fmt::print("{}", fuzz::input_of(engine, wanted.seed,
                                    std::strtoull(wanted.print.c_str(), nullptr, 10)));
    return 0;
  }
  if (wanted.replay.empty()) return run(wanted);
  std::ifstream file(wanted.replay);
  engine.run(std::string(std::istreambuf_iterator<char>(file), {}));
  return 0;
}

}  // namespace
}  // namespace tandem::property

int main(int count, char** words) {
  try {
    return tandem::property::run_or_show(tandem::property::parse(count, words));
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr,
               "not understood: {}\nusage: property [--count N] [--seed K] [--first N] [--most N] "
               "[--found FOLDER] "
               "[--replay FILE] [--print NUMBER]\n",
               error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
