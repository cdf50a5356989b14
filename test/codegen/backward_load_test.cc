// Rows read backwards: one load whose lanes are turned, for each width of rows from 1 to 40, every
// element size, and registers from one to four a loop; with AVX2 and as this machine has it,
// against the interpreter. What is read begins behind a page that may not be read, and ends before
// another.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "test/codegen/guarded_page.h"
#include "test/codegen/run_kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kMostColumns = 40;

loop::Kernel backwards(DType dtype, int64_t columns, int lanes, const std::string& features) {
  const std::string type(name_of(dtype)), n = std::to_string(columns);
  return loop::parse_kernel("kernel \"back_" + type + "_" + n + "\" target \"" + features + R"(" {
  buffer b0: )" + type + R"( read
  buffer b1: )" + type + R"( write
  outer x0 < 3 task
  stage {
    axis y0 < )" + n + " vector(" +
                            std::to_string(lanes) + R"()
    %0: )" + type + " = load b0[x0*" +
                            n + " - y0 + " + std::to_string(columns - 1) + R"(]
    b1[x0*)" + n + R"( + y0] = %0
  }
})");
}

void check_lanes(const Target& target, int lanes) {
  std::vector<loop::Kernel> kernels;
  std::vector<size_t> bytes;
  for (const DType dtype : {DType::f32, DType::f64, DType::i16, DType::u8, DType::boolean})
    for (int64_t columns = 1; columns <= kMostColumns; columns += columns < 18 ? 1 : 7) {
      kernels.push_back(backwards(dtype, columns, lanes, target.features));
      ASSERT_EQ(loop::verify(kernels.back()), std::vector<std::string>{});
      bytes.push_back(static_cast<size_t>(kRows * columns * size_of(dtype)));
    }
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions()));
  for (size_t i = 0; i < kernels.size(); ++i)
    check_between_pages(kernels[i], library.functions()[i], bytes[i]);
}

class BackwardLoad : public ::testing::TestWithParam<int> {};

TEST_P(BackwardLoad, AsTheInterpreterOnAvx2) { check_lanes(host_target("avx2"), GetParam()); }

TEST_P(BackwardLoad, AsTheInterpreterOnThisMachine) {
  check_lanes(host_target(std::nullopt), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Lanes, BackwardLoad, ::testing::Values(8, 16, 32));

TEST(BackwardLoadText, NothingIsGathered) {
  const Target target = host_target(std::nullopt);
  const std::string text = llvm_text(backwards(DType::f32, 64, 16, target.features), target);
  EXPECT_EQ(text.find("masked.gather"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::codegen
