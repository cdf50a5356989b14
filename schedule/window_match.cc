// Nothing is asked of ops: that sliding the window is moving the point is read off the addresses,
// and what a task takes follows from caches and from how many tasks there are.
#include "schedule/window_match.h"

#include <algorithm>
#include <array>

#include "schedule/axes.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Stride 1 wherever it loads along the axis; and nothing that can fail, because between windows
/// that step over places all places are computed.
bool loads_along(Val value, Expr axis) {
  for (Val part : loop::reachable(std::array{value})) {
    if (part->opcode == loop::Opcode::check) return false;
    if (part->opcode != loop::Opcode::load || !sym::depends_on(part->index, axis)) continue;
    std::optional<sym::Affine> affine = sym::affine_in(part->index, axis);
    if (!affine || affine->coefficient != Expr(1)) return false;
  }
  return true;
}

class WindowFinder {
 public:
  WindowFinder(Kernel& kernel, const Target& target, WindowSums& sums)
      : kernel_(kernel), pool_(*kernel.scalars), target_(target), sums_(sums) {
    sums_.windowed = kernel.stages.back();
    if (has_footprint(kernel)) take_footprint();
  }

  Misfit run() {
    if (!is_stencil()) return "it is no sum of products over a small window";
    if (!find_windows()) return "no window slides over channels that lie side by side";
    return nullptr;
  }

 private:
  /// The footprint's sum at the axes of the windows that read it, its value in the place of what
  /// they load of the scratch.
  void take_footprint() {
    Stage footprint = kernel_.stages[0];
    const loop::Store stored = footprint.after[0];
    std::vector<Expr> taps;
    for (const Axis& tap : sums_.windowed.reduce_axes)
      if (tap.extent != Expr(1)) taps.push_back(tap.index);
    if (taps.size() != footprint.axes.size()) return;
    sym::Substitution map;
    for (size_t i = 0; i < taps.size(); ++i) map.emplace_back(footprint.axes[i].index, taps[i]);
    loop::substitute(kernel_, footprint, map);
    loop::StageRewrite how;
    how.replace = [&](const loop::Scalar& node, std::span<const Val>) -> Val {
      const bool reads = node.opcode == loop::Opcode::load && node.slot == stored.buffer &&
                         node.index == footprint.after[0].index;
      return reads ? footprint.after[0].value : nullptr;
    };
    loop::rewrite(pool_, pool_, sums_.windowed, how);
    sums_.footprint_buffer = stored.buffer;
    sums_.sum = std::move(footprint);
  }

  const Stage& stage() const { return sums_.windowed; }
  /// The sum that what the windows see is made from; null where they see memory.
  const Stage* sum() const { return sums_.sum ? &*sums_.sum : nullptr; }
  Val input(size_t number) const { return stage().reductions[0].inputs[number]; }

  bool is_stencil() const {
    if (kernel_.stages.size() != (sum() == nullptr ? 1 : 2) || kernel_.outer.size() < 2)
      return false;
    const Stage& stage = this->stage();
    if (stage.reductions.size() != 1 || !stage.axes.empty() || !stage.body.empty() ||
        !loop::multiplies(stage.reductions[0].combiner))
      return false;
    int64_t taps = 1;
    for (const Axis& axis : stage.reduce_axes) {
      int64_t extent = axis.extent.constant().value_or(0);
      if (extent < 1 || extent > target_.tuning.windows.most_taps) return false;
      taps *= extent;
    }
    return taps > 1 && taps <= target_.tuning.windows.most_taps;
  }

  bool find_windows() {
    sums_.windows.channel = kernel_.outer.size() - 1;
    Expr channel = kernel_.outer.back().index;
    for (const loop::Store& store : stage().after) {
      std::optional<sym::Affine> affine = sym::affine_in(store.index, channel);
      if (!affine || affine->coefficient != Expr(1)) return false;
    }
    for (size_t image : {0, 1})
      if (is_image(input(image), channel) && is_weight(input(1 - image), channel)) {
        sums_.windows.image = image;
        return find_slides();
      }
    return false;
  }

  bool is_image(Val value, Expr channel) const {
    if (sum() == nullptr) return walks(value, channel) && loads_along(value, channel);
    const std::vector<Val>& factors = sum()->reductions[0].inputs;
    return is_product_of_channels(factors, channel) && loads_along(value, channel);
  }

  /// What is at a place, and a weight of the channel.
  bool is_product_of_channels(const std::vector<Val>& factors, Expr channel) const {
    return !walks(factors[0], channel) && loads_along(factors[0], channel) &&
           is_weight(factors[1], channel);
  }

  bool is_weight(Val masked, Expr channel) const {
    const Val value = without_mask(masked);
    for (size_t i = 0; i + 1 < kernel_.outer.size(); ++i)
      if (walks(value, kernel_.outer[i].index)) return false;
    const bool is_of_sum = sum() != nullptr && masked == sum()->reductions[0].inputs[1];
    for (const Axis& tap : stage().reduce_axes)
      if (is_of_sum && tap.extent != Expr(1) && walks(value, tap.index)) return false;
    return walks(value, channel);
  }

  /// Every tap moves with a point, and no two with the same one. Only where several taps are packed
  /// a step is that of a pack, and what is seen of each pack is a value of its own.
  bool find_slides() {
    std::vector<Slide>& slides = sums_.windows.slides;
    const bool is_packed = stage().reductions[0].combiner != loop::Combiner::dot;
    for (size_t tap = 0; tap < stage().reduce_axes.size(); ++tap) {
      if (stage().reduce_axes[tap].extent == Expr(1)) continue;
      std::optional<Slide> slide = slide_of(tap);
      if (slide)
        slides.push_back(*slide);
      else if (is_packed)
        sums_.windows.held.push_back(tap);
      else
        return false;
    }
    if (slides.empty()) return false;
    std::ranges::sort(slides, {}, &Slide::point);
    for (size_t i = 0; i < sums_.windows.channel; ++i) {
      int64_t count = std::ranges::count(slides, i, &Slide::point);
      if (count > 1) return false;
      if (count == 0) sums_.windows.others.push_back(i);
    }
    return true;
  }

  /// The point that moves with the tap. In a small image the next image is some taps further as
  /// well: the smallest stride says what slides.
  std::optional<Slide> slide_of(size_t tap) const {
    for (int64_t stride = 1; stride <= target_.tuning.windows.most_stride; ++stride)
      for (size_t point = 0; point < sums_.windows.channel; ++point)
        if (kernel_.outer[point].extent.constant() && slides(point, tap, stride))
          return Slide{point, tap, stride, *stage().reduce_axes[tap].extent.constant()};
    return std::nullopt;
  }

  /// Whether the image at the next point is the image `stride` taps further.
  bool slides(size_t point, size_t tap, int64_t stride) const {
    std::vector<Val> seen{input(sums_.windows.image)};
    if (sum() != nullptr) seen.push_back(sum()->reductions[0].inputs[0]);
    Expr p = kernel_.outer[point].index;
    Expr k = stage().reduce_axes[tap].index;
    return std::ranges::any_of(seen, [&](Val value) { return walks(value, k); }) &&
           std::ranges::all_of(seen, [&](Val value) {
             return loop::substituted(pool_, value, {{p, p + 1}}) ==
                    loop::substituted(pool_, value, {{k, k + stride}});
           });
  }

  Kernel& kernel_;
  loop::ScalarPool& pool_;
  const Target& target_;
  WindowSums& sums_;
};

class BlockChooser {
 public:
  BlockChooser(const Kernel& kernel, const WindowSums& sums, const Target& target)
      : kernel_(kernel), sums_(sums), target_(target) {}

  /// The other sliding axes are whole; of rows as many as keep what they see in half of the cache,
  /// and leave tasks enough; where all rows are one block, several images.
  std::optional<WindowBlocks> run() {
    const std::vector<Slide>& slides = sums_.windows.slides;
    blocks_.row = slides.size() > 1 ? slides.size() - 2 : 0;
    std::optional<int64_t> channels = kernel_.outer.back().extent.constant();
    if (!channels) return std::nullopt;
    blocks_.input_type = sums_.windowed.reductions[0].inputs[0]->dtype;
    int64_t bytes = size_of(blocks_.input_type);
    blocks_.lanes = static_cast<int>(target_.vector_bytes / bytes);
    // Two registers where they come out even: in a masked tail loads do not join the arithmetic.
    if (*channels % (2 * blocks_.lanes) == 0) blocks_.lanes *= 2;
    const int64_t most = !sums_.sum
                             ? target_.tuning.windows.most_channels
                             : target_.tuning.windows.most_summed / blocks_.lanes * blocks_.lanes;
    int64_t even = ceil_div(*channels, ceil_div(*channels, most));
    blocks_.channels = ceil_div(even, blocks_.lanes) * blocks_.lanes;
    int64_t row = blocks_.channels * bytes;
    for (size_t tap : sums_.windows.held) row *= *sums_.windowed.reduce_axes[tap].extent.constant();
    for (size_t i = 0; i < slides.size(); ++i)
      if (i != blocks_.row) row *= slides[i].seen(known_extent(kernel_, slides[i].point));
    most_ = target_.l2_bytes / 2 / row;
    choose_rows(slides[blocks_.row]);
    choose_images(slides[blocks_.row]);
    return blocks_;
  }

 private:
  int64_t tasks(int64_t row_blocks) const {
    int64_t count =
        ceil_div(*kernel_.outer.back().extent.constant(), blocks_.channels) * row_blocks;
    for (size_t other : sums_.windows.others)
      count *= kernel_.outer[other].extent.constant().value_or(target_.tuning.windows.few_tasks);
    return count;
  }

  void choose_rows(const Slide& slide) {
    int64_t height = known_extent(kernel_, slide.point);
    blocks_.rows = height;
    while (blocks_.rows > target_.tuning.windows.fewest_rows &&
           (slide.seen(blocks_.rows) > most_ ||
            tasks(ceil_div(height, blocks_.rows)) < target_.tuning.windows.few_tasks))
      blocks_.rows = ceil_div(blocks_.rows, 2);
    blocks_.rows = ceil_div(height, ceil_div(height, blocks_.rows));
  }

  void choose_images(const Slide& rows) {
    if (sums_.windows.others.empty()) return;
    size_t last = sums_.windows.others.back();
    bool all_rows = blocks_.rows == known_extent(kernel_, rows.point);
    int64_t rows_seen = rows.seen(blocks_.rows);
    int64_t count = kernel_.outer[last].extent.constant().value_or(1);
    while (all_rows && blocks_.images * 2 <= count && blocks_.images * 2 * rows_seen <= most_ &&
           tasks(1) / (blocks_.images * 2) >= target_.tuning.windows.few_tasks / 2)
      blocks_.images *= 2;
  }

  const Kernel& kernel_;
  const WindowSums& sums_;
  const Target& target_;
  WindowBlocks blocks_;
  int64_t most_ = 0;  // rows of a block that fit into the cache
};

}  // namespace

bool is_masked(Val weight) {
  if (weight->opcode != loop::Opcode::select) return false;
  const std::vector<Val> mask = loop::reachable(std::array{weight->args[0]});
  return weight->args[2]->opcode == loop::Opcode::constant &&
         std::ranges::none_of(mask, [](Val v) { return v->opcode == loop::Opcode::load; });
}

Val without_mask(Val weight) { return is_masked(weight) ? weight->args[1] : weight; }

int64_t known_extent(const Kernel& kernel, size_t outer) {
  return kernel.outer[outer].extent.constant().value_or(1);
}

Misfit find_windows(Kernel& kernel, const Target& target, WindowSums& sums) {
  return WindowFinder(kernel, target, sums).run();
}

std::optional<WindowBlocks> choose_blocks(const Kernel& kernel, const WindowSums& sums,
                                          const Target& target) {
  return BlockChooser(kernel, sums, target).run();
}

}  // namespace tandem::schedule
