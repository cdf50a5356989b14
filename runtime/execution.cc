// One call. What depends on sizes (guards, arena plan, strides, library plans) is resolved when the
// sizes differ from the last call's (resolution.cc); in between, a call compares the arguments with
// what is known, fills the pointer tables and runs the steps. Nothing is looked up by name and
// nothing is allocated but the outputs, the arena and what has to be copied. Inputs change only
// after the last step has succeeded, except those that kernels write in place.
#include "runtime/execution.h"

#include <chrono>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/interrupt.h"
#include "runtime/control.h"
#include "runtime/fork.h"
#include "runtime/parallel_for.h"
#include "runtime/size_code.h"

namespace tandem::runtime {
namespace {

std::string expected_text(const abi::Input& input) {
  std::string text = std::string(name_of(input.dtype)) + "[";
  for (size_t i = 0; i < input.sizes.size(); ++i)
    text += (i > 0 ? ", " : "") + to_text(input.sizes[i]);
  return text + "]";
}

constexpr uintptr_t kBlockAlignment = 64;  // the allocator's; mappings mark stores that need it

std::string range_text(const abi::ReadScalar& read) {
  const std::string most = read.most == INT64_MAX ? "inf" : std::to_string(read.most);
  return "[" + (read.least == INT64_MIN ? "-inf" : std::to_string(read.least)) + ", " + most + "]";
}

std::string kind_of(const Argument& argument) {
  if (const Array* array = std::get_if<Array>(&argument)) return array->describe();
  return std::holds_alternative<int64_t>(argument) ? "an i64 scalar" : "an f64 scalar";
}

}  // namespace

Execution::Execution(const LoadedProgram& loaded)
    : loaded_(loaded), overlap_(loaded.written_inputs_) {
  slots_.assign(program().slots, 0);
  for (const abi::Buffer& buffer : program().buffers)
    buffers_.push_back({buffer.kind, buffer.index, loaded_.level_of(buffer.bytes)});
  output_views_.resize(program().outputs.size());
  write_back_views_.resize(program().write_backs.size());
  bases_.assign(buffers_.size(), nullptr);
  blocks_.resize(buffers_.size());
  input_strides_.resize(program().inputs.size());
  make_steps();
}

void Execution::make_steps() {
  for (uint32_t i = 0; i < program().instructions.size(); ++i) make_step(i);
}

void Execution::add_step(StepKind kind, size_t index, uint32_t instruction) {
  Step& step = steps_.emplace_back();
  step.kind = kind;
  step.index = static_cast<uint32_t>(index);
  step.instruction = instruction;
}

void Execution::make_step(uint32_t number) {
  const abi::Instruction& instruction = program().instructions[number];
  if (const abi::Launch* launch = std::get_if<abi::Launch>(&instruction)) {
    const uint32_t index = static_cast<uint32_t>(launches_.size());
    if (launch->beside) {
      ++steps_.back().count;
    } else if (launch->follows) {
      libraries_.back().follower = index;
    } else {
      add_step(StepKind::launch, index, number);
    }
    LaunchState& state = launches_.emplace_back();
    state.launch = launch;
    state.level = loaded_.level_of(instruction);
    state.kernel = loaded_.kernels_[launch->kernel];
    state.pointers.resize(launch->buffers.size());
    state.sizes.resize(launch->sizes.size());
    find_scalar_arguments(index);
  } else if (const abi::LibraryCall* call = std::get_if<abi::LibraryCall>(&instruction)) {
    add_step(StepKind::library, libraries_.size(), number);
    const bool has_constant_weight =
        call->args.size() > 1 &&
        program().buffers[call->args[1].buffer].kind == abi::BufferKind::constant;
    libraries_.push_back({.call = call, .site = LibrarySite(*call, has_constant_weight)});
    libraries_.back().level = loaded_.level_of(instruction);
  } else if (const abi::HostCall* host = std::get_if<abi::HostCall>(&instruction)) {
    add_step(StepKind::host, hosts_.size(), number);
    hosts_.push_back({host, {}, {}, {}});
    hosts_.back().level = loaded_.level_of(instruction);
  } else if (const abi::Control* control = std::get_if<abi::Control>(&instruction)) {
    add_step(StepKind::control, controls_.size(), number);
    controls_.push_back({control, {}, {}, {}});
    controls_.back().level = loaded_.level_of(instruction);
  } else {
    add_step(StepKind::read, reads_.size(), number);
    reads_.push_back({&std::get<abi::ReadScalar>(instruction), {}, number});
    reads_.back().level = loaded_.level_of(instruction);
  }
}

void Execution::find_scalar_arguments(uint32_t launch) {
  const std::vector<abi::SizeCode>& codes = launches_[launch].launch->sizes;
  for (uint32_t i = 0; i < codes.size(); ++i) {
    const bool is_scalar =
        std::any_of(codes[i].begin(), codes[i].end(), [&](const abi::SizeInstruction& instruction) {
          return instruction.op == abi::SizeInstruction::Op::slot &&
                 loaded_.is_cheap_slot_[static_cast<size_t>(instruction.value)] != 0;
        });
    if (is_scalar) scalar_arguments_.push_back({&codes[i], launch, i});
  }
}

// --- Before anything runs ---

void Execution::set_slot(int64_t slot, int64_t value) {
  const size_t at = static_cast<size_t>(slot);
  if (slots_[at] == value) return;
  slots_[at] = value;
  if (loaded_.is_cheap_slot_[at] == 0) is_resolved_ = false;
}

void Execution::bind_scalar(uint32_t index, const Argument& argument) {
  const abi::Input& input = program().inputs[index];
  const int64_t* const integer = std::get_if<int64_t>(&argument);
  const double* const real = std::get_if<double>(&argument);
  if (is_float(input.dtype) && (integer != nullptr || real != nullptr)) {
    const double value = real != nullptr ? *real : static_cast<double>(*integer);
    set_slot(input.scalar_slot, std::bit_cast<int64_t>(value));
  } else if (integer != nullptr) {
    set_slot(input.scalar_slot, *integer);
  } else {
    throw UserError("input '" + input.name + "': expected an " +
                    (is_float(input.dtype) ? "f64" : "i64") + " scalar, got " + kind_of(argument));
  }
}

void Execution::check_array(uint32_t index, const Argument& argument) const {
  const abi::Input& input = program().inputs[index];
  const Array* const array = std::get_if<Array>(&argument);
  if (array != nullptr && array->dtype() == input.dtype && array->rank() == input.sizes.size())
    return;
  throw UserError("input '" + input.name + "': expected " + expected_text(input) + ", got " +
                  kind_of(argument));
}

void Execution::check_sizes(std::span<const Argument> arguments) const {
  for (const LoadedProgram::SizeStep& step : loaded_.check_steps_) {
    const Array& array = std::get<Array>(arguments[step.input]);
    const abi::Input& input = program().inputs[step.input];
    const int64_t expected = evaluate(input.sizes[step.dim], slots_);
    if (array.sizes()[step.dim] == expected) [[likely]]
      continue;
    const std::string code = to_text(input.sizes[step.dim]);
    const std::string number = std::to_string(expected);
    throw UserError("input '" + input.name + "': expected " + expected_text(input) + ", got " +
                    array.describe() + ": size " + std::to_string(step.dim) + " must be " +
                    (code == number ? code : code + " = " + number));
  }
}

void Execution::bind(std::span<const Argument> arguments) {
  if (arguments.size() != program().inputs.size())
    throw UserError("program '" + program().name + "' takes " +
                    std::to_string(program().inputs.size()) + " inputs, got " +
                    std::to_string(arguments.size()));
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    if (program().inputs[i].is_scalar) {
      bind_scalar(i, arguments[i]);
    } else {
      check_array(i, arguments[i]);
    }
  }
  for (const LoadedProgram::SizeStep& step : loaded_.bind_steps_)
    set_slot(step.slot, std::get<Array>(arguments[step.input]).sizes()[step.dim]);
  check_sizes(arguments);
}

void Execution::check_guards() const {
  for (const abi::Guard& guard : program().guards) {
    if (evaluate(guard, slots_)) continue;
    throw UserError("program '" + program().name + "': guard " + guard.text +
                    " fails: " + to_text(guard.left) + " is " +
                    std::to_string(evaluate(guard.left, slots_)) + ", " + to_text(guard.right) +
                    " is " + std::to_string(evaluate(guard.right, slots_)));
  }
}

// --- At every call ---

bool Execution::matches(uint32_t input, const Array& array) const {
  const std::vector<int64_t>& expected = input_strides_[input];
  const std::span<const int64_t> strides = array.strides();
  const std::span<const int64_t> sizes = array.sizes();
  bool same = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected[i]) same = false;
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(array.raw());
  return same && address % static_cast<uintptr_t>(size_of(array.dtype())) == 0;
}

// What the kernels see instead of an array of other strides.
Array Execution::staged_copy(uint32_t input, const Array& array) const {
  const std::vector<int64_t>& strides = input_strides_[input];
  bool is_broadcast = false;
  for (size_t i = 0; i < strides.size(); ++i)
    if (strides[i] == 0 && array.sizes()[i] > 1) is_broadcast = true;
  if (is_broadcast || loaded_.has_view_[input] != 0) {
    std::string text = "input '" + program().inputs[input].name + "': expected strides [";
    for (size_t i = 0; i < strides.size(); ++i)
      text += (i > 0 ? ", " : "") + std::to_string(strides[i]);
    throw UserError(text + "], which cannot be had by a copy because " +
                    (is_broadcast ? "elements are shared" : "an output is a view of it"));
  }
  const int64_t elements = extent(array.sizes(), strides);
  const Array block = Array::empty(array.dtype(), std::array{elements});
  const Array copy = block.as_strided(array.sizes(), strides);
  copy.copy_from(array);
  return copy;
}

void Execution::point_inputs(std::span<const Argument> arguments) {
  staged_.clear();
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    const Array* const array = std::get_if<Array>(&arguments[i]);
    if (array == nullptr || matches(i, *array)) [[likely]]
      continue;
    staged_.push_back({i, staged_copy(i, *array)});
  }
}

const Array& Execution::seen_input(std::span<const Argument> arguments, uint32_t input) const {
  for (const StagedInput& staged : staged_)
    if (staged.input == input) return staged.copy;
  return std::get<Array>(arguments[input]);
}

void Execution::point_buffers(std::span<const Argument> arguments, std::byte* arena) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const BufferState& buffer = buffers_[i];
    switch (buffer.kind) {
      case abi::BufferKind::input: bases_[i] = seen_input(arguments, buffer.index).raw(); break;
      case abi::BufferKind::constant: bases_[i] = constants_->arrays()[buffer.index].raw(); break;
      case abi::BufferKind::temporary: bases_[i] = arena + buffer.offset; break;
      case abi::BufferKind::output: break;
    }
  }
  for (const uint32_t buffer : unborn_)
    if (buffers_[buffer].level == 0) take_block(buffer);
  for (const ScalarArgument& scalar : scalar_arguments_)
    if (launches_[scalar.launch].level == 0)
      launches_[scalar.launch].sizes[scalar.index] = evaluate(*scalar.code, slots_);
}

// An output that shares its buffer with another one would take that one along. Kernels may count on
// the alignment that blocks have. What has a size that is read later has no view yet.
void Execution::use_places(std::span<const std::optional<Array>> places) {
  places_.assign(places.empty() ? 0 : buffers_.size(), nullptr);
  std::vector<uint32_t> outputs(places_.size());
  for (size_t i = 0; i < places.size(); ++i)
    if (program().outputs[i].kind == abi::Output::Kind::tensor)
      ++outputs[program().outputs[i].ref.buffer];
  for (size_t i = 0; i < places.size(); ++i) {
    const abi::Output& output = program().outputs[i];
    if (!places[i] || output.kind != abi::Output::Kind::tensor) continue;
    if (buffers_[output.ref.buffer].level > 0) continue;
    const View& view = output_views_[i];
    const bool fits = view.dtype == places[i]->dtype() && view.offset == 0 &&
                      std::ranges::equal(view.sizes, places[i]->sizes()) &&
                      std::ranges::equal(view.strides, places[i]->strides()) &&
                      buffers_[view.buffer].bytes == places[i]->nbytes();
    const bool is_aligned = reinterpret_cast<uintptr_t>(places[i]->raw()) % kBlockAlignment == 0;
    if (fits && is_aligned && outputs[view.buffer] == 1) places_[view.buffer] = places[i]->raw();
  }
}

void Execution::take_block(uint32_t buffer) {
  if (!places_.empty() && places_[buffer] != nullptr) {
    blocks_[buffer] = std::make_shared<const Storage>(places_[buffer], nullptr);
    bases_[buffer] = places_[buffer];
    return;
  }
  blocks_[buffer] = std::make_shared<const Storage>(buffers_[buffer].bytes);
  bases_[buffer] = blocks_[buffer]->data();
}

void Execution::let_go(uint32_t buffer, std::span<Argument> dropped) {
  const BufferState& state = buffers_[buffer];
  blocks_[buffer].reset();
  if (state.kind == abi::BufferKind::input && !dropped.empty()) dropped[state.index] = Array();
}

void* Execution::address(const View& view) const {
  return static_cast<std::byte*>(bases_[view.buffer]) + view.offset * size_of(view.dtype);
}

Array Execution::array_at(const View& view) const {
  return Array::borrow(address(view), view.dtype, view.sizes, view.strides);
}

std::vector<Array> Execution::arrays_at(const std::vector<View>& views) const {
  std::vector<Array> arrays;
  arrays.reserve(views.size());
  for (const View& view : views) arrays.push_back(array_at(view));
  return arrays;
}

void Execution::run_control(const ControlState& state) const {
  const abi::Control& control = *state.control;
  std::vector<Frame> frames;
  const uint64_t seed = static_cast<uint64_t>(value(control.seed));
  for (size_t i = 0; i < control.callees.size(); ++i)
    frames.emplace_back(*loaded_.callees_->at(control.callees[i].body), control.callees[i],
                        state.sizes[i], step_seed(seed, control.stream, std::min<size_t>(i, 1)));
  runtime::run_control(control, frames, arrays_at(state.args), arrays_at(state.results));
}

void Execution::run_host(const HostState& state) const {
  const std::vector<Array> arguments = arrays_at(state.args);
  const std::vector<Array> results = arrays_at(state.results);
  const size_t number = state.call->function;
  if (number >= loaded_.host_functions_.size())
    throw UserError("host function " + std::to_string(number) + " is called, and " +
                    std::to_string(loaded_.host_functions_.size()) + " were given");
  loaded_.host_functions_[number](arguments, state.sizes, results);
}

// The slots of later levels have values of an earlier call, or none, until their reads have run.
void Execution::read_scalar(const ReadState& state) {
  const abi::ReadScalar& read = *state.read;
  const int64_t value = *static_cast<const int64_t*>(address(state.source));
  const bool is_integer = state.source.dtype == DType::i64;
  if (is_integer && (value < read.least || value > read.most))
    throw DataError("[" + read.label + "] " + read.name + " is " + std::to_string(value) +
                    ", which is not in " + range_text(read));
  const uint32_t begins = loaded_.slot_levels_[read.slot];
  const bool is_first = begins > 0 && loaded_.level_begins_[begins] == state.instruction + 1;
  if (!is_first && slots_[read.slot] != value)
    throw DataError("[" + read.label + "] " + read.name + " is " + std::to_string(value) +
                    ", and was to be " + std::to_string(slots_[read.slot]));
  slots_[read.slot] = value;
  if (is_first) resolve_level(begins);
}

void Execution::run_steps(std::span<Argument> dropped) {
  if (loaded_.trace_.running()) [[unlikely]]
    return run_traced(dropped);
  for (const Step& step : steps_) {
    if (step.instruction <= loaded_.first_write_) poll_interrupt();
    run_with_blocks(step, dropped);
  }
}

inline void Execution::run_with_blocks(const Step& step, std::span<Argument> dropped) {
  for (const uint32_t buffer : step.born) take_block(buffer);
  for (const uint32_t buffer : step.over) take_over(buffer, dropped);
  if (loaded_.profile_.running()) [[unlikely]] {
    run_profiled(step);
  } else {
    run_step(step);
  }
  for (const uint32_t buffer : step.dead) let_go(buffer, dropped);
}

void Execution::run_traced(std::span<Argument> dropped) {
  MemoryTrace::Call call;
  call.before = bytes_before_;
  allocator().take_watermark();
  for (const Step& step : steps_) {
    if (step.instruction <= loaded_.first_write_) poll_interrupt();
    run_with_blocks(step, dropped);
    call.peaks.push_back(allocator().take_watermark());
  }
  loaded_.trace_.keep(std::move(call));
}

void Execution::run_profiled(const Step& step) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  run_step(step);
  const std::chrono::nanoseconds taken = Clock::now() - start;
  loaded_.profile_.add(step.instruction, taken.count());
}

inline void Execution::run_step(const Step& step) {
  switch (step.kind) {
    case StepKind::launch:
      if (step.count > 1) {
        run_beside(std::span(launches_).subspan(step.index, step.count));
      } else {
        run_launch(launches_[step.index]);
      }
      break;
    case StepKind::library: run_library(libraries_[step.index]); break;
    case StepKind::host: run_host(hosts_[step.index]); break;
    case StepKind::control: run_control(controls_[step.index]); break;
    case StepKind::read: read_scalar(reads_[step.index]); break;
  }
}

// A write-back may read an input that another one writes: then all are read before the first is
// written.
void Execution::write_back(std::span<const Argument> arguments) const {
  std::vector<Array> read;
  if (loaded_.write_backs_overlap_) {
    for (const View& view : write_back_views_) {
      read.push_back(Array::empty(view.dtype, view.sizes));
      copy_strided(read.back().raw(), read.back().strides(), address(view), view.strides,
                   view.sizes, size_of(view.dtype));
    }
  }
  for (size_t i = 0; i < write_back_views_.size(); ++i) {
    const View& view = write_back_views_[i];
    const Array& target = seen_input(arguments, program().write_backs[i].input);
    const bool is_read = !read.empty();
    copy_strided(target.raw(), target.strides(), is_read ? read[i].raw() : address(view),
                 is_read ? read[i].strides() : std::span<const int64_t>(view.strides), view.sizes,
                 size_of(view.dtype));
  }
  for (const StagedInput& staged : staged_)
    if (loaded_.is_written_[staged.input] != 0)
      std::get<Array>(arguments[staged.input]).copy_from(staged.copy);
}

std::vector<Result> Execution::results(std::span<const Argument> arguments) {
  std::vector<Result> results;
  results.reserve(program().outputs.size());
  for (size_t i = 0; i < program().outputs.size(); ++i) {
    const abi::Output& output = program().outputs[i];
    const View& view = output_views_[i];
    if (output.kind == abi::Output::Kind::tensor) {
      results.emplace_back(
          Array::window(blocks_[view.buffer], view.dtype, view.sizes, view.strides, view.offset));
    } else if (output.kind == abi::Output::Kind::input_view) {
      const Array& input = std::get<Array>(arguments[output.input]);
      results.emplace_back(input.as_strided(view.sizes, view.strides, view.offset));
    } else if (output.kind == abi::Output::Kind::constant_view) {
      const Array& constant = constants_->arrays()[output.input];
      results.emplace_back(constant.as_strided(view.sizes, view.strides, view.offset));
    } else if (is_float(output.dtype)) {
      results.emplace_back(std::bit_cast<double>(value(output.scalar)));
    } else {
      results.emplace_back(value(output.scalar));
    }
  }
  for (std::shared_ptr<const Storage>& block : blocks_) block.reset();
  staged_.clear();
  late_scratch_.reset();
  return results;
}

// One that throws goes with the execution, which is dropped.
std::byte* Execution::take_frame() {
  const int64_t bytes = arena_bytes_ + scratch_bytes_ * threads();
  if (bytes != frame_bytes_) {
    drop_frame();
    if (bytes > 0) frame_.emplace(bytes);
    frame_bytes_ = bytes;
  }
  return frame_ ? frame_->data() : nullptr;
}

void Execution::drop_frame() {
  frame_.reset();
  frame_bytes_ = 0;
}

void Execution::keep_frame(bool keeps) {
  keeps_frame_ = keeps;
  if (!keeps) drop_frame();
}

std::vector<Result> Execution::run(std::span<const Argument> arguments, std::span<Argument> dropped,
                                   std::span<const std::optional<Array>> places) {
  if (loaded_.trace_.running()) [[unlikely]]
    bytes_before_ = allocator().counters().live_bytes;
  bind(arguments);
  if (loaded_.checks_overlap_) refuse_overlap(program(), overlap_, arguments);
  if (!is_resolved_) resolve();
  if (!is_packed_) pack_weights(0);
  use_places(places);
  point_inputs(arguments);
  if (loaded_.memory_ == ProgramMemory::blocks) allocator().begin_call(!dropped.empty());
  std::byte* const memory = take_frame();
  point_buffers(arguments, memory);
  scratch_ = {frame_bytes_ > arena_bytes_ ? memory + arena_bytes_ : nullptr, scratch_bytes_};
  run_steps(dropped);
  if (!write_back_views_.empty() || !staged_.empty()) write_back(arguments);
  std::vector<Result> given = results(arguments);
  if (!keeps_frame_) drop_frame();
  return given;
}

std::vector<LibraryCallReport> Execution::library_calls() const {
  std::vector<LibraryCallReport> reports;
  for (const LibraryState& state : libraries_) {
    if (state.plan == nullptr) continue;
    const PlanReport& report = state.plan->report();
    reports.push_back({state.call->label, report.implementation, report.flops, report.tasks,
                       report.staged_bytes, report.weight_bytes});
  }
  return reports;
}

}  // namespace tandem::runtime
