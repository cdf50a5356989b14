// Scans along lanes: compiled code against the interpreter, bit by bit, for each combiner and for
// lengths around whole registers; the interpreter against a running value, where order is free; and
// scans whose lanes are columns.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {
namespace {

constexpr int64_t kRows = 3, kMost = 100;

struct Scan {
  std::string combiner;
  std::string dtype;
  std::string axes;
  std::string place = "[x0*100 + r0]";
  bool has_index = false;  // of an arg-reduction
};

/// All elements have 8 bytes or 4; what the scan comes to at each point, and at the end of a row.
std::string kernel_text(const Scan& scan, int64_t length, bool is_known,
                        const std::string& features, size_t number = 0) {
  std::string axes = scan.axes;
  axes.replace(axes.find('N'), 1, is_known ? std::to_string(length) : "n0");
  const std::string local = scan.has_index ? "l0, l1" : "l0";
  const std::string second = scan.has_index ? ", [-r0]" : "";
  return "kernel \"scan" + std::to_string(number) + "\" target \"" + features +
         "\" {\n size n0 in [1, 100]\n buffer b0: " + scan.dtype +
         " read\n buffer b1: " + scan.dtype +
         " write\n buffer b2: " + (scan.has_index ? "i64" : scan.dtype) +
         " write\n locals 2\n outer x0 < 3 task\n stage {\n" + axes + " %0: " + scan.dtype +
         " = load b0" + scan.place + "\n " + local + " = scan " + scan.combiner + " %0" + second +
         "\n %1: " + scan.dtype + " = l0\n b1" + scan.place + " = %1\n" +
         (scan.has_index ? " %2: i64 = l1\n b2" + scan.place + " = %2\n"
                         : " after\n %3: " + scan.dtype + " = l0\n b2[x0] = %3\n") +
         " }\n}";
}

const std::vector<Scan> kScans = {
    {"sum", "i64", " reduce r0 < N vector(8)\n"},
    {"sum", "i64", " reduce r0 < N vector(4)\n"},
    {"sum", "f64", " reduce r0 < N vector(8)\n"},
    {"sum", "f64", " reduce r0 < N vector(4)\n"},
    {"prod", "f64", " reduce r0 < N vector(8)\n"},
    {"prod", "i64", " reduce r0 < N vector(16)\n"},
    {"min", "f32", " reduce r0 < N vector(16)\n"},
    {"max", "f64", " reduce r0 < N vector(8)\n"},
    {"argmax", "f32", " reduce r0 < N vector(8)\n", "[x0*100 + r0]", true},
    {"argmin", "f64", " reduce r0 < N vector(4)\n", "[x0*100 + r0]", true},
};

template <class T>
std::vector<char> values() {
  std::vector<T> made(kRows * kMost);
  for (size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<T>(static_cast<double>((i * 37 + 11) % 41) / 4 - 5);
    if (std::is_floating_point_v<T> && i % 67 == 66) made[i] = static_cast<T>(NAN);
    if (i % 29 == 28) made[i] = static_cast<T>(-0.0);
  }
  std::vector<char> bytes(made.size() * sizeof(T));
  std::memcpy(bytes.data(), made.data(), bytes.size());
  return bytes;
}

std::vector<char> input(const std::string& dtype) {
  if (dtype == "i64") return values<int64_t>();
  return dtype == "f64" ? values<double>() : values<float>();
}

std::vector<char> run(const loop::Kernel& kernel, abi::KernelFunction function,
                      std::vector<char> from, int64_t length) {
  std::vector<char> running(kRows * kMost * 8, 1), ends(running.size(), 1);
  void* buffers[] = {from.data(), running.data(), ends.data()};
  const int64_t status = function == nullptr ? loop::interpret(kernel, buffers, &length, 0, kRows)
                                             : function(buffers, &length, 0, kRows, nullptr);
  EXPECT_EQ(status, 0);
  running.insert(running.end(), ends.begin(), ends.end());
  return running;
}

TEST(ScanLanes, CompiledAsInterpreted) {
  const Target target = host_target(std::nullopt);
  std::vector<loop::Kernel> kernels;
  std::vector<std::pair<const Scan*, int64_t>> cases;
  for (const Scan& scan : kScans)
    for (const bool is_known : {true, false})
      for (const int64_t length : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100}) {
        kernels.push_back(loop::parse_kernel(
            kernel_text(scan, length, is_known, target.features, kernels.size())));
        ASSERT_EQ(loop::verify(kernels.back()), std::vector<std::string>{});
        cases.emplace_back(&scan, length);
      }
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions{}));
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& [scan, length] = cases[i];
    EXPECT_EQ(run(kernels[i], library.functions()[i], input(scan->dtype), length),
              run(kernels[i], nullptr, input(scan->dtype), length))
        << scan->combiner << " of " << scan->dtype << ", " << length << " elements: " << scan->axes;
  }
}

/// Lanes along the scan against none: equal where the order of the combiner is free.
TEST(ScanLanes, AsWithoutLanes) {
  for (const Scan& scan : kScans) {
    if (scan.dtype == "f64" && (scan.combiner == "sum" || scan.combiner == "prod")) continue;
    Scan serial = scan;
    serial.axes = " reduce r0 < N\n";
    for (const int64_t length : {1, 5, 8, 19, 100}) {
      const loop::Kernel with = loop::parse_kernel(kernel_text(scan, length, true, ""));
      const loop::Kernel without = loop::parse_kernel(kernel_text(serial, length, true, ""));
      EXPECT_EQ(run(with, nullptr, input(scan.dtype), length),
                run(without, nullptr, input(scan.dtype), length))
          << scan.combiner << " of " << length;
    }
  }
}

TEST(ScanLanes, ErrorOfALongSum) {
  const Scan& scan = kScans[2];
  std::vector<double> from(kRows * kMost);
  for (size_t i = 0; i < from.size(); ++i) from[i] = 1.0 / static_cast<double>(i + 1);
  std::vector<char> bytes(from.size() * sizeof(double));
  std::memcpy(bytes.data(), from.data(), bytes.size());
  const std::vector<char> found =
      run(loop::parse_kernel(kernel_text(scan, kMost, true, "")), nullptr, bytes, kMost);
  double last = 0;
  std::memcpy(&last, &found[(kMost - 1) * sizeof(double)], sizeof last);
  EXPECT_NEAR(last, std::accumulate(from.begin(), from.begin() + kMost, 0.0), 1e-14);
}

TEST(ScanLanes, OfColumns) {
  const Target target = host_target(std::nullopt);
  const Scan columns{"sum", "f64", " axis y0 < 20 vector(8)\n reduce r0 < N\n",
                     "[x0*100 + r0*20 + y0]"};
  std::string text = kernel_text(columns, 5, true, target.features);
  text.erase(text.find(" after"), text.find(" }\n}") - text.find(" after"));  // many ends of a row
  std::vector<loop::Kernel> kernels{loop::parse_kernel(text)};
  ASSERT_EQ(loop::verify(kernels[0]), std::vector<std::string>{});
  const KernelLibrary library(compile_objects(kernels, target, CompileOptions{}));
  EXPECT_EQ(run(kernels[0], library.functions()[0], input("f64"), 5),
            run(kernels[0], nullptr, input("f64"), 5));
}

}  // namespace
}  // namespace tandem::codegen
