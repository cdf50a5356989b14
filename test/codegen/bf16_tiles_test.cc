// Sums of products of bf16 as mapping writes them for a processor with tile registers: marked,
// verified, printed and parsed; machine code of it, where this processor has them (else of the same
// kernel mapped without them), gives the interpreter's numbers. To the bit, where all sums are
// numbers of f32 in any order: small integers. Factors as they lie and transposed, computed, in
// panels, with terms in two loops; rows and columns that fill tiles and that do not.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "loop/matrix.h"
#include "schedule/map.h"
#include "test/codegen/run_kernel.h"

namespace tandem::codegen {
namespace {

enum class Columns : uint8_t { by_rows, by_terms, in_panels };
enum class Rows : uint8_t { plain, computed, heads, short_heads, turned };

struct Case {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t terms = 0;
  Columns lie = Columns::by_terms;
  Rows made = Rows::plain;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.rows << "x" << c.columns << "x" << c.terms << " columns "
             << static_cast<int>(c.lie) << " rows " << static_cast<int>(c.made);
}

/// Terms of the inner loop, where there are two; 1: there is one.
int64_t head_of(const Case& c) {
  if (c.made == Rows::heads) return 16;
  return c.made == Rows::short_heads ? 6 : 1;
}

constexpr int64_t kPanel = 32;

std::string place_of_column(const Case& c, const std::string& term) {
  switch (c.lie) {
    case Columns::by_rows: return fmt::format("({})*{} + x1", term, c.columns);
    case Columns::by_terms: return fmt::format("x1*{} + {}", c.terms, term);
    case Columns::in_panels: break;
  }
  return fmt::format("x1//{0}*{1} + ({2})//2*{3} + (x1 % {0})*2 + ({2}) % 2", kPanel,
                     c.terms * kPanel, term, 2 * kPanel);
}

/// C[i, j] = relu(sum over k of A[i, k] B[k, j]), rounded to bf16; of computed rows, of -A.
std::string text_of(const Case& c) {
  const int64_t head = head_of(c);
  const bool has_heads = head > 1;
  const std::string term = has_heads ? fmt::format("r0*{} + r1", head) : "r0";
  std::string row = fmt::format("x0*{} + r0", c.terms);
  if (has_heads) row = fmt::format("r0*{} + x0*{} + r1", c.rows * head, head);
  if (c.made == Rows::turned) row = fmt::format("r0*{} + x0", c.rows);
  const std::string loops =
      has_heads ? fmt::format("    reduce r0 < {}\n    reduce r1 < {}\n", c.terms / head, head)
                : fmt::format("    reduce r0 < {}\n", c.terms);
  return fmt::format(R"(kernel "product" {{
  buffer b0: bf16 read
  buffer b1: bf16 read
  buffer b2: bf16 write
  locals 1
  outer x0 < {}
  outer x1 < {}
  stage {{
{}    %0: bf16 = load b0[{}]
    %1: f32 = cast %0
    %2: f32 = neg %1
    %3: bf16 = cast %2
    %4: f32 = cast {}
    %5: bf16 = load b1[{}]
    %6: f32 = cast %5
    l0 = dot %4, %6
  after
    %7: f32 = l0
    %8: f32 = max %7, f32(0)
    %9: bf16 = cast %8
    b2[x0*{} + x1] = %9
  }}
}})",
                     c.rows, c.columns, loops, row, c.made == Rows::computed ? "%3" : "%0",
                     place_of_column(c, term), c.columns);
}

uint16_t bf16_of(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

/// Integers from -4 to 4: all sums of some thousand products of them are numbers of f32.
std::vector<uint16_t> integers(int64_t count, uint32_t seed) {
  std::vector<uint16_t> made(static_cast<size_t>(count));
  for (uint16_t& each : made) {
    seed = seed * 1664525u + 1013904223u;
    each = bf16_of(static_cast<float>(seed >> 24) / 32.0F - 4.0F);
    each = bf16_of(std::round(std::bit_cast<float>(static_cast<uint32_t>(each) << 16)));
  }
  return made;
}

struct Product {
  explicit Product(const Case& c)
      : a(integers(c.rows * c.terms, 1)),
        b(integers((c.columns + kPanel) * c.terms, 2)),
        out(static_cast<size_t>(c.rows * c.columns)) {}

  std::vector<uint16_t> interpreted(const loop::Kernel& kernel) {
    void* buffers[] = {a.data(), b.data(), out.data()};
    run_interpreted(kernel, buffers);
    return std::exchange(out, std::vector<uint16_t>(out.size()));
  }

  std::vector<uint16_t> compiled(const loop::Kernel& kernel, const Target& target) {
    void* buffers[] = {a.data(), b.data(), out.data()};
    run_compiled(kernel, target, buffers);
    return std::exchange(out, std::vector<uint16_t>(out.size()));
  }

  std::vector<uint16_t> a, b, out;
};

loop::Kernel mapped(const Case& c, const Target& target) {
  loop::Kernel kernel = loop::parse_kernel(text_of(c));
  schedule::map_axes(kernel, target);
  kernel.target = target.features;
  return loop::canonical(kernel);
}

bool is_marked(const loop::Kernel& kernel) {
  const loop::Stage& last = kernel.stages.back();
  return !last.axes.empty() && last.axes.back().kind == loop::AxisKind::matrix;
}

constexpr Columns kLies[] = {Columns::by_rows, Columns::by_terms, Columns::in_panels};

std::vector<Case> cases() {
  std::vector<Case> made;
  const Case shapes[] = {{32, 32, 32}, {33, 32, 48}, {40, 96, 8}, {9, 64, 40}, {300, 64, 112}};
  for (const Case& shape : shapes)
    for (const Columns lie : kLies) made.push_back({shape.rows, shape.columns, shape.terms, lie});
  for (const Columns lie : {Columns::by_rows, Columns::by_terms}) {
    made.push_back({40, 40, 64, lie});
    made.push_back({35, 7, 24, lie});
    made.push_back({64, 300, 56, lie});
    made.push_back({47, 50, 64, lie, Rows::computed});
    made.push_back({70, 40, 72, lie, Rows::turned});
  }
  for (const Columns lie : kLies) made.push_back({36, 64, 64, lie, Rows::heads});
  for (const Columns lie : kLies) made.push_back({36, 64, 48, lie, Rows::short_heads});
  return made;
}

class Bf16Tiles : public ::testing::TestWithParam<Case> {};

TEST_P(Bf16Tiles, MappedForThemMeansTheSame) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  ASSERT_TRUE(target.multiplies_bf16_tiles());
  const loop::Kernel kernel = mapped(GetParam(), target);
  EXPECT_TRUE(is_marked(kernel)) << loop::to_string(kernel);
  EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
  EXPECT_EQ(loop::to_string(loop::parse_kernel(loop::to_string(kernel))), loop::to_string(kernel));
  Product run(GetParam());
  EXPECT_EQ(run.interpreted(kernel), run.interpreted(loop::parse_kernel(text_of(GetParam()))));
}

TEST_P(Bf16Tiles, CodeOfThisMachineGivesTheInterpretersNumbers) {
  const Target target = host_target(std::nullopt);
  const loop::Kernel kernel = mapped(GetParam(), target);
  EXPECT_EQ(is_marked(kernel), target.multiplies_bf16_tiles());
  Product run(GetParam());
  EXPECT_EQ(run.compiled(kernel, target), run.interpreted(kernel));
}

/// Vector registers that sum packs of two: the same layouts, and nothing is widened.
TEST_P(Bf16Tiles, MappedForPacksMeansTheSame) {
  const Target target = cpu_target("znver4", std::nullopt);
  ASSERT_TRUE(target.multiplies_bf16());
  const loop::Kernel kernel = mapped(GetParam(), target);
  EXPECT_EQ(is_marked(kernel), false);
  EXPECT_TRUE(std::ranges::any_of(kernel.stages, [](const loop::Stage& stage) {
    return stage.reductions.size() == 1 && stage.reductions[0].combiner == loop::Combiner::dot_bf16;
  })) << loop::to_string(kernel);
  EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
  EXPECT_EQ(loop::to_string(loop::parse_kernel(loop::to_string(kernel))), loop::to_string(kernel));
  Product run(GetParam());
  EXPECT_EQ(run.interpreted(kernel), run.interpreted(loop::parse_kernel(text_of(GetParam()))));
}

/// Packs of small and odd numbers, too: the second products first, what is no normal number zero.
TEST_P(Bf16Tiles, PacksRunWithoutTheirInstruction) {
  loop::Kernel kernel = mapped(GetParam(), cpu_target("znver4", std::nullopt));
  const Target target = host_target("avx2");
  kernel.target = target.features;
  Product run(GetParam());
  for (size_t i = 0; i < run.a.size(); i += 7) run.a[i] = static_cast<uint16_t>(0x0080 + i % 9);
  for (size_t i = 0; i < run.b.size(); i += 5) run.b[i] = static_cast<uint16_t>(0x007e + i % 5);
  EXPECT_EQ(run.compiled(kernel, target), run.interpreted(kernel));
}

/// Marks are no promise of the machine.
TEST_P(Bf16Tiles, MarkedKernelsRunWithoutThem) {
  loop::Kernel kernel = mapped(GetParam(), cpu_target("sapphirerapids", std::nullopt));
  const Target target = host_target("avx2");
  kernel.target = target.features;
  Product run(GetParam());
  EXPECT_EQ(run.compiled(kernel, target), run.interpreted(kernel));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bf16Tiles, ::testing::ValuesIn(cases()));

/// What lies in panels is read there: nothing is copied.
TEST(Bf16TilesMapping, PanelsAreReadInPlace) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  const auto scratch_of = [&](Columns lie) {
    int64_t elements = 0;
    for (const loop::Buffer& buffer : mapped({64, 64, 64, lie}, target).buffers)
      if (buffer.access == loop::Access::scratch) elements += *buffer.elements.constant();
    return elements;
  };
  EXPECT_EQ(scratch_of(Columns::in_panels), 0);
  EXPECT_GT(scratch_of(Columns::by_terms), 0);
}

/// An odd number of terms has no packs, few of them fill no tile.
TEST(Bf16TilesMapping, OtherSumsStayInVectorRegisters) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  EXPECT_FALSE(is_marked(mapped({64, 64, 63}, target)));
  EXPECT_FALSE(is_marked(mapped({64, 64, 6}, target)));
  EXPECT_FALSE(is_marked(mapped({7, 64, 64}, target)));
  EXPECT_FALSE(is_marked(mapped({64, 64, 64}, cpu_target("znver4", std::nullopt))));
  EXPECT_FALSE(host_target("avx2").multiplies_bf16_tiles());
}

/// Infinities and NaN reach the results of their row and column, and no others.
TEST(Bf16TilesCode, WhatIsNoNumberStaysInItsRow) {
  const Case c{40, 64, 64, Columns::by_terms};
  const Target target = host_target(std::nullopt);
  const loop::Kernel kernel = mapped(c, target);
  Product run(c);
  run.a[static_cast<size_t>(3 * c.terms + 5)] = bf16_of(std::numeric_limits<float>::quiet_NaN());
  run.a[static_cast<size_t>(20 * c.terms)] = bf16_of(std::numeric_limits<float>::infinity());
  const std::vector<uint16_t> code = run.compiled(kernel, target);
  const std::vector<uint16_t> expected = run.interpreted(kernel);
  const auto is_nan = [](uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
  for (size_t i = 0; i < code.size(); ++i) {
    if (is_nan(expected[i]))
      EXPECT_TRUE(is_nan(code[i])) << i;
    else
      EXPECT_EQ(code[i], expected[i]) << i;
  }
}

/// Pairs of bf16 are turned as one element of 32 bits, for full lanes and for a rest of them.
TEST(Bf16TilesCode, PairsAreTurned) {
  const auto text = [](int64_t columns, int64_t packs) {
    return fmt::format(R"(kernel "turn" {{
  buffer b0: bf16 read
  buffer b1: bf16 write
  outer x0 < 1 task
  stage {{
    axis y0 < {0} vector(16)
    axis y1 < {1} transpose(16)
    axis y2 < 2 interleave(2)
    %0: bf16 = load b0[y0*{2} + y1*2 + y2]
    b1[y1*{3} + y0*2 + y2] = %0
  }}
}})",
                       columns, packs, packs * 2, columns * 2);
  };
  for (const auto& [columns, packs] : {std::pair{16, 16}, {40, 37}, {5, 20}, {32, 3}}) {
    loop::Kernel kernel = loop::parse_kernel(text(columns, packs));
    EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
    const Target target = host_target(std::nullopt);
    kernel.target = target.features;
    const std::vector<uint16_t> from = integers(columns * packs * 2, 3);
    std::vector<uint16_t> code(from.size()), expected(from.size());
    const KernelLibrary library(compile_objects(std::vector{kernel}, target, CompileOptions()));
    void* into[] = {const_cast<uint16_t*>(from.data()), code.data()};
    EXPECT_EQ(library.functions()[0](into, nullptr, 0, 1, nullptr), 0);
    into[1] = expected.data();
    EXPECT_EQ(loop::interpret(kernel, into, nullptr, 0, 1), 0);
    EXPECT_EQ(code, expected) << columns << " x " << packs;
  }
}

std::string problem_of(const std::string& rows, const std::string& columns,
                       const std::string& loops) {
  const loop::Kernel kernel = loop::parse_kernel(
      "kernel \"k\" {\n  buffer b0: bf16 read\n  buffer b1: bf16 read\n  buffer b2: f32 write\n"
      "  locals 1\n  stage {\n    axis y0 < 32 vector(32)\n    axis y1 < 40 matrix(32)\n" +
      loops + "    %0: bf16 = load b0[" + rows +
      "]\n    %1: f32 = cast %0\n    %2: bf16 = load b1[" + columns +
      "]\n    %3: f32 = cast %2\n    l0 = dot %1, %3\n  after\n    %4: f32 = l0\n"
      "    b2[y1*32 + y0] = %4\n  }\n}");
  const std::vector<std::string> problems = loop::verify(kernel);
  return problems.empty() ? "" : problems[0];
}

TEST(Bf16TilesVerify, FactorsLieInPacks) {
  const auto says = [](const std::string& found, std::string_view part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  const std::string loops = "    reduce r0 < 2\n    reduce r1 < 32 matrix(16)\n";
  EXPECT_EQ(problem_of("y1*64 + r1*2 + r0", "r1*64 + y0*2 + r0", loops), "");
  says(problem_of("y1*64 + r1*2 + r0", "r1*64 + y0 + r0*32", loops), "does not lie as rows of");
  says(problem_of("y1*64 + r1 + r0*32", "r1*64 + y0*2 + r0", loops), "does not lie as rows of");
  says(problem_of("y1*64 + r0", "r0*32 + y0", "    reduce r0 < 64 matrix(16)\n"),
       "its first loop is not over the two numbers of a pack");
}

}  // namespace
}  // namespace tandem::codegen
