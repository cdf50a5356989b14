// Problem: the scores of attention, n x n for each head, are far larger than the queries and keys
// that they are the product of, and so is everything up to the weights; kept for backward they are
// most of a model's memory at long lengths. Approach: such values are made again. A row's maximum
// and sum are kept, and backward has the weights from one narrow product, inside of the kernel that
// reads them (schedule/compute_at_rows.cc): 2 d operations an element instead of writing and
// reading it.
#include <algorithm>

#include "ops/opdef.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

// Its limits are those by which schedule/compute_at_rows.cc joins (Tuning::Chains): what is made
// again outside of that kernel costs more than keeping it.

bool is_product(const Node& node) {
  const std::vector<ops::Route>& fast = ops::def_of(node).fast;
  return std::any_of(fast.begin(), fast.end(),
                     [](const ops::Route& route) { return route.kind == ops::RouteKind::matmul; });
}

bool is_large(const Value& value, const Tuning::Chains& limits) {
  const ir::Sizes& sizes = value.type.sizes;
  if (!value.type.is_tensor() || sizes.size() < 3) return false;
  const std::optional<int64_t> bytes = known_bytes(&value);
  if (!bytes) return false;
  const int64_t all = *bytes / static_cast<int64_t>(size_of(value.type.dtype)) * 4;
  const int64_t matrix = *sizes.back().constant() * *sizes[sizes.size() - 2].constant() * 4;
  return matrix >= limits.large_matrix && all >= limits.few_tasks * matrix;
}

/// Random numbers that depend on nothing but their place and the seed of the call.
bool is_numbered(const Node& node) {
  return ops::def_of(node).random && is_source(node) && node.op->schema.find("seed") >= 0;
}

/// Of a batch of products of narrow matrices.
bool is_wide_product(const Node& node, const Tuning::Chains& limits) {
  const Value& result = *node.results[0];
  if (!is_product(node) || result.type.dtype != DType::f32) return false;
  int64_t read = 0;
  int64_t longest = 0;
  bool is_known = true;
  ir::for_each_operand(node.args, [&](const Value* factor) {
    const std::optional<int64_t> bytes = known_bytes(factor);
    is_known &= bytes.has_value() && factor->type.dtype == DType::f32;
    read += bytes.value_or(0);
    if (longest == 0) longest = factor->type.sizes.back().constant().value_or(INT64_MAX);
  });
  return is_known && longest <= limits.narrow_factor &&
         limits.wider * read <= known_bytes(&result).value_or(0);
}

/// From the factors down: what is wide, or random numbers that may go into it.
class WideNodes {
 public:
  explicit WideNodes(const Tuning::Chains& limits) : limits_(limits) {}

  DenseMap<Node, char> found(const ir::Graph& graph) {
    for (const Node* node = graph.first(); node != nullptr; node = node->next)
      if (may_be_wide(*node)) sort(*node);
    for (const Node* node = graph.last(); node != nullptr; node = node->prev)
      if (numbers_.at(node) != 0 && has_wide_reader(*node)) wide_[node] = 1;
    return std::move(wide_);
  }

 private:
  bool may_be_wide(const Node& node) const {
    return node.results.size() == 1 && !ops::def_of(node).can_fail && !node.op->mutates() &&
           node.policy == ir::RecomputePolicy::none && is_large(*node.results[0], limits_);
  }

  void sort(const Node& node) {
    if (!ops::def_of(node).pointwise && !node.op->is_view()) {
      wide_[&node] = is_wide_product(node, limits_);
      numbers_[&node] = is_numbered(node);
      return;
    }
    const int64_t bytes = known_bytes(node.results[0]).value_or(0);
    bool reads_wide = false;
    bool reads_numbers = false;
    bool others_are_small = true;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      const bool is_wide = operand->node != nullptr && wide_.at(operand->node) != 0;
      const bool is_number = operand->node != nullptr && numbers_.at(operand->node) != 0;
      const std::optional<int64_t> read = known_bytes(operand);
      reads_wide |= is_wide;
      reads_numbers |= is_number;
      others_are_small &= is_wide || is_number || (read && limits_.wider * *read <= bytes);
    });
    wide_[&node] = reads_wide && others_are_small;
    numbers_[&node] = reads_numbers && !reads_wide && others_are_small;
  }

  bool has_wide_reader(const Node& node) const {
    const std::vector<ir::Use>& uses = node.results[0]->uses;
    return std::any_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
      return use.node != nullptr && wide_.at(use.node) != 0;
    });
  }

  const Tuning::Chains& limits_;
  DenseMap<Node, char> wide_;
  DenseMap<Node, char> numbers_;  // only they and what is small
};

}  // namespace

DenseMap<Node, char> wide_nodes(const ir::Graph& graph, const Tuning::Chains& limits) {
  return WideNodes(limits).found(graph);
}

}  // namespace tandem::passes
