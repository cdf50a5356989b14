// Memory that may not be left: a read beside it ends the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

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

}  // namespace tandem::codegen
