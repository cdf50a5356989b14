// Stores that go past the caches: what they write is what the interpreter writes, whole registers
// and the tail behind them; the code says so to the processor, and waits for them before it ends.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kRow = 128;  // elements from one row to the next

/// Columns of rows, all but the last few of which are whole registers.
loop::Kernel kernel_of(const std::string& dtype, int lanes, const Target& target,
                       const std::string& mark = " nontemporal") {
  return loop::parse_kernel(
      "kernel \"moved_" + dtype + std::to_string(lanes) + "\" target \"" + target.features +
      "\" {\n buffer b0: " + dtype + " read\n buffer b1: " + dtype + " write\n outer x0 < " +
      std::to_string(kRows) + " task\n stage {\n axis y0 < 101 vector(" + std::to_string(lanes) +
      ")\n %0: " + dtype + " = load b0[x0*128 + y0]\n b1[x0*128 + y0] = %0" + mark + "\n }\n}\n");
}

struct Free {
  void operator()(std::byte* block) const { std::free(block); }
};
using Block = std::unique_ptr<std::byte, Free>;

Block block_of(size_t bytes, int start) {
  Block block(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  for (size_t i = 0; i < bytes; ++i)
    block.get()[i] = static_cast<std::byte>((start + 7 * static_cast<int>(i)) % 63);
  return block;
}

void check(const Target& target, const std::string& dtype, DType type, int lanes) {
  const loop::Kernel kernel = kernel_of(dtype, lanes, target);
  ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
  const KernelLibrary library(compile_objects({kernel}, target, {}));
  const size_t bytes = static_cast<size_t>(kRows * kRow * size_of(type));
  const Block input = block_of(bytes, 1), made = block_of(bytes, 2), wanted = block_of(bytes, 2);
  void* own[] = {input.get(), made.get()};
  void* reference[] = {input.get(), wanted.get()};
  EXPECT_EQ(library.functions()[0](own, nullptr, 0, kRows, nullptr), 0);
  EXPECT_EQ(loop::interpret(kernel, reference, nullptr, 0, kRows), 0);
  EXPECT_EQ(std::memcmp(made.get(), wanted.get(), bytes), 0) << dtype << " of " << lanes;
}

TEST(PastCaches, AsTheInterpreter) {
  for (const Target& target : {host_target("avx2"), host_target(std::nullopt)})
    for (int lanes : {8, 16, 32}) {
      check(target, "f32", DType::f32, lanes);
      check(target, "f64", DType::f64, lanes);
      check(target, "i64", DType::i64, lanes);
      check(target, "bf16", DType::bf16, lanes);
      check(target, "i16", DType::i16, lanes);
      check(target, "u8", DType::u8, lanes);
    }
}

TEST(PastCaches, IsSaidOfWholeRegistersAndWaitedFor) {
  const Target target = host_target("avx2");
  const std::string text = llvm_text(kernel_of("f32", 8, target), target);
  EXPECT_NE(text.find("!nontemporal"), std::string::npos) << text;
  EXPECT_NE(text.find("@llvm.x86.sse.sfence()"), std::string::npos) << text;
  const std::string plain = llvm_text(kernel_of("f32", 8, target, ""), target);
  EXPECT_EQ(plain.find("!nontemporal"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("sfence"), std::string::npos) << plain;
}

}  // namespace
}  // namespace tandem::codegen
