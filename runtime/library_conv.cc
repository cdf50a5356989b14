// Convolutions of 1 to 3 dimensions, forward and backward. Activations are worked on channels-last,
// where oneDNN is fastest and a block of rows of one image is contiguous; others are copied to that
// layout first. Weights are brought to the layout oneDNN chooses. The call is cut into tasks of
// (images, rows of the first spatial dimension, channels or groups), each a smaller convolution by
// a primitive made for one thread. Only the weight gradient sums over images: blocks of images give
// partial sums in scratch, which are added in their order. Slices of channels are not contiguous,
// so their tasks go through scratch. What is computed of the result line by line is called for by a
// task at its end, where it has whole lines.
#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "runtime/array.h"
#include "runtime/conv_shape.h"
#include "runtime/library.h"
#include "runtime/onednn.h"
#include "runtime/parallel_for.h"
#include "runtime/weight_copy.h"

namespace tandem::runtime {
namespace {

using namespace convolution;
using abi::LibraryOp;

constexpr int64_t kCopyBytes = 32 << 10;  // of weights, that a thread copies at a time

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// An activation in memory the tasks can use: the caller's or a channels-last copy.
struct Activation {
  DType dtype{};
  Dims sizes;
  Dims own;      // the caller's strides
  Dims strides;  // of what tasks read: channels-last
  bool is_staged = false;
  int64_t bytes() const { return align(product_of(sizes) * size_of(dtype)); }
};

// A primitive for tasks of one shape.
struct Variant {
  Shape shape;
  std::unique_ptr<TeamPrimitive> main;
  size_t weight_layout = 0;
};

// A layout of the weights of a number of channels, and the way from or to the caller's.
struct WeightLayout {
  int64_t in = 0, out = 0;
  dnnl_memory_desc_t desc{};
  int64_t bytes = 0;
  std::unique_ptr<WeightCopy> copy;
};

struct Task {
  size_t variant = 0;
  size_t piece = 0;                         // of channels
  int64_t images = 0;                       // number of the block of images
  int64_t x_at = 0, y_at = 0, bias_at = 0;  // elements
  Range lines;                              // of the result, of all images
};

struct Piece {
  size_t layout = 0;
  int64_t weight_at = 0;   // elements in the caller's weight
  int64_t scratch_at = 0;  // bytes in the scratch of weights
};

// Of the copies of all pieces: what one thread does at a time.
struct CopyPart {
  size_t piece = 0;
  int64_t lo = 0, hi = 0;
};

class ConvolutionPlan final : public LibraryPlan {
 public:
  ConvolutionPlan(Call call, bool is_constant_weight);
  void execute(std::span<void* const> operands) override { execute(operands, nullptr); }
  bool execute_in_lines(std::span<void* const> operands, int64_t lines, RangeBody then) override;
  int64_t working_bytes() const override;
  void pack(const void* weight, void* block) override;

 private:
  // What the tasks of one execution read and write.
  struct Memory {
    std::byte* x = nullptr;
    std::byte* y = nullptr;
    std::byte* weight = nullptr;  // the caller's
    std::byte* bias = nullptr;
    std::byte* prepared = nullptr;  // weights in oneDNN's layout; partial sums of them
    std::byte* per_thread = nullptr;
  };

  bool is_weight_gradient() const { return call_.is_weight_gradient(); }
  bool is_data_gradient() const { return call_.is_data_gradient(); }
  DType prepared_type() const { return is_weight_gradient() ? DType::f32 : call_.weight_type; }
  Range in_channels(const Range& range) const;
  Range out_channels(const Range& range) const;
  void choose_tasks();
  void make_tasks(const Cut& cut);
  const std::string& slowest_implementation() const;
  bool has_reference() const;
  void add_piece(const Range& channels);
  void add_task(const Range& images, const Range& rows, const Range& channels, int64_t block);
  size_t variant_of(const Shape& shape);
  std::unique_ptr<TeamPrimitive> make_main(const Shape& shape, const dnnl_memory_desc_t& weight);
  void make_copies();
  void share_copies();
  void measure_scratch();
  void choose_packing();
  int64_t sliced_bytes(const Shape& shape) const;
  bool computes_in_lines(int64_t lines) const;

  void execute(std::span<void* const> operands, const RangeBody* then);
  void fill_result(std::byte* out, const std::byte* bias) const;
  void prepare_teams(int count);
  void copy_weights(const Memory& memory);
  void copy_part(const Memory& memory, const CopyPart& part, std::byte* library, int thread);
  void run_task(const Memory& memory, const Task& task, int thread);
  void sum_partials(const Memory& memory) const;
  int64_t weight_block_bytes() const;
  int64_t team_bytes() const;
  int64_t thread_bytes() const {
    return scratchpad_bytes_ + x_slice_bytes_ + y_slice_bytes_ + piece_bytes_;
  }
  int64_t bias_bytes() const;
  std::byte* stage(const Activation& activation, const ScopedBlock& block, std::byte* own) const;
  void run_tasks(Memory memory, const RangeBody* then);
  const Activation& result_activation() const { return is_data_gradient() ? x_ : y_; }

  Call call_;
  Activation x_, y_;
  std::vector<Variant> variants_;
  std::vector<WeightLayout> layouts_;
  std::vector<Piece> pieces_;
  std::vector<Task> tasks_;
  std::vector<CopyPart> copy_parts_;
  bool copies_in_tasks_ = false;  // each task its own piece, in scratch of its thread
  int64_t partials_ = 1;          // blocks of images of a weight gradient
  int64_t prepared_bytes_ = 0;    // of one partial
  // Per thread.
  int64_t scratchpad_bytes_ = 0, x_slice_bytes_ = 0, y_slice_bytes_ = 0, piece_bytes_ = 0;
};

Activation activation_of(DType dtype, const Dims& sizes, const Dims& strides) {
  Activation activation{dtype, sizes, strides, channels_last(sizes), false};
  activation.is_staged = !same_strides(sizes, strides, activation.strides);
  return activation;
}

ConvolutionPlan::ConvolutionPlan(Call call, bool is_constant_weight) : call_(std::move(call)) {
  x_ = activation_of(call_.x_type, call_.shape.x_sizes(), call_.x_strides);
  y_ = activation_of(call_.y_type, call_.shape.y_sizes(), call_.y_strides);
  report_.implementation = "none";
  report_.flops = call_.shape.flops();
  const Dims weight_sizes = call_.shape.weight_sizes();
  if (product_of(x_.sizes) == 0 || product_of(y_.sizes) == 0 || product_of(weight_sizes) == 0)
    return;
  choose_tasks();
  make_copies();
  if (is_constant_weight && !is_weight_gradient()) choose_packing();
  share_copies();
  measure_scratch();
  for (const Activation* activation : {&x_, &y_})
    if (activation->is_staged) report_.staged_bytes += activation->bytes();
  for (const Task& task : tasks_)
    report_.staged_bytes += sliced_bytes(variants_[task.variant].shape);
  report_.weight_bytes = prepared_bytes_ - report_.packed_bytes;
  report_.tasks = static_cast<int64_t>(tasks_.size());
  report_.implementation = slowest_implementation();
  report_.is_slow = report_.implementation.starts_with("ref") ||
                    report_.implementation.find("gemm:jit") != std::string::npos;
}

// A range of the cut dimension (groups, or channels of what is written) as channels of x and of y.
Range ConvolutionPlan::in_channels(const Range& range) const {
  const Shape& shape = call_.shape;
  const int64_t per_group = shape.in / shape.groups;
  if (shape.groups > 1) return {range.lo * per_group, range.hi * per_group};
  return is_data_gradient() ? range : Range{0, shape.in};
}

Range ConvolutionPlan::out_channels(const Range& range) const {
  const Shape& shape = call_.shape;
  const int64_t per_group = shape.out / shape.groups;
  if (shape.groups > 1) return {range.lo * per_group, range.hi * per_group};
  return is_data_gradient() ? Range{0, shape.out} : range;
}

// Reference code, hundreds of times slower than any other, if some task runs in it: the library has
// nothing else for some shapes with weights laid out as another shape asked for.
const std::string& ConvolutionPlan::slowest_implementation() const {
  for (const Variant& variant : variants_)
    if (variant.main->primitive().implementation().starts_with("ref"))
      return variant.main->primitive().implementation();
  return variants_[0].main->primitive().implementation();
}
bool ConvolutionPlan::has_reference() const { return slowest_implementation().starts_with("ref"); }

// The cut that fills the machine, or the next smaller one without reference code; where there is
// none, the first again.
void ConvolutionPlan::choose_tasks() {
  const Cut wanted = cut_of(call_);
  Cut cut = wanted;
  make_tasks(cut);
  while (has_reference() && (cut.rows > 1 || cut.channels > 1)) {
    --(cut.rows > 1 ? cut.rows : cut.channels);
    make_tasks(cut);
  }
  if (has_reference()) make_tasks(wanted);
}

void ConvolutionPlan::make_tasks(const Cut& cut) {
  variants_.clear();
  layouts_.clear();
  pieces_.clear();
  tasks_.clear();
  const Shape& shape = call_.shape;
  const int64_t channels = shape.groups > 1     ? shape.groups
                           : is_data_gradient() ? shape.in
                                                : shape.out;
  const int64_t granule = shape.groups > 1 ? 1 : kChannelGranule;
  const std::vector<Range> channel_ranges = ranges_of(channels, cut.channels, granule);
  const std::vector<Range> image_ranges = ranges_of(shape.images, cut.images, 1);
  std::vector<Range> row_ranges = ranges_of(shape.spatial[0].out, cut.rows, 1);
  for (const Range& rows : row_ranges) {
    Spatial dim = shape.spatial[0];
    int64_t first = 0;
    if (row_ranges.size() > 1 && !cut_rows(dim, rows, first)) {
      row_ranges = {{0, shape.spatial[0].out}};
      break;
    }
  }
  if (is_weight_gradient()) partials_ = static_cast<int64_t>(image_ranges.size());
  for (const Range& range : channel_ranges) add_piece(range);
  for (size_t i = 0; i < image_ranges.size(); ++i)
    for (const Range& rows : row_ranges)
      for (size_t c = 0; c < channel_ranges.size(); ++c) {
        add_task(image_ranges[i], rows, channel_ranges[c], static_cast<int64_t>(i));
        tasks_.back().piece = c;
        pieces_[c].layout = variants_[tasks_.back().variant].weight_layout;
      }
}

void ConvolutionPlan::add_piece(const Range& channels) {
  const bool is_input = call_.shape.groups == 1 && is_data_gradient();
  pieces_.push_back({0, channels.lo * call_.weight_strides[is_input ? 1 : 0], 0});
}

void ConvolutionPlan::add_task(const Range& images, const Range& rows, const Range& channels,
                               int64_t block) {
  const Range in = in_channels(channels), out = out_channels(channels);
  Shape shape = call_.shape;
  shape.images = images.size();
  shape.groups = shape.groups > 1 ? channels.size() : 1;
  shape.in = in.size();
  shape.out = out.size();
  int64_t first_input_row = 0;
  if (rows.size() < shape.spatial[0].out) cut_rows(shape.spatial[0], rows, first_input_row);
  Task task;
  task.variant = variant_of(shape);
  task.images = block;
  task.x_at = images.lo * x_.strides[0] + in.lo + first_input_row * x_.strides[2];
  task.y_at = images.lo * y_.strides[0] + out.lo + rows.lo * y_.strides[2];
  task.bias_at = out.lo;
  const int64_t height = call_.shape.spatial[0].out;
  task.lines = {images.lo * height + rows.lo, (images.hi - 1) * height + rows.hi};
  tasks_.push_back(task);
}

size_t ConvolutionPlan::variant_of(const Shape& shape) {
  for (size_t i = 0; i < variants_.size(); ++i)
    if (variants_[i].shape == shape) return i;
  size_t layout = 0;
  while (layout < layouts_.size() &&
         (layouts_[layout].in != shape.in || layouts_[layout].out != shape.out))
    ++layout;
  const bool is_new = layout == layouts_.size();
  Variant variant{shape, nullptr, layout};
  variant.main = make_main(
      shape, is_new ? any_desc(prepared_type(), shape.weight_sizes()) : layouts_[layout].desc);
  if (is_new) {
    WeightLayout fresh;
    fresh.in = shape.in;
    fresh.out = shape.out;
    fresh.desc = variant.main->primitive().desc_of(is_weight_gradient() ? DNNL_ARG_DIFF_WEIGHTS
                                                                        : DNNL_ARG_WEIGHTS);
    fresh.bytes = align(static_cast<int64_t>(onednn().memory_desc_get_size(&fresh.desc)));
    layouts_.push_back(std::move(fresh));
  }
  variants_.push_back(std::move(variant));
  return variants_.size() - 1;
}

std::unique_ptr<TeamPrimitive> ConvolutionPlan::make_main(const Shape& shape,
                                                          const dnnl_memory_desc_t& weight) {
  const Dims x_sizes = shape.x_sizes(), y_sizes = shape.y_sizes();
  const dnnl_memory_desc_t x = strided_desc(call_.x_type, x_sizes, channels_last(x_sizes));
  const dnnl_memory_desc_t y = strided_desc(call_.y_type, y_sizes, channels_last(y_sizes));
  const OneDnnDims dims(shape);
  const dnnl_memory_desc_t any_weight = any_desc(call_.weight_type, shape.weight_sizes());
  dnnl_memory_desc_t bias{};
  if (call_.has_bias)
    bias = strided_desc(call_.bias_type, std::array{shape.out}, std::array{int64_t{1}});
  const bool is_forward = call_.op == LibraryOp::convolution;
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = onednn().convolution_forward_desc_init(
      &desc, is_forward ? dnnl_forward_inference : dnnl_forward_training, dnnl_convolution_direct,
      &x, is_forward ? &weight : &any_weight, call_.has_bias ? &bias : nullptr, &y,
      dims.stride.data(), dims.dilation.data(), dims.pad_lo.data(), dims.pad_hi.data());
  TD_CHECK(status == dnnl_success) << "convolution descriptor: " << static_cast<int>(status);
  static constexpr std::array<int, 4> kForward = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                                  DNNL_ARG_BIAS};
  const std::span<const int> ids = std::span(kForward).first(call_.has_bias ? 4 : 3);
  if (is_forward) return std::make_unique<TeamPrimitive>(&desc, ids, false);
  const Primitive hint(&desc, ids, false);
  if (is_data_gradient()) {
    status = onednn().convolution_backward_data_desc_init(
        &desc, dnnl_convolution_direct, &x, &weight, &y, dims.stride.data(), dims.dilation.data(),
        dims.pad_lo.data(), dims.pad_hi.data());
  } else {
    status = onednn().convolution_backward_weights_desc_init(
        &desc, dnnl_convolution_direct, &x, &weight, nullptr, &y, dims.stride.data(),
        dims.dilation.data(), dims.pad_lo.data(), dims.pad_hi.data());
  }
  TD_CHECK(status == dnnl_success) << "convolution descriptor: " << static_cast<int>(status);
  static constexpr std::array<int, 3> kData = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS,
                                               DNNL_ARG_DIFF_DST};
  static constexpr std::array<int, 3> kWeights = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS,
                                                  DNNL_ARG_DIFF_DST};
  return std::make_unique<TeamPrimitive>(&desc, is_data_gradient() ? kData : kWeights, false,
                                         &hint);
}

void ConvolutionPlan::make_copies() {
  for (const Variant& variant : variants_) {
    WeightLayout& layout = layouts_[variant.weight_layout];
    if (layout.copy != nullptr) continue;
    layout.copy = std::make_unique<WeightCopy>(
        call_.weight_type, variant.shape.weight_sizes(), call_.weight_strides, layout.desc,
        is_weight_gradient() ? WeightCopy::Way::from_library : WeightCopy::Way::to_library);
  }
  for (Piece& piece : pieces_) {
    piece.scratch_at = prepared_bytes_;
    prepared_bytes_ += layouts_[piece.layout].bytes;
  }
}

// A piece that one task alone uses is copied by that task, and is in its cache then.
void ConvolutionPlan::share_copies() {
  copies_in_tasks_ = packed_layout_.empty() && pieces_.size() == tasks_.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const WeightLayout& layout = layouts_[pieces_[i].layout];
    if (copies_in_tasks_) piece_bytes_ = std::max(piece_bytes_, layout.bytes);
    const int64_t parts = layout.copy->parts();
    const int64_t step =
        std::max<int64_t>(1, kCopyBytes * parts / std::max<int64_t>(1, layout.bytes));
    for (int64_t lo = 0; lo < parts; lo += step)
      copy_parts_.push_back({i, lo, std::min(parts, lo + step)});
  }
}

// Bytes of a slice of some channels, which a task copies; 0 where it has all of them.
int64_t slice_of(const Activation& whole, const Dims& sizes) {
  return sizes[1] == whole.sizes[1] ? 0 : align(product_of(sizes) * size_of(whole.dtype));
}

int64_t ConvolutionPlan::sliced_bytes(const Shape& shape) const {
  return slice_of(x_, shape.x_sizes()) + slice_of(y_, shape.y_sizes());
}

void ConvolutionPlan::measure_scratch() {
  for (const Variant& variant : variants_) {
    scratchpad_bytes_ =
        std::max(scratchpad_bytes_, align(variant.main->primitive().scratchpad_bytes()));
    x_slice_bytes_ = std::max(x_slice_bytes_, slice_of(x_, variant.shape.x_sizes()));
    y_slice_bytes_ = std::max(y_slice_bytes_, slice_of(y_, variant.shape.y_sizes()));
  }
  for (const WeightLayout& layout : layouts_)
    scratchpad_bytes_ = std::max(scratchpad_bytes_, align(layout.copy->scratchpad_bytes()));
}

// All pieces one behind the other, as every call would prepare them.
void ConvolutionPlan::choose_packing() {
  for (const int64_t stride : call_.weight_strides) packed_layout_ += std::to_string(stride) + ",";
  for (const Piece& piece : pieces_)
    packed_layout_ +=
        std::to_string(piece.weight_at) + "=" + text_of(layouts_[piece.layout].desc) + ";";
  report_.packed_bytes = prepared_bytes_;
}

void ConvolutionPlan::pack(const void* weight, void* block) {
  prepare_teams(threads());
  const ScopedBlock own(team_bytes());
  Memory memory;
  memory.weight = static_cast<std::byte*>(const_cast<void*>(weight));  // a reorder only reads it
  memory.prepared = static_cast<std::byte*>(block);
  memory.per_thread = own.data();
  copy_weights(memory);
}

void ConvolutionPlan::prepare_teams(int count) {
  for (const Variant& variant : variants_) variant.main->prepare(count);
  for (const WeightLayout& layout : layouts_) layout.copy->prepare(count);
}

// Runs `body(task, thread)` for every task.
template <class F>
void for_each_task(size_t tasks, const F& body) {
  parallel_for(static_cast<int64_t>(tasks), [&](int64_t lo, int64_t hi) {
    const OneThread one;
    for (int64_t task = lo; task < hi; ++task) body(static_cast<size_t>(task), thread_index());
  });
}

void ConvolutionPlan::copy_part(const Memory& memory, const CopyPart& part, std::byte* library,
                                int thread) {
  const Piece& piece = pieces_[part.piece];
  std::byte* const own = memory.weight + piece.weight_at * size_of(call_.weight_type);
  layouts_[piece.layout].copy->run(part.lo, part.hi, own, library, thread,
                                   memory.per_thread + thread * thread_bytes());
}

void ConvolutionPlan::copy_weights(const Memory& memory) {
  for_each_task(copy_parts_.size(), [&](size_t number, int thread) {
    const CopyPart& part = copy_parts_[number];
    copy_part(memory, part, memory.prepared + pieces_[part.piece].scratch_at, thread);
  });
}

void ConvolutionPlan::run_task(const Memory& memory, const Task& task, int thread) {
  const Variant& variant = variants_[task.variant];
  const Dims x_sizes = variant.shape.x_sizes(), y_sizes = variant.shape.y_sizes();
  std::byte* const scratchpad = memory.per_thread + thread * thread_bytes();
  std::byte* const x_own = memory.x + task.x_at * size_of(x_.dtype);
  std::byte* const y_own = memory.y + task.y_at * size_of(y_.dtype);
  const bool x_sliced = x_sizes[1] != x_.sizes[1], y_sliced = y_sizes[1] != y_.sizes[1];
  std::byte* const x = x_sliced ? scratchpad + scratchpad_bytes_ : x_own;
  std::byte* const y = y_sliced ? scratchpad + scratchpad_bytes_ + x_slice_bytes_ : y_own;
  if (x_sliced && !is_data_gradient())
    copy_strided(x, channels_last(x_sizes), x_own, x_.strides, x_sizes, size_of(x_.dtype));
  if (y_sliced && call_.op != LibraryOp::convolution)
    copy_strided(y, channels_last(y_sizes), y_own, y_.strides, y_sizes, size_of(y_.dtype));
  const int64_t partial = is_weight_gradient() ? task.images * prepared_bytes_ : 0;
  std::byte* const weight = copies_in_tasks_
                                ? scratchpad + scratchpad_bytes_ + x_slice_bytes_ + y_slice_bytes_
                                : memory.prepared + partial + pieces_[task.piece].scratch_at;
  const CopyPart whole = {task.piece, 0, layouts_[pieces_[task.piece].layout].copy->parts()};
  if (copies_in_tasks_ && !is_weight_gradient()) copy_part(memory, whole, weight, thread);
  const std::array<void*, 4> data = {
      x, weight, y,
      memory.bias == nullptr ? nullptr : memory.bias + task.bias_at * size_of(call_.bias_type)};
  variant.main->run(thread, std::span(data).first(call_.has_bias ? 4 : 3), scratchpad);
  if (copies_in_tasks_ && is_weight_gradient()) copy_part(memory, whole, weight, thread);
  if (x_sliced && is_data_gradient())
    copy_strided(x_own, x_.strides, x, channels_last(x_sizes), x_sizes, size_of(x_.dtype));
  if (y_sliced && call_.op == LibraryOp::convolution)
    copy_strided(y_own, y_.strides, y, channels_last(y_sizes), y_sizes, size_of(y_.dtype));
}

// Partial sums over images are added in the order of the images into the first.
void ConvolutionPlan::sum_partials(const Memory& memory) const {
  if (partials_ == 1) return;
  constexpr int64_t kBlock = 4096;
  const int64_t count = prepared_bytes_ / static_cast<int64_t>(sizeof(float));
  float* const sum = reinterpret_cast<float*>(memory.prepared);
  parallel_for((count + kBlock - 1) / kBlock, [&](int64_t lo, int64_t hi) {
    const int64_t end = std::min(count, hi * kBlock);
    for (int64_t partial = 1; partial < partials_; ++partial) {
      const float* const other = sum + partial * count;
      for (int64_t i = lo * kBlock; i < end; ++i) sum[i] += other[i];
    }
  });
}

// Without anything to sum the result is its bias, or zero.
void ConvolutionPlan::fill_result(std::byte* out, const std::byte* bias) const {
  const int64_t zero = 0;
  const bool is_weight = is_weight_gradient();
  const Activation& activation = is_data_gradient() ? x_ : y_;
  const Dims sizes = is_weight ? call_.shape.weight_sizes() : activation.sizes;
  if (product_of(sizes) == 0) return;
  Dims from(sizes.size(), 0);
  if (bias != nullptr) from[1] = call_.bias_stride;
  if (bias != nullptr && call_.bias_type != call_.y_type)
    throw Unsupported("[convolution] a bias of another type than the result of an empty sum");
  copy_strided(out, is_weight ? call_.weight_strides : activation.own,
               bias != nullptr ? static_cast<const void*>(bias) : &zero, from, sizes,
               size_of(activation.dtype));
}

// Copies what is read, where its layout is another one, and returns what tasks use.
std::byte* ConvolutionPlan::stage(const Activation& activation, const ScopedBlock& block,
                                  std::byte* own) const {
  if (!activation.is_staged) return own;
  const bool is_result = !is_weight_gradient() && &activation == &result_activation();
  if (!is_result)
    copy_strided(block.data(), activation.strides, own, activation.own, activation.sizes,
                 size_of(activation.dtype));
  return block.data();
}

int64_t ConvolutionPlan::weight_block_bytes() const {
  return packed_layout_.empty() && !copies_in_tasks_ ? prepared_bytes_ * partials_ : 0;
}

int64_t ConvolutionPlan::team_bytes() const { return thread_bytes() * threads(); }

int64_t ConvolutionPlan::bias_bytes() const {
  return call_.has_bias ? call_.shape.out * size_of(call_.bias_type) : 0;
}

int64_t ConvolutionPlan::working_bytes() const {
  if (tasks_.empty()) return 0;
  int64_t bytes = 0;
  for (const int64_t block : {x_.is_staged ? x_.bytes() : 0, y_.is_staged ? y_.bytes() : 0,
                              bias_bytes(), weight_block_bytes(), team_bytes()})
    bytes += Allocator::class_bytes(block);
  return bytes;
}

void ConvolutionPlan::run_tasks(Memory memory, const RangeBody* then) {
  prepare_teams(threads());
  const bool is_packed = !packed_layout_.empty();
  const ScopedBlock prepared(weight_block_bytes());
  const ScopedBlock own(team_bytes());
  memory.prepared = is_packed ? memory.weight : prepared.data();
  memory.per_thread = own.data();
  if (!is_weight_gradient() && !is_packed && !copies_in_tasks_) copy_weights(memory);
  for_each_task(tasks_.size(), [&](size_t task, int thread) {
    run_task(memory, tasks_[task], thread);
    if (then != nullptr) (*then)(tasks_[task].lines.lo, tasks_[task].lines.hi);
  });
  if (!is_weight_gradient() || copies_in_tasks_) return;
  sum_partials(memory);
  copy_weights(memory);
}

/// Where each task has all channels of its lines, which follow one another, and they are in their
/// own place when it ends.
bool ConvolutionPlan::computes_in_lines(int64_t lines) const {
  return call_.op == LibraryOp::convolution && !tasks_.empty() && pieces_.size() == 1 &&
         !y_.is_staged && lines == call_.shape.images * call_.shape.spatial[0].out;
}

bool ConvolutionPlan::execute_in_lines(std::span<void* const> operands, int64_t lines,
                                       RangeBody then) {
  const bool in_lines = computes_in_lines(lines);
  execute(operands, in_lines ? &then : nullptr);
  return in_lines;
}

void ConvolutionPlan::execute(std::span<void* const> operands, const RangeBody* then) {
  const auto operand = [&](size_t i) { return static_cast<std::byte*>(operands[i]); };
  std::byte* const out = operand(operands.size() - 1);
  if (tasks_.empty()) return fill_result(out, call_.has_bias ? operand(2) : nullptr);
  std::array<std::byte*, 3> own = {operand(0), operand(1), out};  // x, weight, y
  if (is_data_gradient()) own = {out, operand(1), operand(0)};
  if (is_weight_gradient()) own = {operand(1), out, operand(0)};
  const ScopedBlock x_block(x_.is_staged ? x_.bytes() : 0);
  const ScopedBlock y_block(y_.is_staged ? y_.bytes() : 0);
  const ScopedBlock bias_block(bias_bytes());
  Memory memory;
  memory.x = stage(x_, x_block, own[0]);
  memory.weight = own[1];
  memory.y = stage(y_, y_block, own[2]);
  if (call_.has_bias) {
    copy_strided(bias_block.data(), std::array{int64_t{1}}, operands[2],
                 std::array{call_.bias_stride}, std::array{call_.shape.out},
                 size_of(call_.bias_type));
    memory.bias = bias_block.data();
  }
  run_tasks(memory, then);
  const Activation& result = result_activation();
  if (!is_weight_gradient() && result.is_staged)
    copy_strided(out, result.own, is_data_gradient() ? memory.x : memory.y, result.strides,
                 result.sizes, size_of(result.dtype));
}

}  // namespace

std::unique_ptr<LibraryPlan> plan_convolution(std::span<const Operand> operands,
                                              const abi::LibraryCall& call,
                                              bool is_constant_weight) {
  const PlanMaker make = [&call](std::span<const Operand> given, bool is_constant) {
    return std::make_unique<ConvolutionPlan>(call_of(given, call), is_constant);
  };
  return plan_or_widen(operands, make, is_constant_weight);
}

}  // namespace tandem::runtime
