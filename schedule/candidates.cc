// Problem: the model's choice of a mapping is right for the machine it was measured on, mostly.
// Approach: where somebody can time them, the few mappings that are likely to matter are made: the
// same strategy with other block sizes, and other strategies. Numbers of elements are known there,
// so what is timed is what runs.
#include <array>
#include <set>

#include "schedule/check_kernel.h"
#include "schedule/map.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using loop::Kernel;

/// A change of the target's numbers that may suit a kernel better.
struct Variant {
  std::string_view name;
  void (*change)(Target&);
};

constexpr std::array kVariants = {
    Variant{"smaller blocks",
            [](Target& target) {
              target.tuning.points.block /= 4;
              target.tuning.columns.block /= 4;
              target.tuning.products.most_rows /= 4;
              target.tuning.chains.most_rows /= 2;
            }},
    Variant{"larger blocks",
            [](Target& target) {
              target.tuning.points.block *= 4;
              target.tuning.columns.block *= 2;
              target.tuning.products.most_rows *= 2;
              target.tuning.chains.most_rows *= 2;
            }},
    Variant{"half of the cache", [](Target& target) { target.l2_bytes /= 2; }},
    Variant{"twice the cache", [](Target& target) { target.l2_bytes *= 2; }},
};

std::string text_of(const Kernel& kernel) {
  Kernel whole = kernel;
  whole.sizes = size_symbols(kernel);
  return loop::identity_text(whole);
}

/// Mappings without those that are another one again.
class Distinct {
 public:
  void add(std::string name, Kernel kernel) {
    if (known_.insert(text_of(kernel)).second)
      found_.push_back({std::move(name), std::move(kernel)});
  }
  std::vector<Mapping> take() { return std::move(found_); }

 private:
  std::set<std::string> known_;
  std::vector<Mapping> found_;
};

/// Elements that a buffer holds, from its first to its last; nothing where nobody knows.
std::optional<int64_t> extent_of(const ir::Sizes& sizes, const ir::Sizes& strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::optional<int64_t> size = sizes[i].constant();
    const std::optional<int64_t> stride = strides[i].constant();
    if (!size || !stride) return std::nullopt;
    if (*size == 0) return 0;
    last += (*size - 1) * *stride;
  }
  return last + 1;
}

std::optional<std::vector<int64_t>> elements_of(const KernelGraph& graph, const Group& group) {
  std::vector<int64_t> elements;
  for (size_t i = 0; i < group.buffer_values.size(); ++i) {
    if (group.kernel.buffers[i].access == loop::Access::scratch) continue;
    const ir::Value* value = group.buffer_values[i];
    const Home& home = group.buffer_homes[i];
    const std::optional<int64_t> count =
        value != nullptr
            ? extent_of(value->type.sizes, graph.strides_of(value))
            : extent_of(home.item->slots[home.slot].sizes, home.item->slots[home.slot].strides);
    if (!count) return std::nullopt;
    elements.push_back(*count);
  }
  return elements;
}

}  // namespace

std::vector<Mapping> mappings_of(const Kernel& kernel, const Target& target) {
  Distinct found;
  Kernel own = kernel;
  const std::string strategy(map_axes(own, target).back().strategy);
  found.add(strategy, std::move(own));
  for (const Variant& variant : kVariants) {
    Target changed = target;
    variant.change(changed);
    Kernel other = kernel;
    map_axes(other, changed);
    found.add(strategy + " with " + std::string(variant.name), std::move(other));
  }
  for (std::string_view name : strategy_names())
    if (std::optional<Kernel> other = mapped_by(name, kernel, target))
      found.add(std::string(name), std::move(*other));
  return found.take();
}

bool choose_mapping(KernelGraph& graph, Group& group) {
  const std::optional<std::vector<int64_t>> elements = elements_of(graph, group);
  if (!elements || !size_symbols(group.kernel).empty()) return false;
  std::vector<Mapping> mappings = mappings_of(group.kernel, graph.target);
  if (mappings.size() < 2) return false;
  std::vector<Candidate> candidates;
  for (const Mapping& mapping : mappings) {
    Group marked = group;
    marked.kernel = mapping.kernel;
    mark_loops(marked.kernel, graph.target);
    mark_memory(graph, marked);
    candidates.push_back({mapping.name, loop::canonical(marked.kernel)});
  }
  const size_t best = graph.choose(candidates, *elements);
  if (best != 0)
    graph.note(*group.first().node,
               "timed: " + mappings[best].name + " instead of " + mappings[0].name);
  group.kernel = std::move(mappings[best].kernel);
  return true;
}

}  // namespace tandem::schedule
