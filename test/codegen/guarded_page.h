// Memory that may not be left: a read beside it ends the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "test/codegen/run_kernel.h"

namespace tandem::codegen {

/// A page between two that may not be touched.
class Page {
 public:
  Page()
      : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        base_(static_cast<std::byte*>(
            mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_EQ(mprotect(begin(), size_, PROT_READ | PROT_WRITE), 0);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() { munmap(base_, 3 * size_); }
  std::byte* begin() const { return base_ + size_; }
  std::byte* end() const { return begin() + size_; }

 private:
  size_t size_;
  std::byte* base_;
};

/// A kernel from so many bytes to as many gives the interpreter's, with what it reads at both ends
/// of a page.
inline void check_between_pages(const loop::Kernel& kernel, abi::KernelFunction function,
                                size_t bytes) {
  const Page page;
  for (std::byte* const from : {page.begin(), page.end() - bytes}) {
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(i * 37 % 101);
    std::vector<std::byte> compiled(bytes), interpreted(bytes);
    std::vector<void*> buffers{from, interpreted.data()};
    run_interpreted(kernel, buffers);
    buffers[1] = compiled.data();
    EXPECT_EQ(function(buffers.data(), nullptr, 0, *kernel.tasks().constant(), nullptr), 0);
    EXPECT_EQ(compiled, interpreted) << kernel.name;
  }
}

}  // namespace tandem::codegen
