// Positions of sliding windows as index expressions and masks. The inverse asks for each kernel
// position whether the stride divides what is left, so a gradient is a gather and needs no atomics.
#include "ops/window.h"

#include <fmt/format.h>

namespace tandem::ops {

using loop::Opcode;
using sym::Expr;

namespace {

/// Sums and products of a few of them stay in 64 bits.
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;

}  // namespace

std::vector<int64_t> spatial_list(const ir::Call& call, std::string_view name, size_t dims,
                                  const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> numbers = call.constants(name);
  if (numbers.empty() && !otherwise.empty()) return otherwise;
  for (int64_t number : numbers)
    if (number > kLargest || number < -kLargest)
      call.fail(fmt::format("{} {} is beyond {}", name, number, kLargest));
  if (numbers.size() == 1) return std::vector<int64_t>(dims, numbers[0]);
  if (numbers.size() != dims)
    call.fail(fmt::format("{} needs 1 or {} numbers, {} are given", name, dims, numbers.size()));
  return numbers;
}

std::vector<int64_t> positive_list(const ir::Call& call, std::string_view name, size_t dims,
                                   const std::vector<int64_t>& otherwise) {
  std::vector<int64_t> numbers = spatial_list(call, name, dims, otherwise);
  for (int64_t number : numbers)
    if (number < 1) call.fail(call.describe(name) + " must be positive");
  return numbers;
}

Expr window_count(const Window& window, bool ceil) {
  Expr span = window.in + 2 * window.padding - (window.kernel - 1) * window.dilation - 1;
  if (!ceil) return sym::floor_div(span, window.stride) + 1;
  return sym::min(sym::ceil_div(span, window.stride) + 1,
                  sym::ceil_div(window.in + window.padding, window.stride));
}

loop::Val all_of(loop::ScalarPool& pool, loop::Val a, loop::Val b) {
  return pool.binary(Opcode::bit_and, a, b);
}

loop::Val in_range(loop::ScalarPool& pool, Expr at, Expr size) {
  loop::Val position = pool.index(at);
  return all_of(pool, pool.binary(Opcode::ge, position, pool.integer(DType::i64, 0)),
                pool.binary(Opcode::lt, position, pool.index(size)));
}

Read read_windows(loop::ScalarPool& pool, const Windows& windows, std::span<const Expr> o,
                  std::span<const Expr> k) {
  Read read{{}, pool.integer(DType::boolean, 1)};
  for (size_t i = 0; i < windows.size(); ++i) {
    read.at.push_back(windows[i].read(o[i], k[i]));
    read.inside = all_of(pool, read.inside, in_range(pool, read.at[i], windows[i].in));
  }
  return read;
}

namespace {

/// Adds the result position that reads `at` by kernel position `k`.
void add_reader(loop::ScalarPool& pool, const Window& window, Expr at, Expr k, Read& read) {
  Expr offset = at + window.padding - window.first - k * window.dilation;
  read.at.push_back(sym::floor_div(offset, window.stride));
  read.inside = all_of(pool, read.inside, in_range(pool, read.at.back(), window.out));
  if (window.stride == 1) return;
  loop::Val rest = pool.index(sym::mod(offset, window.stride));
  read.inside =
      all_of(pool, read.inside, pool.binary(Opcode::eq, rest, pool.integer(DType::i64, 0)));
}
/// Whether the readers of a position are neighbours.
bool reads_densely(const Window& window) { return window.dilation == 1; }

/// Adds the m-th result position from the last that starts at or before `at`.
void add_neighbour(loop::ScalarPool& pool, const Window& window, Expr at, Expr m, Read& read) {
  Expr offset = at + window.padding - window.first;
  Expr position = sym::floor_div(offset, window.stride) - m;
  read.at.push_back(position);
  read.inside = all_of(pool, read.inside, in_range(pool, position, window.out));
  Expr k = offset - position * window.stride;  // of the kernel, which may be shorter
  read.inside =
      all_of(pool, read.inside, pool.binary(Opcode::lt, pool.index(k), pool.index(window.kernel)));
}

}  // namespace

Read windows_over(loop::ScalarPool& pool, const Windows& windows, std::span<const Expr> at,
                  std::span<const Expr> k) {
  Read read{{}, pool.integer(DType::boolean, 1)};
  for (size_t i = 0; i < windows.size(); ++i) add_reader(pool, windows[i], at[i], k[i], read);
  return read;
}

ir::Sizes covering_counts(const Windows& windows) {
  ir::Sizes counts;
  for (const Window& window : windows)
    counts.push_back(reads_densely(window) ? sym::ceil_div(window.kernel, window.stride)
                                           : window.kernel);
  return counts;
}

Read windows_covering(loop::ScalarPool& pool, const Windows& windows, std::span<const Expr> at,
                      std::span<const Expr> m) {
  Read read{{}, pool.integer(DType::boolean, 1)};
  for (size_t i = 0; i < windows.size(); ++i)
    (reads_densely(windows[i]) ? add_neighbour : add_reader)(pool, windows[i], at[i], m[i], read);
  return read;
}

}  // namespace tandem::ops
