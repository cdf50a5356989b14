// Sums of products of bytes as mapping writes them for a processor with tile registers: the kernel
// is marked, verified and means what it did before; machine code of it, where this processor has
// tile registers (else of the same kernel mapped without them), gives the interpreter's numbers.
// Rows that fill tiles and that do not, one and two tiles of columns and parts of them, sums of one
// and of several loops, factors that lie as tiles want them and that do not.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "loop/matrix.h"
#include "loop/stage.h"
#include "schedule/map.h"
#include "test/codegen/run_kernel.h"

namespace tandem::codegen {
namespace {

struct Case {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t packs = 0;
  int64_t windows = 1;       // sums of several loops: rows that overlap
  bool signed_rows = false;  // which factor of dot4 walks the rows
  bool turned = false;       // packs of a row are not neighbours in memory
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.rows << "x" << c.columns << "x" << c.packs << " windows " << c.windows
             << " signed " << c.signed_rows << " turned " << c.turned;
}

/// C[i, j] = 3 + sum over w, p of A[i + w, p] . B[w, p, j].
std::string text_of(const Case& c) {
  const std::string row = c.turned ? fmt::format("(x0 + r0) + r1*{}", c.rows + c.windows)
                                   : fmt::format("(x0 + r0)*{} + r1", c.packs);
  const std::string factors = c.signed_rows ? "%1, %0" : "%0, %1";
  return fmt::format(R"(kernel "product" {{
  buffer b0: i32 read
  buffer b1: i32 read
  buffer b2: i32 write
  locals 1
  outer x0 < {}
  outer x1 < {}
  stage {{
    reduce r0 < {}
    reduce r1 < {}
    %0: i32 = load b0[{}]
    %1: i32 = load b1[(r0*{} + r1)*{} + x1]
    l0 = dot4 {}
  after
    %2: i32 = l0
    %3: i32 = add %2, i32(3)
    b2[x0*{} + x1] = %3
  }}
}})",
                     c.rows, c.columns, c.windows, c.packs, row, c.packs, c.columns, factors,
                     c.columns);
}

std::vector<int32_t> numbers(int64_t count, uint32_t seed) {
  std::vector<int32_t> made(static_cast<size_t>(count));
  for (int32_t& each : made) {
    seed = seed * 1664525u + 1013904223u;
    each = static_cast<int32_t>(seed ^ (seed >> 13));
  }
  return made;
}

struct Buffers {
  explicit Buffers(const Case& c)
      : a(numbers((c.rows + c.windows) * c.packs, 1)),
        b(numbers(c.windows * c.packs * c.columns, 2)),
        out(static_cast<size_t>(c.rows * c.columns)) {}

  std::vector<int32_t> interpreted(const loop::Kernel& kernel) {
    void* buffers[] = {a.data(), b.data(), out.data()};
    run_interpreted(kernel, buffers);
    return std::exchange(out, std::vector<int32_t>(out.size()));
  }

  std::vector<int32_t> compiled(const loop::Kernel& kernel, const Target& target) {
    void* buffers[] = {a.data(), b.data(), out.data()};
    run_compiled(kernel, target, buffers);
    return std::exchange(out, std::vector<int32_t>(out.size()));
  }

  std::vector<int32_t> a, b, out;
};

loop::Kernel mapped(const Case& c, const Target& target) {
  loop::Kernel kernel = loop::parse_kernel(text_of(c));
  schedule::map_axes(kernel, target);
  kernel.target = target.features;
  return loop::canonical(kernel);
}

bool is_marked(const loop::Kernel& kernel) {
  const loop::Stage& last = kernel.stages.back();
  return last.axes.back().kind == loop::AxisKind::matrix &&
         last.reduce_axes.back().kind == loop::AxisKind::matrix;
}

const Case kCases[] = {
    {32, 32, 16},
    {64, 64, 64},
    {33, 32, 16},
    {40, 16, 8},
    {8, 40, 12},
    {9, 7, 5},
    {47, 33, 13},
    {100, 96, 48},
    {32, 32, 16, 3},
    {21, 48, 16, 9},
    {50, 20, 7, 7},
    {32, 32, 16, 1, true},
    {35, 50, 24, 2, true},
    {64, 32, 16, 1, false, true},
    {19, 17, 9, 3, true, true},
};

class Matrix : public ::testing::TestWithParam<Case> {};

TEST_P(Matrix, MappedForTilesMeansTheSame) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  ASSERT_TRUE(target.multiplies_tiles());
  const loop::Kernel kernel = mapped(GetParam(), target);
  EXPECT_TRUE(is_marked(kernel)) << loop::to_string(kernel);
  EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
  EXPECT_EQ(loop::to_string(loop::parse_kernel(loop::to_string(kernel))), loop::to_string(kernel));
  Buffers run(GetParam());
  EXPECT_EQ(run.interpreted(kernel), run.interpreted(loop::parse_kernel(text_of(GetParam()))));
}

TEST_P(Matrix, CodeOfThisMachineGivesTheInterpretersNumbers) {
  const Target target = host_target(std::nullopt);
  const loop::Kernel kernel = mapped(GetParam(), target);
  EXPECT_EQ(is_marked(kernel), target.multiplies_tiles());
  Buffers run(GetParam());
  EXPECT_EQ(run.compiled(kernel, target), run.interpreted(kernel));
}

/// Marks are no promise of the machine: without tile registers the loops do the same.
TEST_P(Matrix, MarkedKernelsRunWithoutTiles) {
  loop::Kernel kernel = mapped(GetParam(), cpu_target("sapphirerapids", std::nullopt));
  const Target target = host_target("avx2");
  kernel.target = target.features;
  Buffers run(GetParam());
  EXPECT_EQ(run.compiled(kernel, target), run.interpreted(kernel));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Matrix, ::testing::ValuesIn(kCases));

struct Image {
  int64_t height = 0, width = 0, packs = 0, columns = 0, window = 3, stride = 1, dilation = 1;
  bool has_border = true;
};

std::ostream& operator<<(std::ostream& out, const Image& i) {
  return out << i.height << "x" << i.width << "x" << i.packs << " to " << i.columns << ", window "
             << i.window << " stride " << i.stride << " dilation " << i.dilation << " border "
             << i.has_border;
}

int64_t places(const Image& i, int64_t size) {
  const int64_t reach = i.dilation * (i.window - 1);
  return (size + (i.has_border ? 2 * (reach / 2) : 0) - reach - 1) / i.stride + 1;
}

/// A convolution whose border counts as bytes of 7.
std::string text_of(const Image& i) {
  const int64_t before = i.has_border ? i.dilation * (i.window - 1) / 2 : 0;
  const std::string y = fmt::format("x0*{} + r0*{} - {}", i.stride, i.dilation, before);
  const std::string x = fmt::format("x1*{} + r1*{} - {}", i.stride, i.dilation, before);
  return fmt::format(R"(kernel "image" {{
  buffer b0: i32 read
  buffer b1: i32 read
  buffer b2: i32 write
  locals 1
  outer x0 < {0}
  outer x1 < {1}
  outer x2 < {2}
  stage {{
    reduce r0 < {3}
    reduce r1 < {3}
    reduce r2 < {4}
    %0: bool = ge [{5}], i64(0)
    %1: bool = lt [{5}], i64({7})
    %2: bool = bit_and %0, %1
    %3: bool = ge [{6}], i64(0)
    %4: bool = lt [{6}], i64({8})
    %5: bool = bit_and %3, %4
    %6: bool = bit_and %2, %5
    %7: i32 = load b0[(({5})*{8} + {6})*{4} + r2]{9}
    %8: i32 = {10}
    %9: i32 = load b1[((r0*{3} + r1)*{4} + r2)*{2} + x2]
    l0 = dot4 %8, %9
  after
    %10: i32 = l0
    b2[(x0*{1} + x1)*{2} + x2] = %10
  }}
}})",
                     places(i, i.height), places(i, i.width), i.columns, i.window, i.packs, y, x,
                     i.height, i.width, i.has_border ? " if %6" : "",
                     i.has_border ? "select %6, %7, i32(117901063)" : "sub %7, i32(1)");
}

/// Images of a batch follow one another as their channels do, and are no window of channels.
TEST(MatrixMapping, BatchesDoNotSlideOverChannels) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  loop::Kernel kernel = loop::parse_kernel(R"(kernel "batch" {
  buffer b0: i32 read
  buffer b1: i32 read
  buffer b2: i32 write
  locals 1
  outer x0 < 4
  outer x1 < 32
  outer x2 < 7
  stage {
    reduce r0 < 3
    reduce r1 < 4
    %0: bool = ge [x2 + r0], i64(1)
    %1: i32 = load b0[x0*28 + x2 + r0 + r1*7 - 1] if %0
    %2: i32 = load b1[x1 + r0*128 + r1*32]
    l0 = dot4 %1, %2
  after
    %3: i32 = l0
    b2[x0*224 + x1 + x2*32] = %3
  }
})");
  const loop::Kernel plain = loop::canonical(kernel);
  schedule::map_axes(kernel, target);
  kernel = loop::canonical(kernel);
  EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
  std::vector<int32_t> a = numbers(120, 1), b = numbers(384, 2), mapped(896), expected(896);
  void* buffers[] = {a.data(), b.data(), mapped.data()};
  run_interpreted(kernel, buffers);
  buffers[2] = expected.data();
  run_interpreted(plain, buffers);
  EXPECT_EQ(mapped, expected);
}

/// Rows of a matrix follow one another, and share nothing: there is nothing to copy once.
TEST(MatrixMapping, RowsThatDoNotOverlapDoNotSlide) {
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  loop::Kernel kernel = loop::parse_kernel(R"(kernel "turned" {
  buffer b0: i32 read
  buffer b1: i32 read
  buffer b2: i32 write
  locals 1
  outer x0 < 5
  outer x1 < 7
  outer x2 < 32
  stage {
    reduce r0 < 8
    %0: i32 = load b0[x0*56 + x1*8 + r0]
    %1: i32 = sub %0, i32(1)
    %2: i32 = load b1[r0*32 + x2]
    l0 = dot4 %1, %2
  after
    %3: i32 = l0
    b2[x1*160 + x0*32 + x2] = %3
  }
})");
  const loop::Kernel plain = loop::canonical(kernel);
  schedule::map_axes(kernel, target);
  ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
  kernel = loop::canonical(kernel);
  std::vector<int32_t> a = numbers(280, 1), b = numbers(256, 2), mapped(1120), expected(1120);
  void* buffers[] = {a.data(), b.data(), mapped.data()};
  run_interpreted(kernel, buffers);
  buffers[2] = expected.data();
  run_interpreted(plain, buffers);
  EXPECT_EQ(mapped, expected);
}

class SlidingRows : public ::testing::TestWithParam<Image> {};

/// Each element of the image is copied once for a task, not once for each window that holds it.
TEST_P(SlidingRows, AreCopiedOnce) {
  const Image& image = GetParam();
  const Target target = cpu_target("sapphirerapids", std::nullopt);
  loop::Kernel kernel = loop::parse_kernel(text_of(image));
  schedule::map_axes(kernel, target);
  kernel = loop::canonical(kernel);
  EXPECT_EQ(loop::verify(kernel), std::vector<std::string>{});
  ASSERT_TRUE(is_marked(kernel)) << loop::to_string(kernel);
  int64_t copied = *kernel.outer[0].extent.constant();  // blocks of lines
  for (const loop::Axis& axis : kernel.stages[0].axes) copied *= axis.extent.range().hi;
  const int64_t rows = places(image, image.height) * places(image, image.width);
  EXPECT_LT(copied, rows * image.window * image.window * image.packs) << loop::to_string(kernel);
  std::vector<int32_t> a = numbers(image.height * image.width * image.packs, 1);
  std::vector<int32_t> b = numbers(image.window * image.window * image.packs * image.columns, 2);
  std::vector<int32_t> mapped(static_cast<size_t>(rows * image.columns)), plain(mapped.size());
  void* buffers[] = {a.data(), b.data(), mapped.data()};
  run_interpreted(kernel, buffers);
  buffers[2] = plain.data();
  run_interpreted(loop::parse_kernel(text_of(image)), buffers);
  EXPECT_EQ(mapped, plain);
  // Of this machine, with tile registers or without.
  const Target here = host_target(std::nullopt);
  loop::Kernel native = loop::parse_kernel(text_of(image));
  schedule::map_axes(native, here);
  native.target = here.features;
  std::ranges::fill(mapped, 0);
  buffers[2] = mapped.data();
  run_compiled(loop::canonical(native), here, buffers);
  EXPECT_EQ(mapped, plain);
}

/// Tiles run over the ends of lines where they would be emptier without.
TEST(MatrixMapping, TilesRunOverLines) {
  const auto lines_of = [](const Image& image) {
    loop::Kernel kernel = loop::parse_kernel(text_of(image));
    schedule::map_axes(kernel, cpu_target("sapphirerapids", std::nullopt));
    return loop::has_lines(kernel.stages.back());
  };
  EXPECT_TRUE(lines_of({7, 7, 32, 32}));
  EXPECT_TRUE(lines_of({14, 14, 16, 64}));
  EXPECT_FALSE(lines_of({16, 16, 16, 64}));       // each line is a tile
  EXPECT_TRUE(lines_of({28, 28, 16, 64, 3, 2}));  // what windows skip lies apart in the copy
  EXPECT_TRUE(lines_of({28, 28, 16, 64, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SlidingRows,
                         ::testing::Values(Image{9, 11, 8, 32}, Image{14, 14, 16, 64, 3, 2},
                                           Image{12, 20, 4, 40, 3, 1, 2},
                                           Image{23, 23, 1, 32, 7, 2}, Image{7, 7, 32, 32},
                                           Image{10, 40, 5, 33, 5},
                                           Image{7, 5, 6, 11, 3, 1, 1, false}));

TEST(MatrixTarget, Avx2HasNoTiles) {
  EXPECT_FALSE(host_target("avx2").multiplies_tiles());
  EXPECT_FALSE(cpu_target("haswell", std::nullopt).multiplies_tiles());
  EXPECT_FALSE(cpu_target("znver4", std::nullopt).multiplies_tiles());
}

TEST(MatrixVerify, FactorsLieAsTiles) {
  const auto problem = [](const std::string& rows, const std::string& columns,
                          const std::string& loop) {
    const loop::Kernel kernel = loop::parse_kernel(
        "kernel \"k\" {\n  buffer b0: i32 read\n  buffer b1: i32 read\n  buffer b2: i32 write\n"
        "  locals 1\n  stage {\n    axis y0 < 32 vector(32)\n    axis y1 < 40 matrix(32)\n    "
        "reduce "
        "r0 < 32 " +
        loop + "\n    %0: i32 = load b0[" + rows + "]\n    %1: i32 = load b1[" + columns +
        "]\n    l0 = dot4 %0, %1\n  after\n    %2: i32 = l0\n    b2[y1*32 + y0] = %2\n  }\n}");
    const std::vector<std::string> problems = loop::verify(kernel);
    return problems.empty() ? "" : problems[0];
  };
  const auto says = [&](const std::string& found, std::string_view part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  EXPECT_EQ(problem("y1*32 + r0", "r0*32 + y0", "matrix(16)"), "");
  says(problem("y1*64 + r0*2", "r0*32 + y0", "matrix(16)"), "does not lie as rows of packs");
  says(problem("y1*32 + r0", "r0*64 + y0*2", "matrix(16)"), "does not lie as rows of packs");
  says(problem("y1*32 + r0", "r0*32 + y0", "matrix(12)"), "not a number of whole tiles");
  says(problem("y1*32 + r0", "r0*32 + y0", "unroll(4)"), "are not both marked");
}

}  // namespace
}  // namespace tandem::codegen
