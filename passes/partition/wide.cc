// Problem: the scores of attention, n x n for each head, are far larger than the queries and keys
// that they are the product of, and so is everything up to the weights; kept for backward they are
// most of a model's memory at long lengths. Approach: such values are made again. A row's maximum
// and sum are kept, and backward has the weights from one narrow product, inside of the kernel that
// reads them (schedule/chain.cc): 2 d operations an element instead of writing and reading it.
#include <algorithm>

#include "ops/opdef.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

constexpr int64_t kLargeMatrix = 1
                                 << 20;  // bytes for each of a batch; a smaller one stays in cache
constexpr int64_t kFewestMatrices = 4;   // of a batch: as many tasks has the kernel
constexpr int64_t kWider = 4;            // than what it is made from
constexpr int64_t kLongestSum = 128;

bool is_product(const Node& node) {
  const std::vector<ops::Route>& fast = ops::def_of(node).fast;
  return std::any_of(fast.begin(), fast.end(),
                     [](const ops::Route& route) { return route.kind == ops::RouteKind::matmul; });
}

std::optional<int64_t> known_bytes(const Value& value) { return bytes_of(&value).constant(); }

bool is_large(const Value& value) {
  const ir::Sizes& sizes = value.type.sizes;
  if (!value.type.is_tensor() || sizes.size() < 3) return false;
  const std::optional<int64_t> all = (value.type.numel() * 4).constant();
  const std::optional<int64_t> matrix = (sizes.back() * sizes[sizes.size() - 2] * 4).constant();
  return all && matrix && *matrix >= kLargeMatrix && *all >= kFewestMatrices * *matrix;
}

/// Random numbers that depend on nothing but their place and the seed of the call.
bool is_numbered(const Node& node) {
  return ops::def_of(node).random && is_source(node) && node.op->schema.find("seed") >= 0;
}

/// Of a batch of products of narrow matrices.
bool is_wide_product(const Node& node) {
  const Value& result = *node.results[0];
  if (!is_product(node) || result.type.dtype != DType::f32) return false;
  int64_t read = 0;
  int64_t longest = 0;
  bool is_known = true;
  ir::for_each_operand(node.args, [&](const Value* factor) {
    const std::optional<int64_t> bytes = known_bytes(*factor);
    is_known &= bytes.has_value() && factor->type.dtype == DType::f32;
    read += bytes.value_or(0);
    if (longest == 0) longest = factor->type.sizes.back().constant().value_or(INT64_MAX);
  });
  return is_known && longest <= kLongestSum && kWider * read <= known_bytes(result).value_or(0);
}

}  // namespace

DenseMap<Node, char> wide_nodes(const ir::Graph& graph) {
  DenseMap<Node, char> wide;
  const auto is_wide_map = [&](const Node& node) {
    const int64_t bytes = known_bytes(*node.results[0]).value_or(0);
    bool reads_wide = false;
    bool others_are_small = true;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      const bool is_wide = operand->node != nullptr && wide.at(operand->node) != 0;
      const std::optional<int64_t> read = known_bytes(*operand);
      reads_wide |= is_wide;
      others_are_small &= is_wide || (read && kWider * *read <= bytes);
    });
    return reads_wide && others_are_small;
  };
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    const ops::OpDef& def = ops::def_of(*node);
    if (node->results.size() != 1 || def.can_fail || node->op->mutates() ||
        node->policy != ir::RecomputePolicy::none || !is_large(*node->results[0]))
      continue;
    const bool is_map = def.pointwise || node->op->is_view();
    wide[node] = is_map ? is_wide_map(*node) : is_wide_product(*node) || is_numbered(*node);
  }
  return wide;
}

}  // namespace tandem::passes
