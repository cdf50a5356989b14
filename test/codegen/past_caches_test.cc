// Stores that go past the caches: what they write is what the interpreter writes, whole registers
// and the tail behind them; the code says so to the processor, and waits for them before it ends.
// And loads that ask for what they will read.
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

/// A kernel that fails has stored, too.
TEST(PastCaches, IsWaitedForOnEachWayOut) {
  const Target target = host_target("avx2");
  const std::string text =
      llvm_text(loop::parse_kernel(
                    "kernel \"checked\" target \"" + target.features +
                    "\" {\n buffer b0: f32 write\n error 0 \"bad\"\n outer x0 < 4 task\n stage "
                    "{\n axis y0 < 64 vector(8)\n %0: bool = lt [x0], i64(3)\n %1: f32 = check "
                    "%0, f32(1), error 0\n b0[x0*64 + y0] = %1 nontemporal\n }\n}\n"),
                target);
  size_t returns = 0, fences = 0;
  for (size_t at = 0; (at = text.find("  ret i64", at)) != std::string::npos; ++at) ++returns;
  for (size_t at = 0; (at = text.find("call void @llvm.x86.sse.sfence", at)) != std::string::npos;
       ++at)
    ++fences;
  EXPECT_EQ(returns, 2U) << text;
  EXPECT_EQ(fences, returns) << text;
}

/// Loads without a mask ask only in loops that stream, and only for what is far.
TEST(AskingAhead, IsForWhatLoopsStream) {
  const Target target = host_target("avx2");
  const auto asks = [&](const std::string& buffer, const std::string& axis) {
    const std::string text = llvm_text(
        loop::parse_kernel(
            "kernel \"asks\" target \"" + target.features + "\" {\n buffer b0: f32 read" + buffer +
            "\n buffer b1: f32 write\n outer x0 < 4 task\n stage {\n axis y0 < 64 "
            "vector(8)" +
            axis + "\n %0: f32 = load b0[x0*64 + y0]\n b1[x0*64 + y0] = %0\n }\n}\n"),
        target);
    return text.find("call void @llvm.prefetch") != std::string::npos;
  };
  EXPECT_TRUE(asks(" far", " ahead(8192) streams"));
  EXPECT_FALSE(asks("", " ahead(8192) streams"));
  EXPECT_FALSE(asks(" far", " ahead(8192)"));
}

}  // namespace
}  // namespace tandem::codegen
