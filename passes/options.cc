// Options of passes as people write them, in golden files and in the calls of a binding.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "passes/passes.h"

namespace tandem::passes {

Gradients gradients_named(std::string_view name) {
  if (name.empty()) return Gradients::none;
  if (name == "tangents") return Gradients::tangents;
  if (name == "ones") return Gradients::ones;
  if (name == "forward") return Gradients::forward;
  throw UserError(fmt::format("gradients start from 'tangents' or 'ones', not from '{}'", name));
}

namespace {

std::optional<double> fraction_of(std::string_view text) {
  double number = 0;
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number >= 0 && number <= 1 ? std::optional(number) : std::nullopt;
}

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array kUnits{Unit{"KiB", 1 << 10},
                            Unit{"MiB", 1 << 20},
                            Unit{"GiB", 1 << 30},
                            Unit{"KB", 1000},
                            Unit{"MB", 1000 * 1000},
                            Unit{"GB", 1000 * 1000 * 1000},
                            Unit{"B", 1}};  // last: the others end in it

/// "512MiB".
std::optional<int64_t> bytes_of(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    double number = 0;
    const std::from_chars_result read =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
    const double bytes = number * static_cast<double>(unit.bytes);
    return bytes >= 0 && bytes < 0x1p60 ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Partition partition_named(std::string_view name) {
  if (name == "as_read") return Partition::standard;
  if (name == "default") return Partition::priced;
  if (name == "min_cut") return Partition::min_cut;
  if (name == "min_memory" || name == "min_time" || fraction_of(name) || bytes_of(name))
    return Partition::budget;
  throw UserError(fmt::format(
      "a memory budget is 'default', 'min_cut', 'as_read', 'min_memory', 'min_time', a number "
      "from 0 to 1 or bytes ('512MiB'), not '{}'",
      name));
}

std::string_view name_of(Partition partition) {
  switch (partition) {
    case Partition::none: return "none";
    case Partition::standard: return "as_read";
    case Partition::priced: return "default";
    case Partition::min_cut: return "min_cut";
    case Partition::caller: return "caller";
    case Partition::budget: break;
  }
  return "budget";
}

namespace {

constexpr std::array<std::string_view, 3> kCosts{"time", "flops", "measured"};

Budget::Cost cost_named(std::string_view name) {
  const auto* found = std::ranges::find(kCosts, name);
  if (found == kCosts.end())
    throw UserError(fmt::format(
        "the cost of computing again is 'time', 'flops' or 'measured', not '{}'", name));
  return static_cast<Budget::Cost>(found - kCosts.begin());
}

}  // namespace

Budget budget_named(std::string_view text, std::string_view solver, std::string_view cost) {
  Budget budget;
  budget.solver = knapsack_solver_named(solver);
  budget.cost = cost_named(cost);
  if (partition_named(text) != Partition::budget) return budget;
  if (text == "min_memory") {
    budget.kind = Budget::Kind::min_memory;
  } else if (text == "min_time") {
    budget.kind = Budget::Kind::min_time;
  } else if (const std::optional<double> fraction = fraction_of(text)) {
    budget.fraction = *fraction;
  } else {
    budget.kind = Budget::Kind::bytes;
    budget.bytes = bytes_of(text).value();
  }
  return budget;
}

namespace {

struct Knob {
  std::string_view name;
  bool CutKnobs::* value;
};

constexpr std::array<Knob, 8> kKnobs = {
    {{"ban_recompute_used_far_apart", &CutKnobs::ban_recompute_used_far_apart},
     {"ban_recompute_long_fusible_chains", &CutKnobs::ban_recompute_long_fusible_chains},
     {"ban_recompute_materialized_backward", &CutKnobs::ban_recompute_materialized_backward},
     {"ban_recompute_not_in_allowlist", &CutKnobs::ban_recompute_not_in_allowlist},
     {"ban_recompute_reductions", &CutKnobs::ban_recompute_reductions},
     {"aggressive_recomputation", &CutKnobs::aggressive_recomputation},
     {"treat_parameters_as_free_to_save", &CutKnobs::treat_parameters_as_free_to_save},
     {"recompute_views", &CutKnobs::recompute_views}}};

void set_knob(CutKnobs& knobs, std::string_view word) {
  const size_t equals = word.find('=');
  const auto* knob = std::ranges::find(kKnobs, word.substr(0, equals), &Knob::name);
  const std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
  if (knob != kKnobs.end() && (value == "true" || value == "false")) {
    knobs.*knob->value = value == "true";
    return;
  }
  std::string known;
  for (const Knob& each : kKnobs) known += fmt::format(" {}", each.name);
  throw UserError(fmt::format(
      "a knob of min_cut is NAME=true or NAME=false, not '{}'; there are:{}", word, known));
}

/// Those that are not as they are by default.
std::string text_of(const CutKnobs& knobs) {
  std::string text;
  for (const Knob& each : kKnobs)
    if (knobs.*each.value != CutKnobs().*each.value)
      text += fmt::format(" {}={}", each.name, knobs.*each.value);
  return text;
}

}  // namespace

CutKnobs knobs_named(const std::vector<std::string>& words) {
  CutKnobs knobs;
  for (const std::string& word : words) set_knob(knobs, word);
  return knobs;
}

std::string to_string(const Budget& budget) {
  constexpr std::array kSolvers{"dp", "greedy", "exact"};
  const std::string how =
      fmt::format("{} {}{}", kSolvers.at(static_cast<size_t>(budget.solver)),
                  kCosts.at(static_cast<size_t>(budget.cost)), text_of(budget.knobs));
  switch (budget.kind) {
    case Budget::Kind::min_memory: return "min_memory " + how;
    case Budget::Kind::min_time: return "min_time " + how;
    case Budget::Kind::bytes: return fmt::format("{} bytes {}", budget.bytes, how);
    case Budget::Kind::fraction: break;
  }
  return fmt::format("{} {}", budget.fraction, how);
}

}  // namespace tandem::passes
