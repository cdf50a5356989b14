// What the attack found once stays mended: each file of found/ is an input of the engine that its
// name begins with.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "test/fuzz/attempt.h"

namespace tandem::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> found() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(TANDEM_SOURCE_DIR) / "test/fuzz/found"))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

const Engine& engine_of(const std::string& name) {
  const std::string engine = name.substr(0, name.find('.'));
  const auto at = std::ranges::find(engines(), engine, &Engine::name);
  if (at == engines().end()) throw std::invalid_argument("no engine " + engine);
  return *at;
}

TEST(Found, StaysMended) {
  ASSERT_FALSE(found().empty());
  for (const fs::path& path : found()) {
    std::ifstream file(path, std::ios::binary);
    const std::string input(std::istreambuf_iterator<char>(file), {});
    const Outcome outcome = attempt(engine_of(path.filename()), input);
    EXPECT_FALSE(outcome.failed) << path << ": " << outcome.message << "\n" << outcome.report;
  }
}

TEST(Found, EveryEngineTakesSomeInputsAndRefusesOthers) {
  for (const Engine& engine : engines()) {
    const Outcome outcome = attempt(engine, 1, 0, engine.name == "graphs" ? 1 : 300, 60);
    EXPECT_FALSE(outcome.failed) << engine.name << ": " << outcome.message;
    EXPECT_GT(outcome.taken, 0) << engine.name;
    if (engine.name != "graphs" && engine.name != "cache") EXPECT_GT(outcome.refused, 0);
  }
}

/// The driver itself: each way to fail is seen, and told apart.
TEST(Attempt, SeesWhatEndsAProcess) {
  Engine engine{"x", [](Random&) { return std::string(); }, {}, 0.2};
  engine.run = [](const std::string&) { std::abort(); };
  EXPECT_EQ(attempt(engine, "").message, "signal 6");
  engine.run = [](const std::string&) { throw std::logic_error("wrong"); };
  EXPECT_EQ(attempt(engine, "").message, "exit 17: defect: wrong");
  engine.run = [](const std::string&) {
    for (std::atomic<int> i = 0;;) ++i;
  };
  EXPECT_TRUE(attempt(engine, "").hung);
  engine.run = [](const std::string& input) {
    if (input.find("bad") != std::string::npos) std::abort();
  };
  const Outcome outcome = attempt(engine, "some words, bad ones too");
  EXPECT_TRUE(outcome.failed);
  EXPECT_EQ(minimised(engine, "some words, bad ones too", outcome, 10), "bad");
  EXPECT_FALSE(attempt(engine, "good").failed);
}

}  // namespace
}  // namespace tandem::fuzz
