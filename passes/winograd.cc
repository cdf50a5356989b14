// Problem: half of a residual network's work is windows of 3x3, and the library takes 9 products
// for each result. Approach: Winograd's transforms (ops/product/winograd.cc) take 4, and move 16
// products' operands and results through memory instead. Whether that is less is compared by the
// target's rates, and each side of an image is even, so that no block hangs over. A transposed
// convolution is such a one with windows turned around:
//   dx[c, p] = sum over o, k of dy[o, p + padding - k] w[o, c, k]
// Transforms of known weights are computed before the first call (setup.cc).
#include <fmt/format.h>

#include <optional>

#include "ir/text.h"
#include "ops/opdef.h"
#include "ops/tensor.h"
#include "passes/known.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ops::ProductKind;
using ops::Tensor;
using sym::Expr;

constexpr int64_t kFactors = 16;  // products, of tiles of 4x4
constexpr int64_t kTaps = 9;
constexpr int64_t kResults = 4;  // of a tile

/// A convolution with the names of its parts.
struct Windows {
  std::string_view image, weight;
  bool is_turned;  // the gradient by the image
};

std::optional<Windows> windows_of(const Node& node) {
  switch (ops::def_of(node).multiplies) {
    case ProductKind::convolution: return Windows{"input", "weight", false};
    case ProductKind::transposed: return Windows{"grad_output", "weight", true};
    default: return std::nullopt;
  }
}

bool is_all(const ir::Call& call, std::string_view name, int64_t number) {
  for (const Expr& size : call.ints(name))
    if (size != Expr(number)) return false;
  return true;
}

/// Beside the image, for the windows as they slide over it; nothing where it is cut off instead.
std::optional<ir::Ints> padding_of(const ir::Call& call, const Windows& windows) {
  ir::Ints padding;
  for (const Expr& size : call.ints("padding")) {
    const std::optional<int64_t> places = size.constant();
    if (!places || *places > 2) return std::nullopt;
    padding.emplace_back(windows.is_turned ? 2 - *places : *places);
  }
  if (padding.size() == 1) padding.push_back(padding[0]);
  return padding;
}

bool fits(const Node& node, const Windows& windows) {
  const ir::Call call = node.call();
  const ir::Type& image = call.type(windows.image);
  const ir::Sizes& weight = call.type(windows.weight).sizes;
  if (node.results.size() != 1 || image.dtype != DType::f32 || image.rank() != 4) return false;
  if (weight.size() != 4 || weight[2] != Expr(3) || weight[3] != Expr(3)) return false;
  if (!is_all(call, "stride", 1) || !is_all(call, "dilation", 1)) return false;
  if (call.integer("groups") != Expr(1) || !padding_of(call, windows)) return false;
  const ir::Sizes& sizes = node.results[0]->type.sizes;
  return sym::known_divisible(sizes[2], 2) && sym::known_divisible(sizes[3], 2);
}

/// Microseconds, by rates that need only tell which of two is less. What is moved is counted once:
/// it goes on beside arithmetic. Of 39 shapes measured, each with known
/// weights and with others (docs/measured.md), none that this took was slower than its windows.
class Estimate {
 public:
  Estimate(const Node& node, const Windows& windows, bool is_known, const Target& target)
      : target_(target), rates_(target.tuning.rates), is_known_(is_known) {
    const ir::Sizes& results = node.results[0]->type.sizes;
    const ir::Sizes& weight = node.call().type(windows.weight).sizes;
    pairs_ = count(weight[0]) * count(weight[1]);
    channels_ = count(weight[0]) + count(weight[1]);
    tiles_ = count(results[0]) * count(results[2]) * count(results[3]) / kResults;
  }

  double windows() const { return flops(kResults * kTaps); }

  double products() const { return flops(kFactors) + moving() + weights() + launches(); }

  /// Rows of the products, which want as many as other ones; and no step takes much more memory.
  bool is_of_middling_size() const {
    return tiles_ >= static_cast<double>(target_.tuning.routes.winograd_tiles) &&
           moved() <= kMostBytes;
  }

 private:
  static constexpr double kFloat = 4;  // bytes
  static constexpr double kMostBytes = 256 << 20;
  static constexpr double kLaunches = 2;  // more than of the windows

  static double count(Expr size) { return static_cast<double>(typical_size(size)); }

  double flops(int64_t of_tile) const {
    const double lanes = static_cast<double>(rates_.lane_flops) * target_.lanes();
    return 2.0 * static_cast<double>(of_tile) * tiles_ * pairs_ / lanes;
  }

  double moved() const { return kFloat * kFactors * tiles_ * channels_; }

  /// What does not stay in the last level by far is written and read.
  double moving() const {
    const bool is_far = moved() > 2 * static_cast<double>(target_.l3_bytes);
    return moved() / rate_of(moved()) * (is_far ? 2 : 1);
  }

  /// Half of the last level: the rest holds what else there is.
  double rate_of(double bytes) const {
    const bool is_near = bytes < static_cast<double>(target_.l3_bytes) / 2;
    return static_cast<double>(is_near ? rates_.l3 : rates_.memory);
  }

  /// More of them are read. Where they are not known they are written first (memory is read to be
  /// written), and copied to panels by each product.
  double weights() const {
    const double more = kFloat * pairs_ * (kFactors - kTaps);
    const double made = kFloat * pairs_ * kFactors;
    return more / static_cast<double>(rates_.memory) + (is_known_ ? 0 : 5 * made / rate_of(made));
  }

  double launches() const { return static_cast<double>(rates_.launch_ns) / 1e3 * kLaunches; }

  const Target& target_;
  const Tuning::Rates& rates_;
  bool is_known_;
  double pairs_ = 0, channels_ = 0, tiles_ = 0;
};

Tensor blocks_of(ir::Builder& builder, const Node& node, const Windows& windows) {
  const ir::Call call = node.call();
  const Tensor image{builder, call.value(windows.image)};
  const Tensor weight{builder, call.value(windows.weight)};
  const Tensor tiles =
      ops::call(builder, "tandem.winograd_tiles", {image, *padding_of(call, windows)});
  const Tensor factors = ops::call(builder, "tandem.winograd_weight", {weight, windows.is_turned});
  const Expr rows = tiles.size(0) * tiles.size(1) * tiles.size(2);
  const Expr results = factors.size(3);
  const Tensor products =
      ops::bmm(ops::permute(ops::reshape(tiles, {rows, kFactors, tiles.size(5)}), {1, 0, 2}),
               ops::reshape(factors, {kFactors, factors.size(2), results}));
  return ops::call(builder, "tandem.winograd_blocks",
                   {ops::reshape(products, {factors.size(0), factors.size(1), tiles.size(0),
                                            tiles.size(1), tiles.size(2), results})});
}

/// [n, h / 2, 2, w / 2, 2, c] as [n, c, h, w].
Tensor image_of(Tensor blocks, const ir::Sizes& sizes) {
  return ops::permute(ops::reshape(blocks, {sizes[0], sizes[2], sizes[3], sizes[1]}), {0, 3, 1, 2});
}

ir::Value* by_products(ir::Graph& graph, Node& node, const Windows& windows) {
  ir::Builder builder(graph, &node);
  builder.stamp() = ir::Builder::stamp_of(node);
  const ir::Call call = node.call();
  Tensor result = image_of(blocks_of(builder, node, windows), node.results[0]->type.sizes);
  if (!windows.is_turned && call.has("bias")) {
    const Tensor bias{builder, call.value("bias")};
    result = result + ops::reshape(bias, {bias.size(0), 1, 1});
  }
  return result.value();
}

}  // namespace

void winograd(ir::Graph& graph, GraphCtx& ctx) {
  const KnownValues known(graph);
  for (Node* node = graph.first(); node != nullptr;) {
    Node* next = node->next;
    const std::optional<Windows> windows = windows_of(*node);
    if (windows && fits(*node, *windows)) {
      const bool is_known = known.has(node->call().value(windows->weight));
      const Estimate estimate(*node, *windows, is_known, ctx.target);
      const double share = estimate.products() / estimate.windows();
      const bool pays =
          estimate.is_of_middling_size() &&
          100 * share <= static_cast<double>(ctx.target.tuning.routes.winograd_percent);
      ctx.notes.push_back(fmt::format("winograd: {} {}, at {:.2f} of the time",
                                      ir::to_string(*node),
                                      pays ? "goes by tiles" : "stays as it is", share));
      if (pays) {
        graph.replace_all_uses(node->results[0], by_products(graph, *node, *windows));
        graph.erase(node);
      }
    }
    node = next;
  }
}

}  // namespace tandem::passes
