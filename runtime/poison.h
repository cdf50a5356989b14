// What AddressSanitizer is told of memory that nobody owns; nothing in other builds.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define TANDEM_POISONS 1
#elif defined(__has_feature)  // Clang
#if __has_feature(address_sanitizer)
#define TANDEM_POISONS 1
#endif
#endif
#if defined(TANDEM_POISONS)
#include <sanitizer/asan_interface.h>
#endif

namespace tandem::runtime {

#if defined(TANDEM_POISONS)
inline void poison(void* start, int64_t bytes) {
  __asan_poison_memory_region(start, static_cast<size_t>(bytes));
}
inline void unpoison(void* start, int64_t bytes) {
  __asan_unpoison_memory_region(start, static_cast<size_t>(bytes));
}
inline constexpr int64_t kGap = 4096;  // between blocks that lie side by side
#else
inline void poison(void*, int64_t) {}
inline void unpoison(void*, int64_t) {}
inline constexpr int64_t kGap = 0;
#endif

}  // namespace tandem::runtime
