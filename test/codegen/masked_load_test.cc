// Loads under masks, lane by lane: code for AVX2 and for AVX-512 against the interpreter, for each
// width of rows from 1 to 40, windows that hang over both ends, every element size, and registers
// from one to four a loop. What is read ends at a page that may not be read. The text of the code
// is looked at for both, whatever this processor can run.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/dtype.h"
#include "codegen/codegen.h"
#include "loop/kernel.h"
#include "loop/small_floats.h"
#include "test/codegen/guarded_page.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kMostColumns = 40;

/// Sums of three neighbours and three rows where they exist, the row moved left by one, and the row
/// as it is, whose last lanes are known. Floats of 16 bits are added in f32.
std::string window_text(const std::string& dtype, int64_t columns, int lanes,
                        const std::string& features) {
  const std::string n = std::to_string(columns);
  const bool is_short = dtype == "bf16" || dtype == "f16";
  const std::string sum = is_short ? "    %8: f32 = cast %7\n    l0 = sum %8" : "    l0 = sum %7";
  const std::string result = is_short ? "    %9: f32 = l0\n    %10: " + dtype + " = cast %9"
                                      : "    %10: " + dtype + " = l0";
  return "kernel \"window_" + dtype + "_" + n + "_" + std::to_string(lanes) + "\" target \"" +
         features + R"(" {
  buffer b0: )" +
         dtype + R"( read
  buffer b1: )" +
         dtype + R"( write
  buffer b2: )" +
         dtype + R"( write
  buffer b3: )" +
         dtype + R"( write
  locals 1
  outer x0 < )" +
         std::to_string(kRows) + R"( task
  stage {
    axis y0 < )" +
         n + " vector(" + std::to_string(lanes) + R"()
    reduce r0 < 3
    reduce r1 < 3
    %0: bool = ge [x0 + r0 - 1], i64(0)
    %1: bool = lt [x0 + r0 - 1], i64()" +
         std::to_string(kRows) + R"()
    %2: bool = bit_and %0, %1
    %3: bool = ge [y0 + r1 - 1], i64(0)
    %4: bool = lt [y0 + r1 - 1], i64()" +
         n + R"()
    %5: bool = bit_and %3, %4
    %6: bool = bit_and %2, %5
    %7: )" +
         dtype + " = load b0[x0*" + n + " + y0 + r0*" + n + " + r1 - " +
         std::to_string(columns + 1) + "] if %6\n" + sum + "\n  after\n" + result + R"(
    b1[x0*)" +
         n + R"( + y0] = %10
  }
  stage {
    axis y1 < )" +
         n + " vector(" + std::to_string(lanes) + R"()
    %0: bool = lt [y1 + 1], i64()" +
         n + R"()
    %1: )" +
         dtype + " = load b0[x0*" + n + R"( + y1 + 1] if %0
    b2[x0*)" +
         n + R"( + y1] = %1
  }
  stage {
    axis y2 < )" +
         n + " vector(" + std::to_string(lanes) + R"()
    %0: )" +
         dtype + " = load b0[x0*" + n + R"( + y2]
    b3[x0*)" +
         n + R"( + y2] = %0
  }
})";
}

/// Memory whose last byte is followed by a page that may not be touched.
class GuardedBlock {
 public:
  explicit GuardedBlock(size_t bytes) : bytes_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes / page + 2) * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + mapped_ - page, page, PROT_NONE), 0);
    data_ = base_ + mapped_ - page - bytes;
  }
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;
  ~GuardedBlock() { munmap(base_, mapped_); }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_, mapped_;
  std::byte *base_, *data_;
};

template <class T>
void fill(std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = static_cast<T>((i * 37 + 11) % 101 + 1);
    std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

/// Of 1 to 101, which floats of 16 bits hold too.
void fill_short(DType dtype, std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float number = static_cast<float>((i * 37 + 11) % 101 + 1);
    const uint16_t value =
        dtype == DType::bf16 ? loop::f32_to_bf16(number) : loop::f32_to_f16(number);
    std::memcpy(data + i * 2, &value, sizeof(value));
  }
}

void fill(DType dtype, std::byte* data, int64_t count) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return fill_short(dtype, data, count);
    case DType::f32: return fill<float>(data, count);
    case DType::f64: return fill<double>(data, count);
    case DType::i64: return fill<int64_t>(data, count);
    case DType::i32: return fill<int32_t>(data, count);
    case DType::i16: return fill<int16_t>(data, count);
    default: return fill<uint8_t>(data, count);
  }
}

std::vector<std::byte> results_of(abi::KernelFunction function, const loop::Kernel& kernel,
                                  DType dtype, int64_t columns) {
  const int64_t count = kRows * columns;
  const size_t bytes = static_cast<size_t>(count * size_of(dtype));
  GuardedBlock input(bytes), sums(bytes), moved(bytes), copied(bytes);
  fill(dtype, input.data(), count);
  void* buffers[] = {input.data(), sums.data(), moved.data(), copied.data()};
  const int64_t status = function == nullptr ? loop::interpret(kernel, buffers, nullptr, 0, kRows)
                                             : function(buffers, nullptr, 0, kRows, nullptr);
  EXPECT_EQ(status, 0);
  std::vector<std::byte> results(sums.data(), sums.data() + bytes);
  results.insert(results.end(), moved.data(), moved.data() + bytes);
  results.insert(results.end(), copied.data(), copied.data() + bytes);
  return results;
}

const std::vector<DType> kFloats = {DType::f32, DType::f64};
const std::vector<DType> kAll = {DType::f32, DType::f64, DType::i64,
                                 DType::i32, DType::i16, DType::u8};
const std::vector<DType> kWithShort = {DType::f32, DType::f64, DType::i64, DType::i32,
                                       DType::i16, DType::u8,  DType::f16, DType::bf16};

void check_lanes(const Target& target, int lanes, int level) {
  const std::vector<DType>& types = lanes == 16 || lanes == 4 ? kWithShort : kFloats;
  std::vector<loop::Kernel> kernels;
  for (const DType dtype : types)
    for (int64_t columns = 1; columns <= kMostColumns; ++columns) {
      loop::Kernel kernel = loop::parse_kernel(
          window_text(std::string(name_of(dtype)), columns, lanes, target.features));
      ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
      kernels.push_back(std::move(kernel));
    }
  CompileOptions options;
  options.level = level;
  const KernelLibrary library(compile_objects(kernels, target, options));
  for (size_t i = 0; i < kernels.size(); ++i) {
    const DType dtype = types[i / kMostColumns];
    const int64_t columns = static_cast<int64_t>(i % kMostColumns) + 1;
    EXPECT_EQ(results_of(library.functions()[i], kernels[i], dtype, columns),
              results_of(nullptr, kernels[i], dtype, columns))
        << kernels[i].name;
  }
}

bool has_avx512() { return host_target(std::nullopt).isa == Isa::avx512; }

class MaskedLoad : public ::testing::TestWithParam<int> {};

TEST_P(MaskedLoad, AsTheInterpreterOnAvx2) { check_lanes(host_target("avx2"), GetParam(), 2); }

// Where no pass has been over the code, LLVM has to select what is written.
TEST_P(MaskedLoad, AsTheInterpreterOnAvx2WithoutPasses) {
  check_lanes(host_target("avx2"), GetParam(), 0);
}

TEST_P(MaskedLoad, AsTheInterpreterOnAvx512) {
  if (!has_avx512()) GTEST_SKIP() << "this machine has no AVX-512";
  check_lanes(host_target("avx512"), GetParam(), 2);
}

INSTANTIATE_TEST_SUITE_P(Lanes, MaskedLoad, ::testing::Values(4, 8, 16, 32));

TEST(HostTarget, FollowsWhatIsAsked) {
  EXPECT_EQ(host_target("avx2").isa, Isa::avx2);
  EXPECT_EQ(host_target("avx2").features.find("+avx512"), std::string::npos);
  if (has_avx512())
    EXPECT_EQ(host_target("avx512").vector_bytes, 64);
  else
    EXPECT_THROW(host_target("avx512"), UserError);
}

/// A machine of one of the two kinds, for text.
Target made_up(Isa isa) {
  Target target;
  target.isa = isa;
  target.cpu = isa == Isa::avx512 ? "x86-64-v4" : "x86-64-v3";
  target.features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2";
  if (isa == Isa::avx512) target.features += ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl";
  target.vector_bytes = isa == Isa::avx512 ? 64 : 32;
  return target;
}

/// Each row and those above and below it, where there are such: whole rows are there or not.
std::string rows_text(DType dtype, int lanes, const std::string& features) {
  const std::string type(name_of(dtype)), n = std::to_string(2 * lanes);
  return "kernel \"rows_" + type + "\" target \"" + features + "\" {\n  buffer b0: " + type +
         " read\n  buffer b1: " + type + " write\n  locals 1\n  outer x0 < " +
         std::to_string(kRows) + " task\n  stage {\n    axis y0 < " + n + " vector(" +
         std::to_string(lanes) + R"()
    reduce r0 < 3
    %0: bool = ge [x0 + r0 - 1], i64(0)
    %1: bool = lt [x0 + r0 - 1], i64()" +
         std::to_string(kRows) + R"()
    %2: bool = bit_and %0, %1
    %3: )" +
         type + " = load b0[x0*" + n + " + y0 + r0*" + n + " - " + n + R"(] if %2
    %4: i32 = cast %3
    l0 = sum %4
  after
    %5: i32 = l0
    %6: )" +
         type + " = cast %5\n    b1[x0*" + n + " + y0] = %6\n  }\n}";
}

// Bytes would be asked for one by one, each with a branch.
TEST(MaskedLoad, RowsThatAreThereOrNotAreReadWhole) {
  for (const Target& target : {host_target("avx2"), host_target(std::nullopt)})
    for (const DType dtype : kAll)
      for (const int lanes : {8, 16, 32}) {
        const loop::Kernel kernel = loop::parse_kernel(rows_text(dtype, lanes, target.features));
        ASSERT_EQ(loop::verify(kernel), std::vector<std::string>{});
        const KernelLibrary library(compile_objects(std::vector{kernel}, target, CompileOptions()));
        const size_t bytes = static_cast<size_t>(kRows * 2 * lanes * size_of(dtype));
        check_between_pages(kernel, library.functions()[0], bytes);
        const bool is_masked = llvm_text(kernel, target).find("masked.load") != std::string::npos;
        EXPECT_EQ(is_masked, target.isa == Isa::avx512);
      }
}

// With mask registers a load is one; without, one for each register, and never wider.
TEST(MaskedLoadText, OneForEachRegister) {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const Target target = made_up(isa);
    const std::string text =
        llvm_text(loop::parse_kernel(window_text("f32", 9, 16, target.features)), target);
    const bool has_wide = text.find("call <16 x float> @llvm.masked.load") != std::string::npos;
    const bool has_narrow = text.find("call <8 x float> @llvm.masked.load") != std::string::npos;
    EXPECT_EQ(has_wide, isa == Isa::avx512);
    EXPECT_EQ(has_narrow, isa == Isa::avx2);
  }
}

}  // namespace
}  // namespace tandem::codegen
