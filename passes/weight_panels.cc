// The emitted product of a weight copies its columns into panels at each call: as many floats as
// the weight has, for as many operations as there are rows. Approach: a weight that is known before
// the first call is laid out in panels then (setup.cc runs it once), and the product reads a view
// of them,
//   panels[j / width, k, j % width] = b[k, j]      (of each matrix of a batch)
// that loops take as it lies. A last panel is filled up with zeros, which no column of the view
// shows. Tile registers take two terms of bf16 at once, which lie side by side:
//   panels[j / width, k / 2, j % width, k % 2] = b[k, j],
// of whole panels only. Products that the library computes are left to it: it packs weights in its
// own way.
#include <fmt/format.h>

#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/product/emitted.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ops::Tensor;
using sym::Expr;

/// Two registers of lanes of f32: what a register tile of an emitted product is wide, or two tile
/// registers.
int64_t panel_width(const Target& target) { return 2 * target.vector_bytes / size_of(DType::f32); }

bool goes_by_loops(const ir::Type& left, const ir::Type& right, const Target& target) {
  const Expr rows = left.sizes[left.sizes.size() - 2];
  const Expr terms = right.sizes[right.sizes.size() - 2];
  if (right.dtype == DType::f32) return ops::is_as_fast_emitted(rows, terms, target.tuning.routes);
  return right.dtype == DType::bf16 && ops::is_summed_in_packs(rows, terms, target) &&
         sym::known_divisible(right.sizes.back(), panel_width(target)) && right.rank() == 2;
}

bool takes_panels(const Node& node, const KnownValues& known, const Target& target) {
  if (ops::def_of(node).multiplies != ops::ProductKind::matrix) return false;
  const ops::ProductFactors names = ops::factors_of(*node.op);
  const ir::Call call = node.call();
  const ir::Type& left = call.type(names.left);
  const ir::Type& right = call.type(names.right);
  if (right.rank() < 2 || !known.has(call.value(names.right))) return false;
  const std::optional<int64_t> columns = right.sizes.back().constant();
  return columns && *columns > panel_width(target) && goes_by_loops(left, right, target);
}

Tensor in_packed_panels(Tensor b, int64_t width) {
  const Expr terms = b.size(0);
  const Expr columns = b.size(1);
  b = ops::reshape(b, {sym::floor_div(terms, 2), 2, sym::floor_div(columns, width), width});
  b = ops::permute(b, {2, 0, 3, 1});
  b = ops::permute(ops::call(b.builder(), "aten.clone", {b}), {1, 3, 0, 2});
  return ops::reshape(b, {terms, columns});
}

/// Of each matrix of a batch.
Tensor in_panels(Tensor b, int64_t width) {
  if (b.type().dtype == DType::bf16) return in_packed_panels(b, width);
  const Expr columns = b.size(-1);
  const Expr count = sym::ceil_div(columns, width);
  if (count * width != columns)
    b = ops::call(b.builder(), "aten.constant_pad_nd",
                  {b, ir::Ints{0, count * width - columns}, 0});
  const ir::Sizes padded = b.sizes();
  ir::Sizes apart = padded;
  apart.back() = count;
  apart.push_back(width);
  b = ops::transpose(ops::reshape(b, apart), -3, -2);
  b = ops::transpose(ops::call(b.builder(), "aten.clone", {b}), -3, -2);
  b = ops::reshape(b, padded);
  if (count * width == columns) return b;
  return ops::call(b.builder(), "aten.slice.Tensor", {b, b.rank() - 1, 0, columns});
}

}  // namespace

void weight_panels(ir::Graph& graph, GraphCtx& ctx) {
  const KnownValues known(graph);
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    if (takes_panels(*node, known, ctx.target)) {
      ir::Builder builder(graph, node);
      builder.stamp() = ir::Builder::stamp_of(*node);
      const std::string_view right = ops::factors_of(*node->op).right;
      const size_t place = static_cast<size_t>(node->op->schema.find(right));
      std::vector<ir::Arg> args = node->args;
      args[place] =
          in_panels({builder, node->call().value(right)}, panel_width(ctx.target)).value();
      const Node* made = builder.call(*node->op, std::move(args));
      graph.replace_all_uses(node->results[0], made->results[0]);
      ctx.notes.push_back(
          fmt::format("weight_panels: {} reads its weight in panels", ir::to_string(*node)));
      graph.erase(node);
    }
    node = next;
  }
}

}  // namespace tandem::passes
