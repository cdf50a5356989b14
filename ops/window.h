// Windows that slide over the trailing (spatial) dimensions: what convolutions and pools share.
#pragma once

#include "ops/elements.h"

namespace tandem::ops {

/// One spatial dimension: result position o reads o * stride - padding + first + k * dilation for k
/// in [0, kernel).
struct Window {
  sym::Expr kernel = 1;
  int64_t stride = 1, padding = 0, dilation = 1;
  sym::Expr in = 1, out = 1;
  sym::Expr first = 0;  // of the window, how far behind its start: what is before touches nothing

  sym::Expr start(sym::Expr o) const { return o * stride - padding + first; }
  sym::Expr read(sym::Expr o, sym::Expr k) const { return start(o) + k * dilation; }
};
using Windows = std::vector<Window>;

/// A list argument with one number a spatial dimension; a single number stands for all, none for
/// `otherwise`.
std::vector<int64_t> spatial_list(const ir::Call& call, std::string_view name, size_t dims,
                                  const std::vector<int64_t>& otherwise = {});

/// The same, and every number must be positive: kernel sizes, strides, dilations.
std::vector<int64_t> positive_list(const ir::Call& call, std::string_view name, size_t dims,
                                   const std::vector<int64_t>& otherwise = {});

/// Number of positions of a window; with `ceil` the last one may hang over, but must start inside.
sym::Expr window_count(const Window& window, bool ceil = false);

/// 0 <= at < size
loop::Val in_range(loop::ScalarPool& pool, sym::Expr at, sym::Expr size);
loop::Val all_of(loop::ScalarPool& pool, loop::Val a, loop::Val b);

/// What result positions `o` read at kernel positions `k` (both start at `first` of their indices).
struct Read {
  Index at;
  loop::Val inside;
};
Read read_windows(loop::ScalarPool& pool, const Windows& windows, std::span<const sym::Expr> o,
                  std::span<const sym::Expr> k);
/// The inverse: result positions that read `at` by kernel position `k`, where there are any.
Read windows_over(loop::ScalarPool& pool, const Windows& windows, std::span<const sym::Expr> at,
                  std::span<const sym::Expr> k);
/// The same by number: at most `covering_counts` result positions read `at`; `m` numbers them.
/// Where windows do not overlap that is one, whatever their size.
ir::Sizes covering_counts(const Windows& windows);
Read windows_covering(loop::ScalarPool& pool, const Windows& windows, std::span<const sym::Expr> at,
                      std::span<const sym::Expr> m);

}  // namespace tandem::ops
