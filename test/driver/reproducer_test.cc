// What a failed check leaves: a text with the path of a file, in it a program that parses.
#include "driver/reproducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/flags.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

constexpr const char* kProgram = "graph @f(%x: f32[4]) {\n  %0 = aten.exp(%x)\n  return %0\n}\n";

TEST(Reproducer, IsAProgramThatParses) {
  std::string text;
  try {
    with_reproducer(kProgram, []() -> int { throw InternalError("a check\nfailed", "in cse"); });
  } catch (const InternalError& error) {
    text = error.what();
  }
  const size_t at = text.find('/');
  ASSERT_NE(at, std::string::npos) << text;
  const std::string path = text.substr(at, text.find(',', at) - at);
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_NE(content.str().find("; failed"), std::string::npos) << content.str();
  EXPECT_NE(content.str().find("; in cse"), std::string::npos) << content.str();
  EXPECT_EQ(ir::parse_module(content.str(), ops::op_table())->graphs().size(), 1u);
  std::filesystem::remove(path);
}

TEST(Reproducer, HandsOnWhatIsNoBug) {
  EXPECT_EQ(with_reproducer(kProgram, [] { return 3; }), 3);
  EXPECT_THROW(with_reproducer(kProgram, []() -> int { throw std::runtime_error("other"); }),
               std::runtime_error);
}

constexpr GraphPass kBroken{"broken",
                            [](ir::Graph& graph, GraphCtx&) {
                              graph.erase_input(graph.inputs()[1]);
                              TD_CHECK(graph.inputs().empty()) << "as it must";
                            },
                            0, 0, 0};

std::string context_of(const std::string& name) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @" + name + "(%x: f32[4], %y: f32[4]) {\n  return %x\n}\n", ops::op_table());
  GraphCtx ctx;
  try {
    run_pass(*module->graphs()[0], kBroken, ctx);
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("as it must"), std::string::npos) << error.what();
    return error.context();
  }
  return "";
}

// The graph of the thread that failed, as the pass left it.
TEST(Reproducer, TellsOfTheGraphOfItsOwnPass) {
  std::vector<std::string> contexts(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < contexts.size(); ++i)
    threads.emplace_back([&, i] { contexts[i] = context_of("f" + std::to_string(i)); });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < contexts.size(); ++i) {
    const std::string graph = "in pass broken on\ngraph @f" + std::to_string(i) + "(%x: f32[4]) {";
    EXPECT_EQ(contexts[i].substr(0, graph.size()), graph);
    EXPECT_NE(contexts[i].find("tandem opt --pass broken"), std::string::npos) << contexts[i];
  }
}

/// Names of the files below a folder that TANDEM_DUMP=all fills by a compile each.
std::vector<std::string> dumped(int compiles) {
  const std::filesystem::path folder = ::testing::TempDir() + "tandem-dump-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const FlagOverride dump(Flag::dump, "all:" + folder.string());
  for (int i = 0; i < compiles; ++i) {
    const std::unique_ptr<ir::Module> module = ir::parse_module(kProgram, ops::op_table());
    GraphCtx ctx;
    run_pass(*module->graphs()[0], *find_pass("cse"), ctx);
    run_pass(*module->graphs()[0], *find_pass("dce"), ctx);
  }
  std::vector<std::string> names;
  for (const std::filesystem::directory_entry& file : std::filesystem::directory_iterator(folder))
    names.push_back(file.path().filename().string());
  std::sort(names.begin(), names.end());
  std::filesystem::remove_all(folder);
  return names;
}

TEST(Dump, NumbersGoOnFromCompileToCompile) {
  const std::vector<std::string> expected = {"000_cse.tir", "001_dce.tir", "002_cse.tir",
                                             "003_dce.tir"};
  EXPECT_EQ(dumped(2), expected);
}

}  // namespace
}  // namespace tandem::driver
