// Windows over channels: y[.., p, c] = sum_k x[.., p * s + k, c] w[k, c], a convolution in which
// each channel is by itself, channels-last, with whatever stands around it. As it is written, each
// point computes its operand (pad, activation of the layer before) once a tap, and gathers weights
// that lie k after k for each channel. Here a task owns rows of the image and a block of channels.
// It writes what its windows see to scratch, computed once, with the padding in place; its weights
// beside it, channel by channel; then tiles of neighbouring points keep their sums in registers.
// That sliding the window is moving the point is not taken from the op but read off the addresses.
// Padding of the convolution itself counts as nothing, even against an infinite weight: it masks
// weights. Above and below the image that is one choice for a tile; the points beside it, where it
// would be one for each point, are stages of their own, and all between need no mask.
#include <algorithm>
#include <array>

#include "schedule/axes.h"
#include "schedule/map.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// An axis of points and the axis of taps that slides along it.
struct Slide {
  size_t point = 0;  // number of the outer axis
  size_t tap = 0;    // number of the reduced axis
  int64_t stride = 1;
  int64_t taps = 1;
  /// Places that the windows of neighbouring points see.
  int64_t seen(int64_t points) const { return (points - 1) * stride + taps; }
};

struct Windows {
  size_t image = 0;  // which input of the dot
  size_t channel = 0;
  std::vector<Slide> slides;   // by outer axis
  std::vector<size_t> others;  // outer axes that are neither: images of a batch
};

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

/// Whether a weight counts only at some places: those of its window that are inside of the image.
bool is_masked(Val weight) {
  if (weight->opcode != loop::Opcode::select) return false;
  const std::vector<Val> mask = loop::reachable(std::array{weight->args[0]});
  return weight->args[2]->opcode == loop::Opcode::constant &&
         std::ranges::none_of(mask, [](Val v) { return v->opcode == loop::Opcode::load; });
}

Val without_mask(Val weight) { return is_masked(weight) ? weight->args[1] : weight; }

class WindowMapper {
 public:
  WindowMapper(Kernel& kernel, const Target& target)
      : kernel_(kernel), pool_(*kernel.scalars), target_(target), windowed_(kernel.stages.back()) {
    if (has_footprint(kernel)) take_footprint();
  }

  Misfit run() {
    if (!is_stencil()) return "it is no sum of products over a small window";
    if (!find_windows()) return "no window slides over channels that lie side by side";
    if (!choose_blocks()) return "the number of channels is not known";
    write();
    return nullptr;
  }

 private:
  // --- what it is
  // --------------------------------------------------------------------------------

  /// The footprint's sum at the axes of the windows that read it, its value in the place of what
  /// they load of the scratch.
  void take_footprint() {
    Stage footprint = kernel_.stages[0];
    const loop::Store stored = footprint.after[0];
    std::vector<Expr> taps;
    for (const Axis& tap : windowed_.reduce_axes)
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
    loop::rewrite(pool_, pool_, windowed_, how);
    footprint_buffer_ = stored.buffer;
    sum_ = std::move(footprint);
  }

  const Stage& stage() const { return windowed_; }
  /// The sum that what the windows see is made from; null where they see memory.
  const Stage* sum() const { return sum_ ? &*sum_ : nullptr; }
  Val input(size_t number) const { return stage().reductions[0].inputs[number]; }

  bool is_stencil() const {
    if (kernel_.stages.size() != (sum() == nullptr ? 1 : 2) || kernel_.outer.size() < 2)
      return false;
    const Stage& stage = this->stage();
    if (stage.reductions.size() != 1 || !stage.axes.empty() || !stage.body.empty() ||
        stage.reductions[0].combiner != loop::Combiner::dot)
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
    windows_.channel = kernel_.outer.size() - 1;
    Expr channel = kernel_.outer.back().index;
    for (const loop::Store& store : stage().after) {
      std::optional<sym::Affine> affine = sym::affine_in(store.index, channel);
      if (!affine || affine->coefficient != Expr(1)) return false;
    }
    for (size_t image : {0, 1})
      if (is_image(input(image), channel) && is_weight(input(1 - image), channel)) {
        windows_.image = image;
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

  /// Every tap moves with a point, and no two with the same one.
  bool find_slides() {
    std::vector<Slide>& slides = windows_.slides;
    for (size_t tap = 0; tap < stage().reduce_axes.size(); ++tap) {
      if (stage().reduce_axes[tap].extent == Expr(1)) continue;
      std::optional<Slide> slide = slide_of(tap);
      if (!slide) return false;
      slides.push_back(*slide);
    }
    std::ranges::sort(slides, {}, &Slide::point);
    for (size_t i = 0; i < windows_.channel; ++i) {
      int64_t count = std::ranges::count(slides, i, &Slide::point);
      if (count > 1) return false;
      if (count == 0) windows_.others.push_back(i);
    }
    return true;
  }

  /// The point that moves with the tap. In a small image the next image is some taps further as
  /// well: the smallest stride says what slides.
  std::optional<Slide> slide_of(size_t tap) const {
    for (int64_t stride = 1; stride <= target_.tuning.windows.most_stride; ++stride)
      for (size_t point = 0; point < windows_.channel; ++point)
        if (kernel_.outer[point].extent.constant() && slides(point, tap, stride))
          return Slide{point, tap, stride, *stage().reduce_axes[tap].extent.constant()};
    return std::nullopt;
  }

  /// Whether the image at the next point is the image `stride` taps further.
  bool slides(size_t point, size_t tap, int64_t stride) const {
    std::vector<Val> seen{input(windows_.image)};
    if (sum() != nullptr) seen.push_back(sum()->reductions[0].inputs[0]);
    Expr p = kernel_.outer[point].index;
    Expr k = stage().reduce_axes[tap].index;
    return std::ranges::any_of(seen, [&](Val value) { return walks(value, k); }) &&
           std::ranges::all_of(seen, [&](Val value) {
             return rewritten(value, {{p, p + 1}}) == rewritten(value, {{k, k + stride}});
           });
  }

  Val rewritten(Val value, const sym::Substitution& map) const {
    loop::Rewrite how;
    how.map_index = [&](Expr e) { return sym::substitute(e, map); };
    return loop::rewrite(pool_, pool_, std::array{value}, how)[0];
  }

  // --- blocks
  // ------------------------------------------------------------------------------------

  int64_t extent(size_t outer) const { return kernel_.outer[outer].extent.constant().value_or(1); }

  /// The sliding axis that is cut into blocks: the last but one, or the only one.
  size_t row_number() const { return windows_.slides.size() > 1 ? windows_.slides.size() - 2 : 0; }

  /// The other sliding axes are whole; of rows as many as keep what they see in half of the cache,
  /// and leave tasks enough; where all rows are one block, several images.
  bool choose_blocks() {
    const std::vector<Slide>& slides = windows_.slides;
    std::optional<int64_t> channels = kernel_.outer.back().extent.constant();
    if (!channels) return false;
    input_type_ = input(0)->dtype;
    int64_t bytes = size_of(input_type_);
    lanes_ = static_cast<int>(target_.vector_bytes / bytes);
    // Two registers where they come out even: in a masked tail loads do not join the arithmetic.
    if (*channels % (2 * lanes_) == 0) lanes_ *= 2;
    const int64_t most = sum() == nullptr ? target_.tuning.windows.most_channels
                                          : target_.tuning.windows.most_summed / lanes_ * lanes_;
    int64_t even = ceil_div(*channels, ceil_div(*channels, most));
    channels_ = ceil_div(even, lanes_) * lanes_;
    int64_t row = channels_ * bytes;
    for (size_t i = 0; i < slides.size(); ++i)
      if (i != row_number()) row *= slides[i].seen(extent(slides[i].point));
    most_ = target_.l2_bytes / 2 / row;
    choose_rows(slides[row_number()]);
    choose_images(slides[row_number()]);
    return true;
  }

  int64_t tasks(int64_t row_blocks) const {
    int64_t count = ceil_div(*kernel_.outer.back().extent.constant(), channels_) * row_blocks;
    for (size_t other : windows_.others)
      count *= kernel_.outer[other].extent.constant().value_or(target_.tuning.windows.few_tasks);
    return count;
  }

  void choose_rows(const Slide& slide) {
    int64_t height = extent(slide.point);
    rows_ = height;
    while (rows_ > target_.tuning.windows.fewest_rows &&
           (slide.seen(rows_) > most_ ||
            tasks(ceil_div(height, rows_)) < target_.tuning.windows.few_tasks))
      rows_ = ceil_div(rows_, 2);
    rows_ = ceil_div(height, ceil_div(height, rows_));
  }

  void choose_images(const Slide& rows) {
    if (windows_.others.empty()) return;
    size_t last = windows_.others.back();
    bool all_rows = rows_ == extent(rows.point);
    int64_t rows_seen = rows.seen(rows_);
    int64_t count = kernel_.outer[last].extent.constant().value_or(1);
    while (all_rows && images_ * 2 <= count && images_ * 2 * rows_seen <= most_ &&
           tasks(1) / (images_ * 2) >= target_.tuning.windows.few_tasks / 2)
      images_ *= 2;
  }

  // --- stages
  // ------------------------------------------------------------------------------------

  void write() {
    std::vector<Stage> stages;
    Stage sums = std::move(windowed_);
    take_axes(sums);
    std::vector<Val>& inputs = sums.reductions[0].inputs;
    Val image = sum_ ? summed_in_scratch(inputs[windows_.image], sums, stages)
                     : image_in_scratch(inputs[windows_.image], sums, stages);
    Val weight = weight_in_scratch(inputs[1 - windows_.image], sums, stages);
    inputs = {image, weight};
    sums.axes = others_;
    for (size_t i = 0; i + 1 < points_.size(); ++i) sums.axes.push_back(points_[i]);
    sums.axes.push_back(as_vector(channel_, lanes_));
    sums.axes.push_back(as_tile(points_.back()));
    add_in_parts(std::move(sums), weight, stages);
    kernel_.stages = std::move(stages);
    for (Axis& axis : kernel_.outer) axis.kind = AxisKind::task;
  }

  /// Points whose sums are in registers together.
  Axis as_tile(Axis axis) const {
    const int64_t registers = lanes_ * size_of(input_type_) / target_.vector_bytes;
    axis.kind = AxisKind::unroll;
    axis.lanes = static_cast<int>(registers > 1 ? target_.tuning.windows.tile_points
                                                : 2 * target_.tuning.windows.tile_points);
    return axis;
  }

  std::vector<Stage*> stages_of(Stage& sums) {
    std::vector<Stage*> stages{&sums};
    if (sum_) stages.push_back(&*sum_);
    return stages;
  }

  void take_axes(Stage& sums) {
    for (size_t i = 0; i < windows_.slides.size(); ++i) {
      const Slide& slide = windows_.slides[i];
      int64_t block = i == row_number() ? rows_ : extent(slide.point);
      points_.push_back(take_block(kernel_, slide.point, block, stages_of(sums)));
    }
    if (images_ > 1)
      others_.push_back(take_block(kernel_, windows_.others.back(), images_, stages_of(sums)));
    channel_ = take_block(kernel_, windows_.channel, channels_, stages_of(sums));
  }

  static Axis as_vector(Axis axis, int lanes) {
    axis.kind = AxisKind::vector;
    axis.lanes = lanes;
    return axis;
  }

  Axis fresh(Expr extent) { return {pool_.symbols().index("y", extent), extent}; }

  int32_t scratch(DType dtype, Expr elements) {
    int32_t number = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
    return number;
  }

  /// A copy to scratch in the making: its loops, what the operand's axes become in them, and the
  /// place before the channels where it is written, and read by the sums.
  struct Copy {
    Stage stage;
    sym::Substitution map;
    Expr written = 0;
    Expr read = 0;
    Expr elements = 1;  // for each channel
  };

  /// Channels come last, with the lanes. Gives what the sums read.
  Val copied(Copy copy, Val value, std::vector<Stage>& stages) {
    int32_t number = scratch(value->dtype, copy.elements * channels_);
    Axis channel = fresh(channel_.extent);
    copy.map.emplace_back(channel_.index, channel.index);
    copy.stage.axes.push_back(as_vector(channel, lanes_));
    copy.stage.body = {
        {number, copy.written * channels_ + channel.index, rewritten(value, copy.map), false}};
    stages.push_back(std::move(copy.stage));
    return pool_.load(number, value->dtype, copy.read * channels_ + channel_.index);
  }

  /// The mask stays with the reader.
  Val weight_copied(Copy copy, Val weight, std::vector<Stage>& stages) {
    const Val read = copied(std::move(copy), without_mask(weight), stages);
    return is_masked(weight) ? pool_.select(weight->args[0], read, weight->args[2]) : read;
  }

  Val image_in_scratch(Val value, const Stage& sums, std::vector<Stage>& stages) {
    return copied(what_is_seen(sums), value, stages);
  }

  /// The same of what is made from a sum: tiles of neighbouring places keep its parts in registers.
  Val summed_in_scratch(Val value, const Stage& sums, std::vector<Stage>& stages) {
    Copy copy = what_is_seen(sums);
    loop::Reduction sum = sum_->reductions[0];
    sum.inputs[1] = panel_in_scratch(sum.inputs[1], sums, stages);
    const int32_t number = footprint_buffer_;
    loop::Buffer& seen = kernel_.buffers[static_cast<size_t>(number)];
    seen.dtype = value->dtype;
    seen.elements = copy.elements * channels_;
    const Axis channel = fresh(channel_.extent);
    copy.map.emplace_back(channel_.index, channel.index);
    for (Val& factor : sum.inputs) factor = rewritten(factor, copy.map);
    const Val weight = sum.inputs[1];
    Stage& stage = copy.stage;
    stage.axes.insert(stage.axes.end() - 1, as_vector(channel, lanes_));
    stage.axes.back() = as_tile(stage.axes.back());
    stage.reduce_axes = sum_->reduce_axes;
    stage.reductions = {std::move(sum)};
    stage.after = {
        {number, copy.written * channels_ + channel.index, rewritten(value, copy.map), false}};
    add_in_parts(std::move(stage), weight, stages);
    return pool_.load(number, value->dtype, copy.read * channels_ + channel_.index);
  }

  /// The weights of the sum, of the task's channels.
  Val panel_in_scratch(Val value, const Stage& sums, std::vector<Stage>& stages) {
    Copy copy;
    for (const Axis& tap : sums.reduce_axes)
      if (tap.extent == Expr(1)) copy.map.emplace_back(tap.index, Expr(0));
    for (const Axis& axis : sum_->reduce_axes) {
      copy.stage.axes.push_back(fresh(axis.extent));
      copy.map.emplace_back(axis.index, copy.stage.axes.back().index);
      copy.written = copy.written * axis.extent + copy.stage.axes.back().index;
      copy.read = copy.read * axis.extent + axis.index;
      copy.elements = copy.elements * axis.extent;
    }
    return weight_copied(std::move(copy), value, stages);
  }

  // --- parts
  // -------------------------------------------------------------------------------------

  /// Whether the mask is the same for all taps at a place of the tile's axis.
  bool is_inside(Val weight, Expr axis, int64_t place) const {
    for (Val part : loop::reachable(std::array{weight->args[0]})) {
      if (part->dtype != DType::boolean || part->opcode == loop::Opcode::bit_and) continue;
      if (!walks(part, axis)) continue;
      const Val there = rewritten(part, {{axis, Expr(place)}});
      if (there->opcode != loop::Opcode::constant || there->integer == 0) return false;
    }
    return true;
  }

  /// Where along a tile's axis of `count` places parts begin and end: what is before the first
  /// place that is inside and what is behind the last. Between the two all are inside: what a mask
  /// compares is affine.
  std::vector<int64_t> bounds_of_parts(Val weight, const Axis& tile, int64_t count) const {
    const int64_t most = std::min(count, target_.tuning.windows.most_taps);
    int64_t first = 0;
    while (first < most && !is_inside(weight, tile.index, first)) ++first;
    if (first == most) return {0, count};
    int64_t last = count;
    while (last > first && !is_inside(weight, tile.index, last - 1)) --last;
    return {0, first, last, count};
  }

  /// A stage of sums over tiles, the weights of which may be masked: the places beside the image,
  /// and those between, where tiles share their weights.
  void add_in_parts(Stage sums, Val weight, std::vector<Stage>& stages) {
    const Axis& tile = sums.axes.back();
    const std::optional<int64_t> count = tile.extent.constant();
    if (!count || !is_masked(weight)) return stages.push_back(std::move(sums));
    const std::vector<int64_t> bounds = bounds_of_parts(weight, tile, *count);
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      if (bounds[i] < bounds[i + 1]) stages.push_back(part_of(sums, bounds[i], bounds[i + 1]));
  }

  Stage part_of(const Stage& sums, int64_t from, int64_t to) {
    Stage part = sums;
    Axis& tile = part.axes.back();
    const Expr whole = tile.index;
    const Axis places = fresh(Expr(to - from));
    tile.index = places.index;
    tile.extent = places.extent;
    loop::substitute(kernel_, part, {{whole, places.index + from}});
    return part;
  }

  /// What the windows of the task see, in the order images, rows, .., channels.
  Copy what_is_seen(const Stage& sums) {
    Copy copy;
    auto& [stage, map, written, read, elements] = copy;
    for (const Axis& tap : sums.reduce_axes)
      if (tap.extent == Expr(1)) map.emplace_back(tap.index, Expr(0));
    for (const Axis& axis : others_) {
      stage.axes.push_back(fresh(axis.extent));
      map.emplace_back(axis.index, stage.axes.back().index);
      written = stage.axes.back().index;
      read = axis.index;
      elements = elements * images_;
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      const Slide& slide = windows_.slides[i];
      const Axis& tap = sums.reduce_axes[slide.tap];
      Axis at = fresh((points_[i].extent - 1) * slide.stride + tap.extent);
      map.emplace_back(points_[i].index, Expr(0));
      map.emplace_back(tap.index, at.index);
      int64_t most = slide.seen(i == row_number() ? rows_ : *points_[i].extent.constant());
      written = written * most + at.index;
      read = read * most + points_[i].index * slide.stride + tap.index;
      elements = elements * most;
      stage.axes.push_back(at);
    }
    return copy;
  }

  /// The weights of the task's channels, tap by tap.
  Val weight_in_scratch(Val value, const Stage& sums, std::vector<Stage>& stages) {
    Copy copy;
    auto& [stage, map, written, read, elements] = copy;
    for (const Axis& tap : sums.reduce_axes) {
      stage.axes.push_back(fresh(tap.extent));
      map.emplace_back(tap.index, stage.axes.back().index);
      written = written * tap.extent + stage.axes.back().index;
      read = read * tap.extent + tap.index;
      elements = elements * tap.extent;
    }
    return weight_copied(std::move(copy), value, stages);
  }

  Kernel& kernel_;
  loop::ScalarPool& pool_;
  const Target& target_;
  Stage windowed_;            // the windows, with the sum's value in them
  std::optional<Stage> sum_;  // at their axes
  int32_t footprint_buffer_ = 0;
  Windows windows_;
  DType input_type_{};
  int lanes_ = 0;
  int64_t channels_ = 0;  // of a task
  int64_t most_ = 0;      // rows of a block that fit into the cache
  int64_t rows_ = 1;
  int64_t images_ = 1;
  std::vector<Axis> points_;  // positions in the task's block, by slide
  std::vector<Axis> others_;  // the same of images, where there are several
  Axis channel_;
};

}  // namespace

bool has_footprint(const Kernel& kernel) {
  return kernel.stages.size() == 2 && kernel.stages[0].kind == loop::StageKind::footprint;
}

Misfit map_window(Kernel& kernel, const Target& target) {
  return WindowMapper(kernel, target).run();
}

}  // namespace tandem::schedule
