// Matrices that are turned in registers: rows of lanes across memory, terms along it, for extents
// around whole squares of elements and of pairs, every element size; with AVX2 and as this machine
// has it, against the interpreter. What is read begins behind a page that may not be read, and ends
// before another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "test/codegen/guarded_page.h"
#include "test/codegen/run_kernel.h"

namespace tandem::codegen {
namespace {

struct Matrix {
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t terms = 0;
};

loop::Kernel turned(const Matrix& m, int lanes, const std::string& features) {
  return loop::parse_kernel(fmt::format(R"(kernel "turned_{0}_{1}_{2}" target "{4}" {{
  buffer b0: {0} read
  buffer b1: {0} write
  stage {{
    axis y0 < {1} vector({3})
    axis y1 < {2} transpose({3})
    %0: {0} = load b0[y0*{2} + y1]
    b1[y0 + y1*{1}] = %0
  }}
}})",
                                        name_of(m.dtype), m.rows, m.terms, lanes, features));
}

void check_all(const Target& target, int lanes) {
  std::vector<loop::Kernel> kernels;
  std::vector<size_t> bytes;
  for (const DType dtype : {DType::bf16, DType::f16, DType::i16, DType::f32, DType::u8})
    for (const int rows : {lanes - 1, lanes, lanes + 3})
      for (const int terms : {2, lanes, 2 * lanes - 1, 2 * lanes, 3 * lanes}) {
        kernels.push_back(turned({dtype, rows, terms}, lanes, target.features));
        ASSERT_EQ(loop::verify(kernels.back()), std::vector<std::string>{});
        bytes.push_back(static_cast<size_t>(rows * terms * size_of(dtype)));
      }
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions()));
  for (size_t i = 0; i < kernels.size(); ++i)
    check_between_pages(kernels[i], library.functions()[i], bytes[i]);
}

TEST(TurnedTile, IsTheInterpreters) {
  const Target native = host_target(std::nullopt);
  check_all(native, native.lanes());
}

TEST(TurnedTile, IsTheInterpretersWithAvx2) {
  const Target avx2 = host_target("avx2");
  check_all(avx2, avx2.lanes());
}

}  // namespace
}  // namespace tandem::codegen
