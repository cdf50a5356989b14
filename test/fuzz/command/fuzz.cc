// The command: inputs of one engine or all, each defect once, minimised, as a file. Exit code 1
// where there was any.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/diagnostic.h"
#include "test/fuzz/attempt.h"

namespace tandem::fuzz {
namespace {

struct Wanted {
  std::string engine = "all";
  uint64_t inputs = UINT64_MAX;  // of each engine
  double seconds = 60;           // of all engines together
  uint64_t seed = 1;
  std::string found = "build/fuzz";
  std::string replay;  // a file: only this input, in this process, for a debugger
};

constexpr uint64_t kRow = 20'000;  // inputs of one process: its memory is given back
constexpr double kMinimise = 20;
constexpr uint64_t kMostDefects = 200;  // of one engine: then it is told, and enough

void keep(const Engine& engine, const Wanted& wanted, const Outcome& outcome) {
  const std::string whole = input_of(engine, wanted.seed, outcome.at);
  const std::string input = minimised(engine, whole, outcome, kMinimise);
  std::filesystem::create_directories(wanted.found);
  const std::string path =
      fmt::format("{}/{}.{}.{}", wanted.found, engine.name, wanted.seed, outcome.at);
  std::ofstream(path, std::ios::binary) << input;
  std::ofstream(path + ".report") << outcome.report;
  fmt::print("{}: seed {} input {}: {}\n  kept as {}\n", engine.name, wanted.seed, outcome.at,
             outcome.message, path);
}

/// True where no input failed.
bool run(const Engine& engine, const Wanted& wanted, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto left = [&] {
    return seconds - std::chrono::duration<double>(Clock::now() - start).count();
  };
  uint64_t next = 0;
  uint64_t taken = 0;
  uint64_t refused = 0;
  uint64_t hung = 0;
  uint64_t failed = 0;
  std::set<std::string> known;
  input_of(engine, wanted.seed,
           0);  // what inputs are made from is read once, and not in each child
  while (next < wanted.inputs && left() > 0 && failed < kMostDefects) {
    const uint64_t count = std::min(kRow, wanted.inputs - next);
    const Outcome outcome = attempt(engine, wanted.seed, next, count, left());
    taken += outcome.taken;
    refused += outcome.refused;
    next += outcome.taken + outcome.refused;
    if (!outcome.failed) continue;
    ++next;
    ++failed;
    hung += outcome.hung ? 1 : 0;
    if (known.insert(outcome.message).second) keep(engine, wanted, outcome);
  }
  fmt::print("{:<12} {:>9} inputs, {:>9} taken, {:>9} refused, {} defects ({} hang), {:.0f} s\n",
             engine.name, next, taken, refused, failed, hung, seconds - left());
  std::fflush(stdout);
  return failed == 0;
}

Wanted parse(int count, char** words) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < count; i += 2) given[words[i]] = words[i + 1];
  Wanted wanted;
  for (const auto& [name, value] : given) {
    if (name == "--engine") {
      wanted.engine = value;
    } else if (name == "--inputs") {
      wanted.inputs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--seconds") {
      wanted.seconds = std::strtod(value.c_str(), nullptr);
    } else if (name == "--seed") {
      wanted.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--found") {
      wanted.found = value;
    } else if (name == "--replay") {
      wanted.replay = value;
    } else {
      throw std::invalid_argument(name);
    }
  }
  if (count % 2 == 0) throw std::invalid_argument(words[count - 1]);
  return wanted;
}

int replay(const Engine& engine, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  try {
    engine.run(std::string(std::istreambuf_iterator<char>(file), {}));
    fmt::print("taken\n");
  } catch (const UserError& error) {
    fmt::print("refused: {}\n", error.what());
  }
  return 0;
}

int run_all(const Wanted& wanted) {
  std::vector<const Engine*> chosen;
  for (const Engine& engine : engines())
    if (wanted.engine == "all" || wanted.engine == engine.name) chosen.push_back(&engine);
  if (chosen.empty()) throw std::invalid_argument("no engine " + wanted.engine);
  if (!wanted.replay.empty()) return replay(*chosen[0], wanted.replay);
  bool good = true;
  for (const Engine* engine : chosen)
    good = run(*engine, wanted, wanted.seconds / static_cast<double>(chosen.size())) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tandem::fuzz

int main(int count, char** words) {
  try {
    return tandem::fuzz::run_all(tandem::fuzz::parse(count, words));
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr,
               "not understood: {}\nusage: fuzz [--engine NAME] [--inputs N] [--seconds S] "
               "[--seed K] [--found FOLDER] [--replay FILE]\n",
               error.what());
    return 2;
  }
}
