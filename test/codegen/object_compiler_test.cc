// What compiles a kernel is used again: the bytes must not tell what was compiled before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "codegen/codegen.h"

namespace tandem::codegen {
namespace {

loop::Kernel kernel_of(const std::string& name, const std::string& op, const std::string& axes) {
  return loop::parse_kernel(fmt::format(
      R"(kernel "{}" {{
  buffer b0: f32 read
  buffer b1: f32 write
  stage {{
    axis y0 < {}
    %0: f32 = load b0[y0]
    %1: f32 = {} %0
    b1[y0] = %1
  }}
}})",
      name, axes, op));
}

std::vector<loop::Kernel> kernels() {
  return {kernel_of("exps", "exp", "1003"), kernel_of("sins", "sin", "1003 vector(8)"),
          kernel_of("roots", "sqrt", "64 vector(8)"), kernel_of("tanhs", "tanh", "10000")};
}

std::string code_of(const loop::Kernel& kernel, const Target& target, int level = 2) {
  CompileOptions options;
  options.level = level;
  return compile_objects({kernel}, target, options)[0].bytes;
}

TEST(ObjectCompiler, WhatWasCompiledBeforeLeavesNoTrace) {
  const Target target = host_target("avx2");
  std::vector<std::string> first;
  for (const loop::Kernel& kernel : kernels()) first.push_back(code_of(kernel, target));
  const std::vector<loop::Kernel> again = kernels();
  for (size_t round = 0; round < 3; ++round)
    for (size_t i = again.size(); i-- > 0;)
      EXPECT_EQ(code_of(again[i], target), first[i]) << again[i].name;
}

TEST(ObjectCompiler, OthersAreForOtherTargetsAndLevels) {
  const loop::Kernel kernel = kernels()[0];
  const Target target = host_target("avx2");
  Target other = cpu_target("znver4", std::nullopt);
  const std::string code = code_of(kernel, target), plain = code_of(kernel, target, 0);
  EXPECT_NE(code, plain);
  const std::string wide = code_of(kernel, other);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(code_of(kernel, target), code);
    EXPECT_EQ(code_of(kernel, target, 0), plain);
    EXPECT_EQ(code_of(kernel, other), wide);
  }
}

TEST(ObjectCompiler, ThreadsCompileAtOnce) {
  const Target target = host_target("avx2");
  const std::vector<loop::Kernel> all = kernels();
  std::vector<std::string> wanted;
  for (const loop::Kernel& kernel : all) wanted.push_back(code_of(kernel, target));
  std::vector<std::thread> team;
  std::vector<std::vector<std::string>> found(6);
  for (size_t i = 0; i < found.size(); ++i)
    team.emplace_back([&, i] {
      for (const loop::Kernel& kernel : kernels()) found[i].push_back(code_of(kernel, target));
    });
  for (std::thread& thread : team) thread.join();
  for (const std::vector<std::string>& each : found) EXPECT_EQ(each, wanted);
}

}  // namespace
}  // namespace tandem::codegen
