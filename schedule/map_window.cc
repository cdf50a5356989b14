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
#include "schedule/product_blocks.h"
#include "schedule/window_match.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

Axis as_vector(Axis axis, int lanes) {
  axis.kind = AxisKind::vector;
  axis.lanes = lanes;
  return axis;
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

/// Of a masked weight, whether the image has what the weight meets.
std::vector<Val> questions_of_mask(Val weight) {
  if (!is_masked(weight)) return {};
  return {weight->args[0]};
}

/// Whether it follows from where it stands, and from no data.
bool is_of_places(Val asked) {
  return std::ranges::none_of(loop::reachable(std::array{asked}), [](Val part) {
    return part->opcode == loop::Opcode::load || part->opcode == loop::Opcode::local;
  });
}

/// Places by which the value is chosen, as the padding beside what is made of a sum.
void add_choices(Val value, std::vector<Val>& asked) {
  for (Val part : loop::reachable(std::array{value}))
    if (part->opcode == loop::Opcode::select && is_of_places(part->args[0]))
      asked.push_back(part->args[0]);
}

/// Beside the image nothing of the sum is stored, but zeros: no loop over its terms.
void leave_out_unread_sum(Stage& stage) {
  for (Val value : loop::scalars_of(stage))
    if (value->opcode == loop::Opcode::local) return;
  stage.body = std::move(stage.after);
  stage.after.clear();
  stage.reductions.clear();
  stage.reduce_axes.clear();
  Axis& place = stage.axes.back();
  place = {place.index, place.extent};
  std::swap(place, stage.axes[stage.axes.size() - 2]);  // lanes run along the channels
}

/// Writes the stages of a task.
class WindowWriter {
 public:
  WindowWriter(Kernel& kernel, const Target& target, WindowSums sums, const WindowBlocks& blocks)
      : kernel_(kernel),
        pool_(*kernel.scalars),
        target_(target),
        sums_(std::move(sums)),
        blocks_(blocks) {}

  void run() {
    std::vector<Stage> stages;
    Stage sums = std::move(sums_.windowed);
    take_axes(sums);
    std::vector<Val>& inputs = sums.reductions[0].inputs;
    Val image = sums_.sum ? summed_in_scratch(inputs[sums_.windows.image], sums, stages)
                          : image_in_scratch(inputs[sums_.windows.image], sums, stages);
    Val weight = weight_in_scratch(inputs[1 - sums_.windows.image], sums, stages);
    inputs = {image, weight};
    sums.axes = others_;
    for (size_t i = 0; i + 1 < points_.size(); ++i) sums.axes.push_back(points_[i]);
    sums.axes.push_back(as_vector(channel_, blocks_.lanes));
    sums.axes.push_back(as_tile(points_.back(), window_points()));
    add_in_parts(std::move(sums), questions_of_mask(weight), stages);
    kernel_.stages = std::move(stages);
    for (Axis& axis : kernel_.outer) axis.kind = AxisKind::task;
  }

 private:
  /// Points whose sums are in registers together: so many of two registers each.
  Axis as_tile(Axis axis, int64_t points) const {
    const int64_t registers = blocks_.lanes * size_of(blocks_.input_type) / target_.vector_bytes;
    axis.kind = AxisKind::unroll;
    axis.lanes = static_cast<int>(registers > 1 ? points : 2 * points);
    return axis;
  }

  int64_t window_points() const {
    const Tuning::Windows& tuning = target_.tuning.windows;
    return target_.isa == Isa::avx512 ? tuning.tile_points : tuning.narrow_tile_points;
  }

  std::vector<Stage*> stages_of(Stage& sums) {
    std::vector<Stage*> stages{&sums};
    if (sums_.sum) stages.push_back(&*sums_.sum);
    return stages;
  }

  void take_axes(Stage& sums) {
    for (size_t i = 0; i < sums_.windows.slides.size(); ++i) {
      const Slide& slide = sums_.windows.slides[i];
      int64_t block = i == blocks_.row ? blocks_.rows : known_extent(kernel_, slide.point);
      points_.push_back(take_block(kernel_, slide.point, block, stages_of(sums)));
    }
    if (blocks_.images > 1)
      others_.push_back(
          take_block(kernel_, sums_.windows.others.back(), blocks_.images, stages_of(sums)));
    channel_ = take_block(kernel_, sums_.windows.channel, blocks_.channels, stages_of(sums));
  }

  Axis fresh(Expr extent) { return {pool_.symbols().index("y", extent), extent}; }

  int32_t scratch(DType dtype, Expr elements) {
    int32_t number = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
    return number;
  }

  /// Channels come last, with the lanes. Gives what the sums read.
  Val copied(Copy copy, Val value, std::vector<Stage>& stages) {
    int32_t number = scratch(value->dtype, copy.elements * blocks_.channels);
    Axis channel = fresh(channel_.extent);
    copy.map.emplace_back(channel_.index, channel.index);
    copy.stage.axes.push_back(as_vector(channel, blocks_.lanes));
    copy.stage.body = {{number, copy.written * blocks_.channels + channel.index,
                        loop::substituted(pool_, value, copy.map), false}};
    stages.push_back(std::move(copy.stage));
    return pool_.load(number, value->dtype, copy.read * blocks_.channels + channel_.index);
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
    loop::Reduction sum = sums_.sum->reductions[0];
    sum.inputs[1] = panel_in_scratch(sum.inputs[1], sums, stages);
    const int32_t number = sums_.footprint_buffer;
    loop::Buffer& seen = kernel_.buffers[static_cast<size_t>(number)];
    seen.dtype = value->dtype;
    seen.elements = copy.elements * blocks_.channels;
    const Axis channel = fresh(channel_.extent);
    copy.map.emplace_back(channel_.index, channel.index);
    for (Val& factor : sum.inputs) factor = loop::substituted(pool_, factor, copy.map);
    const Val weight = sum.inputs[1];
    Stage& stage = copy.stage;
    stage.axes.insert(stage.axes.end() - 1, as_vector(channel, blocks_.lanes));
    const int64_t two_registers = 2 * target_.vector_bytes / size_of(sum.inputs[0]->dtype);
    const Blocks tile = choose_tile(target_, two_registers, size_of(sum.inputs[0]->dtype));
    stage.axes.back() = as_tile(stage.axes.back(), tile.tile_rows);
    stage.reduce_axes = sums_.sum->reduce_axes;
    stage.reductions = {std::move(sum)};
    stage.after = {{number, copy.written * blocks_.channels + channel.index,
                    loop::substituted(pool_, value, copy.map), false}};
    std::vector<Val> asked = questions_of_mask(weight);
    add_choices(stage.after[0].value, asked);
    add_in_parts(std::move(stage), asked, stages);
    return pool_.load(number, value->dtype, copy.read * blocks_.channels + channel_.index);
  }

  /// The weights of the sum, of the task's channels.
  Val panel_in_scratch(Val value, const Stage& sums, std::vector<Stage>& stages) {
    Copy copy;
    for (const Axis& tap : sums.reduce_axes)
      if (tap.extent == Expr(1)) copy.map.emplace_back(tap.index, Expr(0));
    for (const Axis& axis : sums_.sum->reduce_axes) {
      copy.stage.axes.push_back(fresh(axis.extent));
      copy.map.emplace_back(axis.index, copy.stage.axes.back().index);
      copy.written = copy.written * axis.extent + copy.stage.axes.back().index;
      copy.read = copy.read * axis.extent + axis.index;
      copy.elements = copy.elements * axis.extent;
    }
    return weight_copied(std::move(copy), value, stages);
  }

  // --- parts

  /// Whether the image has the place of the tile's axis, for all taps: what is asked is true.
  bool is_inside(std::span<const Val> asked, Expr axis, int64_t place) const {
    for (Val part : loop::reachable(asked)) {
      if (part->dtype != DType::boolean || part->opcode == loop::Opcode::bit_and) continue;
      if (!walks(part, axis)) continue;
      const Val there = loop::substituted(pool_, part, {{axis, Expr(place)}});
      if (there->opcode != loop::Opcode::constant || there->integer == 0) return false;
    }
    return true;
  }

  /// Where along a tile's axis of `count` places parts begin and end: what is before the first
  /// place that is inside and what is behind the last. Between the two all are inside: what is
  /// compared is affine.
  std::vector<int64_t> bounds_of_parts(std::span<const Val> asked, const Axis& tile,
                                       int64_t count) const {
    const int64_t most = std::min(count, target_.tuning.windows.most_taps);
    int64_t first = 0;
    while (first < most && !is_inside(asked, tile.index, first)) ++first;
    if (first == most) return {0, count};
    int64_t last = count;
    while (last > first && !is_inside(asked, tile.index, last - 1)) --last;
    return {0, first, last, count};
  }

  /// A stage of sums over tiles that asks whether a place is inside: the places beside the image,
  /// and those between, where tiles share what is asked.
  void add_in_parts(Stage sums, std::span<const Val> asked, std::vector<Stage>& stages) {
    const Axis& tile = sums.axes.back();
    const std::optional<int64_t> count = tile.extent.constant();
    if (!count || asked.empty()) return stages.push_back(std::move(sums));
    const std::vector<int64_t> bounds = bounds_of_parts(asked, tile, *count);
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
    leave_out_unread_sum(part);
    return part;
  }

  /// What the windows of the task see, in the order images, packs, rows, .., channels.
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
      elements = elements * blocks_.images;
    }
    for (size_t tap : sums_.windows.held) {
      const Axis& pack = sums.reduce_axes[tap];
      stage.axes.push_back(fresh(pack.extent));
      map.emplace_back(pack.index, stage.axes.back().index);
      written = written * pack.extent + stage.axes.back().index;
      read = read * pack.extent + pack.index;
      elements = elements * pack.extent;
    }
    for (size_t i = 0; i < points_.size(); ++i) {
      const Slide& slide = sums_.windows.slides[i];
      const Axis& tap = sums.reduce_axes[slide.tap];
      Axis at = fresh((points_[i].extent - 1) * slide.stride + tap.extent);
      map.emplace_back(points_[i].index, Expr(0));
      map.emplace_back(tap.index, at.index);
      int64_t most = slide.seen(i == blocks_.row ? blocks_.rows : *points_[i].extent.constant());
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
  WindowSums sums_;
  WindowBlocks blocks_;
  std::vector<Axis> points_;  // positions in the task's block, by slide
  std::vector<Axis> others_;  // the same of images, where there are several
  Axis channel_;
};

}  // namespace

bool has_footprint(const Kernel& kernel) {
  return kernel.stages.size() == 2 && kernel.stages[0].kind == loop::StageKind::footprint;
}

Misfit map_window(Kernel& kernel, const Target& target) {
  WindowSums sums;
  if (Misfit misfit = find_windows(kernel, target, sums)) return misfit;
  const std::optional<WindowBlocks> blocks = choose_blocks(kernel, sums, target);
  if (!blocks) return "the number of channels is not known";
  WindowWriter(kernel, target, std::move(sums), *blocks).run();
  return nullptr;
}

}  // namespace tandem::schedule
