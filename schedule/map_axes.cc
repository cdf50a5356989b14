// Mapping: how the axes of a kernel meet the machine. Strategies stand in a table; the first that
// fits maps the kernel, the others say why not. They work on copies, so that one which does not fit
// leaves the kernel as it was.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/pass_runner.h"
#include "schedule/axes.h"
#include "schedule/gpu/map.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Kernel;

constexpr std::array kStrategies = {
    // By rows that stages share, whatever memory says.
    Strategy{"map_chain", map_chain, false},
    // Tasks must own what they store to: before all that asks for speed only.
    Strategy{"map_scatter", map_scatter},
    // A window is a sum of products too, of two factors that share an axis.
    Strategy{"map_window", map_window, true, true},
    // A sum of sums has a stage more than a product.
    Strategy{"map_groups", map_groups, true, true},
    // Of few rows, which would not pay for a product's panels.
    Strategy{"map_dots", map_dots},
    Strategy{"map_product", map_product},
    // Its cases are points, or tiles of them.
    Strategy{"map_cases", map_cases},
    Strategy{"map_tiles", map_tiles},
    Strategy{"map_interleaved", map_interleaved},
    // Its pieces are points.
    Strategy{"map_pieces", map_pieces},
    Strategy{"map_points", map_points},
    Strategy{"map_scans", map_scans},
    Strategy{"map_column_sums", map_column_sums},
    Strategy{"map_columns", map_columns},
    // Fits all that is left.
    Strategy{"map_rows", map_rows},
};

Misfit try_strategy(const Strategy& strategy, Kernel& kernel, const Target& target) {
  if (is_pass_disabled(strategy.name)) return "it is disabled";
  Kernel trial = kernel;
  if (Misfit misfit = strategy.map(trial, target)) return misfit;
  kernel = std::move(trial);
  return nullptr;
}

}  // namespace

std::vector<MapDecision> map_axes(Kernel& kernel, const Target& target) {
  kernel.target = target.features;
  split_by_divisors(kernel);
  std::vector<MapDecision> decisions;
  bool is_ordered = false;
  const std::span<const Strategy> strategies = target.is_gpu() ? gpu::strategies() : kStrategies;
  for (const Strategy& strategy : strategies) {
    if (strategy.in_order && !std::exchange(is_ordered, true)) {
      order_axes(kernel);
      merge_axes(kernel);
    }
    const Misfit misfit = try_strategy(strategy, kernel, target);
    decisions.push_back({strategy.name, misfit == nullptr ? "" : misfit});
    if (misfit == nullptr) break;
  }
  return decisions;
}

namespace {

/// The kernel as it is by that strategy alone, or why it is not.
OrReason<Kernel> alone(const Strategy& strategy, const Kernel& kernel, const Target& target) {
  Kernel trial = kernel;
  trial.target = target.features;
  split_by_divisors(trial);
  if (strategy.in_order) {
    order_axes(trial);
    merge_axes(trial);
  }
  if (Misfit misfit = try_strategy(strategy, trial, target)) return misfit;
  return trial;
}

}  // namespace

std::optional<Kernel> mapped_by(std::string_view strategy, const Kernel& kernel,
                                const Target& target) {
  const OrReason<Kernel> mapped =
      alone(*std::ranges::find(kStrategies, strategy, &Strategy::name), kernel, target);
  return mapped ? std::optional(*mapped) : std::nullopt;
}

std::string misfit_of_footprint(const Kernel& kernel, const Target& target) {
  std::string reasons;
  for (const Strategy& strategy : kStrategies) {
    if (!strategy.takes_footprints) continue;
    const OrReason<Kernel> mapped = alone(strategy, kernel, target);
    if (mapped) return "";
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", strategy.name, mapped.reason());
  }
  return reasons;
}

std::vector<std::string_view> strategy_names() {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : kStrategies) names.push_back(strategy.name);
  return names;
}

}  // namespace tandem::schedule
