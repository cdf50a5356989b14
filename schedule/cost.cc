// Problem: each way to fuse had limits of its own, and none could say what it gained. Approach: a
// candidate and what it replaces are counted alike (bytes by level of memory, operations, launches,
// idle cores) and compared in microseconds. The rates are few and rough; what they must get right
// is which of two is less, so work that both do alike need not be exact.
#include "schedule/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::schedule {
namespace {

double work(const Cost& cost, const Target& target) {
  const Tuning::Rates& rates = target.tuning.rates;
  const double lanes = target.lanes();
  return cost.memory / static_cast<double>(rates.memory) + cost.l3 / static_cast<double>(rates.l3) +
         cost.l2 / static_cast<double>(rates.l2) +
         cost.flops / (static_cast<double>(rates.lane_flops) * lanes);
}

/// Half: the rest holds what is not asked about, and other processes'.
double usable_l3(const Target& target) { return static_cast<double>(target.l3_bytes) / 2; }

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  memory += other.memory;
  l3 += other.l3;
  l2 += other.l2;
  flops += other.flops;
  launches += other.launches;
  slack += other.slack;
  return *this;
}

double microseconds(const Cost& cost, const Target& target) {
  const double launch = static_cast<double>(target.tuning.rates.launch_ns) / 1e3;
  return work(cost, target) / target.cores + cost.launches * launch + cost.slack;
}

std::string to_string(const Cost& cost, const Target& target) {
  std::string text = fmt::format("{:.1f} us:", microseconds(cost, target));
  const auto part = [&](double amount, std::string_view form) {
    if (amount != 0) text += fmt::format(fmt::runtime(form), amount);
  };
  part(cost.memory / 1e6, " memory {:.3f} MB,");
  part(cost.l3 / 1e6, " l3 {:.3f} MB,");
  part(cost.l2 / 1e6, " l2 {:.3f} MB,");
  part(cost.flops / 1e6, " {:.2f} MFLOP,");
  part(cost.slack, " {:.1f} us idle,");
  return text + fmt::format(" {:.0f} launches", cost.launches);
}

void count_shared(Cost& cost, const Target& target, double data, double bytes) {
  // Which core wrote it is chance, and what another one wrote comes from the level that they share.
  const bool is_near = data <= static_cast<double>(target.l2_bytes);
  const double own = is_near ? bytes / target.cores : 0;
  cost.l2 += own;
  (data <= usable_l3(target) ? cost.l3 : cost.memory) += bytes - own;
}

void count_scratch(Cost& cost, const Target& target, double data, double bytes) {
  if (data <= static_cast<double>(target.l2_bytes))
    cost.l2 += bytes;
  else if (data <= usable_l3(target) / target.cores)
    cost.l3 += bytes;
  else
    cost.memory += bytes;
}

void count_slack(Cost& cost, const Target& target, double tasks) {
  const double busy = std::max(1.0, tasks);
  // The last round of tasks leaves cores without one.
  const double rounds = std::ceil(busy / target.cores);
  cost.slack += std::max(0.0, work(cost, target) * (rounds / busy - 1.0 / target.cores));
}

double count_of(sym::Expr expr, const Target& target) {
  const auto middling = [&](const sym::Node* symbol) -> std::optional<int64_t> {
    return std::clamp(target.tuning.rates.unknown_size, symbol->range.lo, symbol->range.hi);
  };
  return std::max(0.0, static_cast<double>(sym::evaluate(expr, middling).value_or(1)));
}

double bytes_of(const ir::Value& value, const Target& target) {
  double bytes = size_of(value.type.dtype);
  for (sym::Expr size : value.type.sizes) bytes *= count_of(size, target);
  return bytes;
}

}  // namespace tandem::schedule
