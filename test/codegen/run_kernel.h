// Kernels of known sizes, run as compiled code and by the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "codegen/codegen.h"
#include "loop/kernel.h"

namespace tandem::codegen {

/// The interpreter has scratch of its own, but takes a pointer for each buffer.
inline void run_interpreted(const loop::Kernel& kernel, std::span<void* const> given) {
  std::vector<void*> buffers(given.begin(), given.end());
  buffers.resize(std::max(buffers.size(), kernel.buffers.size()));
  EXPECT_EQ(loop::interpret(kernel, buffers.data(), nullptr, 0, *kernel.tasks().constant()), 0);
}

inline void run_compiled(const loop::Kernel& kernel, const Target& target, void* const* buffers) {
  const KernelLibrary library(compile_objects(std::vector{kernel}, target, CompileOptions()));
  int64_t scratch = 64;
  for (const loop::Buffer& buffer : kernel.buffers)
    if (buffer.access == loop::Access::scratch)
      scratch += (*buffer.elements.constant() * size_of(buffer.dtype) + 63) / 64 * 64;
  // What was in scratch before are no numbers: lanes that nobody wants must not matter.
  std::vector<uint8_t> memory(static_cast<size_t>(scratch + 64), 0xff);
  void* aligned = memory.data();
  size_t space = memory.size();
  aligned = std::align(64, static_cast<size_t>(scratch), aligned, space);
  EXPECT_EQ(library.functions()[0](buffers, nullptr, 0, *kernel.tasks().constant(), aligned), 0);
}

}  // namespace tandem::codegen
