// What a failed check leaves: a text with the path of a file, in it a program that parses.
#include "driver/reproducer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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

}  // namespace
}  // namespace tandem::driver
