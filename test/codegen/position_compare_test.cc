// Comparisons of positions along lanes: compiled code against the interpreter, for each of the six,
// rising and falling, with and without mask registers, at every place of the other side from before
// the first lane to behind the last, and behind what 8 bits hold. And scratch that a stage reads
// and does not store, which is loaded before the stage's loops.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "test/codegen/run_kernel.h"

namespace tandem::codegen {
namespace {

constexpr int kRows = 150, kMost = 150;

std::vector<Target> targets() {
  std::vector<Target> found{host_target(std::nullopt)};
  if (found[0].isa == Isa::avx512) found.push_back(host_target("avx2"));
  return found;
}

/// A row for each place, 1000 apart at both ends.
std::string comparison(std::string_view opcode, std::string_view left, std::string_view right,
                       int lanes, int columns) {
  return "kernel \"k\" {\n buffer b0: i32 write\n outer x0 < " + std::to_string(kRows) +
         " task\n stage {\n axis y0 < " + std::to_string(columns) + " vector(" +
         std::to_string(lanes) + ")\n %0: bool = " + std::string(opcode) + " [" +
         std::string(left) + "], [" + std::string(right) + "]\n %1: i32 = cast %0\n b0[x0*" +
         std::to_string(kMost) + " + y0] = %1\n }\n}";
}

void expect_same(const std::string& text, const Target& target) {
  const loop::Kernel kernel = loop::parse_kernel(text);
  std::vector<int32_t> compiled(size_t{kRows} * kMost, 7), interpreted = compiled;
  void* buffers[] = {compiled.data()};
  run_compiled(kernel, target, buffers);
  buffers[0] = interpreted.data();
  run_interpreted(kernel, buffers);
  EXPECT_EQ(compiled, interpreted) << text;
}

TEST(PositionCompare, AtEveryPlace) {
  const std::vector<std::pair<std::string, std::string>> kSides = {
      {"y0", "x0 - 40"}, {"x0 - 40", "y0"},     {"x0*1000 - 75000", "y0"},
      {"y0 + x0", "90"}, {"y0*3 - x0", "2*y0"}, {"40 - x0", "-y0"},
      {"y0", "y0"},      {"y0*2 - x0", "50"},
  };
  for (const Target& target : targets())
    for (const char* opcode : {"eq", "ne", "lt", "le", "gt", "ge"})
      for (const auto& [left, right] : kSides)
        for (const auto& [lanes, columns] : {std::pair(8, 8), std::pair(16, 45), std::pair(32, 75),
                                             std::pair(64, 64), std::pair(64, 150)})
          expect_same(comparison(opcode, left, right, lanes, columns), target);
}

/// What one stage leaves for the next, and for the next round of a loop around both.
TEST(PositionCompare, ScratchOfOthersIsLoadedBeforeTheLoops) {
  const std::string text =
      "kernel \"k\" {\n buffer b0: i32 write\n buffer b1: i32[4] scratch\n outer x0 < 3 task\n"
      " outer x1 < 5\n stage {\n axis y0 < 4\n %0: bool = eq [x1], i64(0)\n"
      " %1: i32 = load b1[y0]\n %2: i32 = add %1, i32(3)\n %3: i32 = select %0, i32(1), %2\n"
      " b1[y0] = %3\n }\n stage {\n axis y1 < 4\n axis y2 < 20 vector(8)\n"
      " %4: i32 = load b1[y1]\n %5: i64 = cast %4\n %6: i64 = add %5, [y2]\n"
      " %7: i32 = cast %6\n b0[x0*400 + x1*80 + y1*20 + y2] = %7\n }\n}";
  for (const Target& target : targets()) expect_same(text, target);
}

}  // namespace
}  // namespace tandem::codegen
