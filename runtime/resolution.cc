// Execution, for new sizes: guards, where buffers live and when they get and lose their memory,
// strides, what library calls do, which weights they want packed.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/diagnostic.h"
#include "runtime/execution.h"
#include "runtime/fork.h"
#include "runtime/parallel_for.h"
#include "runtime/size_code.h"

namespace tandem::runtime {

int64_t Execution::value(const abi::SizeCode& code) const {
  return code.empty() ? 0 : evaluate(code, slots_);
}

Execution::View Execution::resolve(const abi::TensorRef& ref, DType dtype) const {
  View view;
  view.buffer = ref.buffer;
  view.dtype = dtype;
  for (const abi::SizeCode& code : ref.sizes) view.sizes.push_back(value(code));
  for (const abi::SizeCode& code : ref.strides) view.strides.push_back(value(code));
  view.offset = value(ref.offset);
  return view;
}

Execution::View Execution::resolve(const abi::TensorRef& ref) const {
  return resolve(ref, program().buffers[ref.buffer].dtype);
}

void Execution::resolve() {
  check_guards();
  for (size_t i = 0; i < program().inputs.size(); ++i) {
    input_strides_[i].clear();
    for (const abi::SizeCode& code : program().inputs[i].strides)
      input_strides_[i].push_back(value(code));
  }
  resolve_arena();
  scratch_bytes_ = resolve_steps(0);
  is_packed_ = false;
  resolve_results(0);
  is_resolved_ = true;
}

// What waited for a number that has been read now: at every call, as each brings another one.
void Execution::resolve_level(uint32_t level) {
  for (BufferState& state : buffers_)
    if (state.level == level)
      state.bytes = value(program().buffers[static_cast<size_t>(&state - buffers_.data())].bytes);
  for (const uint32_t buffer : unborn_)
    if (buffers_[buffer].level == level) take_block(buffer);
  const int64_t needed = resolve_steps(level);
  if (needed > scratch_.bytes) {
    late_scratch_.emplace(needed * threads());
    scratch_ = {late_scratch_->data(), needed};
  }
  pack_weights(level);
  resolve_results(level);
}

Execution::View Execution::view_of(const abi::Output& output) const {
  switch (output.kind) {
    case abi::Output::Kind::scalar: return {};
    case abi::Output::Kind::input_view:
      return resolve(output.ref, program().inputs[output.input].dtype);
    case abi::Output::Kind::constant_view:
      return resolve(output.ref, program().constants[output.input].dtype);
    case abi::Output::Kind::tensor: break;
  }
  return resolve(output.ref);
}

void Execution::resolve_results(uint32_t level) {
  for (size_t i = 0; i < output_views_.size(); ++i)
    if (loaded_.level_of(program().outputs[i].ref) == level)
      output_views_[i] = view_of(program().outputs[i]);
  for (size_t i = 0; i < write_back_views_.size(); ++i)
    if (loaded_.level_of(program().write_backs[i].src) == level)
      write_back_views_[i] = resolve(program().write_backs[i].src);
}

void Execution::resolve_arena() {
  const bool spread = loaded_.memory_ == ProgramMemory::blocks;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const LoadedProgram::BufferLife& life = loaded_.lifetimes_[i];
    BufferState& state = buffers_[i];
    state.bytes = state.level > 0 ? 0 : value(program().buffers[i].bytes);
    const bool is_temporary = state.kind == abi::BufferKind::temporary;
    state.has_block = state.kind == abi::BufferKind::output || (is_temporary && state.level > 0) ||
                      (is_temporary && spread && state.bytes >= kOwnBlock &&
                       life.first_use <= loaded_.first_write_);
  }
  give_blocks_to_taken();
  const Placement placement = place(arena_lifetimes());
  for (uint32_t i = 0; i < buffers_.size(); ++i)
    buffers_[i].offset = placement.offsets[first_in_place(i)];
  arena_bytes_ = placement.bytes;
  plan_blocks();
}

// The step that runs an instruction; the last one for what the epilogue uses.
size_t Execution::step_of(uint32_t instruction) const {
  const std::vector<Step>::const_iterator after =
      std::upper_bound(steps_.begin(), steps_.end(), instruction,
                       [](uint32_t at, const Step& step) { return at < step.instruction; });
  return after == steps_.begin() ? 0 : static_cast<size_t>(after - steps_.begin()) - 1;
}

// Behind the read that tells its size.
uint32_t Execution::first_instruction_with(const BufferState& state) const {
  return loaded_.level_begins_[state.level];
}

// A block is taken at the first use, but before the first instruction that writes an input, because
// there may be no memory; later temporaries are in the arena for that reason. What the epilogue
// reads lives to the end of the call.
void Execution::plan_blocks() {
  for (Step& step : steps_) {
    step.born.clear();
    step.over.clear();
    step.dead.clear();
  }
  unborn_.clear();
  const uint32_t end = static_cast<uint32_t>(program().instructions.size());
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    const LoadedProgram::BufferLife& life = loaded_.lifetimes_[i];
    const BufferState& state = buffers_[i];
    const bool is_used = life.first_use < end;
    if (is_used && takes_over_block(i)) {
      steps_[step_of(life.first_use)].over.push_back(i);
    } else if (state.has_block && is_used) {
      steps_[step_of(std::max(std::min(life.first_use, loaded_.first_write_),
                              first_instruction_with(state)))]
          .born.push_back(i);
    } else if (state.has_block) {
      unborn_.push_back(i);
    }
    const bool ends = is_used && life.last_use < end && state.kind != abi::BufferKind::output;
    if (ends && (state.has_block || loaded_.may_drop(state.kind, state.index)))
      steps_[step_of(life.last_use)].dead.push_back(i);
  }
}

int64_t Execution::resolve_launch(LaunchState& state) const {
  for (size_t i = 0; i < state.sizes.size(); ++i) state.sizes[i] = value(state.launch->sizes[i]);
  state.tasks = value(state.launch->tasks);
  state.work = std::max<int64_t>(value(state.launch->work), 1);
  state.is_parallel = state.tasks > 1 && state.work > kParallelNanoseconds;
  return (value(state.launch->scratch_bytes) + 63) / 64 * 64;
}

// Gives the scratch that a thread needs.
int64_t Execution::resolve_steps(uint32_t level) {
  int64_t scratch = 0;
  for (LaunchState& state : launches_)
    if (state.level == level) scratch = std::max(scratch, resolve_launch(state));
  resolve_libraries(level);
  for (HostState& state : hosts_)
    if (state.level == level) resolve_host(state);
  for (ControlState& state : controls_)
    if (state.level == level) resolve_control(state);
  for (ReadState& state : reads_)
    if (state.level == level) state.source = resolve(state.read->source);
  return scratch;
}

void Execution::resolve_libraries(uint32_t level) {
  if (libraries_.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::plans));
  for (LibraryState& state : libraries_) {
    if (state.level != level) continue;
    state.views.clear();
    for (const abi::TensorRef& ref : state.call->args) state.views.push_back(resolve(ref));
    state.views.push_back(resolve(state.call->out));
    std::vector<Operand> operands;
    for (const View& view : state.views) operands.push_back({view.dtype, view.sizes, view.strides});
    state.plan = &state.site.prepare(operands);
    state.pointers.resize(state.views.size());
  }
}

void Execution::resolve_host(HostState& state) const {
  state.args.clear();
  state.sizes.clear();
  state.results.clear();
  for (const abi::TensorRef& ref : state.call->args) state.args.push_back(resolve(ref));
  for (const abi::SizeCode& code : state.call->sizes) state.sizes.push_back(value(code));
  for (const abi::TensorRef& ref : state.call->results) state.results.push_back(resolve(ref));
}

void Execution::resolve_control(ControlState& state) const {
  state.args.clear();
  state.results.clear();
  state.sizes.clear();
  for (const abi::TensorRef& ref : state.control->args) state.args.push_back(resolve(ref));
  for (const abi::TensorRef& ref : state.control->results) state.results.push_back(resolve(ref));
  for (const abi::Callee& callee : state.control->callees) {
    std::vector<int64_t>& sizes = state.sizes.emplace_back();
    for (const abi::SizeCode& code : callee.sizes) sizes.push_back(value(code));
  }
}

// A frame and what a step gives; of bodies whose sizes only their arguments tell nothing is known.
int64_t Execution::most_of_bodies(const ControlState& state) const {
  int64_t most = 0;
  for (const abi::Callee& callee : state.control->callees) {
    const LoadedProgram& body = *loaded_.callees_->at(callee.body);
    if (body.has_known_sizes()) most = std::max(most, body.call_memory().most);
  }
  return most;
}

std::shared_ptr<ConstantSet> Execution::use(const std::shared_ptr<ConstantSet>& constants) {
  if (constants == constants_) return {};
  for (LibraryState& state : libraries_) state.packed = {};
  is_packed_ = false;
  return std::exchange(constants_, constants);
}

void Execution::pack_weights(uint32_t level) {
  for (LibraryState& state : libraries_) {
    if (state.level != level || state.plan->packed_layout().empty()) continue;
    const View& weight = state.views[1];
    state.packed = constants_->packed(buffers_[weight.buffer].index, weight.offset, *state.plan);
  }
  if (level == 0) is_packed_ = true;
}

int64_t Execution::taken(uint32_t buffer) const {
  return Allocator::class_bytes(buffers_[buffer].bytes);
}

int64_t Execution::frame_block() const {
  const int64_t bytes = arena_bytes_ + scratch_bytes_ * threads();
  return bytes > 0 ? Allocator::class_bytes(bytes) : 0;
}

// What bodies, or a library call, take and give back while the step runs.
int64_t Execution::taken_inside(const Step& step) const {
  if (step.kind == StepKind::control) return most_of_bodies(controls_[step.index]);
  if (step.kind != StepKind::library) return 0;
  const LibraryPlan* const plan = libraries_[step.index].plan;  // none: a size is not known yet
  return plan == nullptr ? 0 : plan->working_bytes();
}

// As run_steps, with numbers for blocks; first before any step.
std::vector<int64_t> Execution::held_bytes(std::span<const int64_t> freed) const {
  int64_t live = frame_block();
  for (const uint32_t buffer : unborn_) live += taken(buffer);
  std::vector<int64_t> held{live};
  for (const Step& step : steps_) {
    for (const uint32_t buffer : step.born) live += taken(buffer);
    for (const uint32_t buffer : step.over) live += taken(buffer);
    held.push_back(live - taken_over(step, freed) + taken_inside(step));
    for (const uint32_t buffer : step.dead) {
      const BufferState& state = buffers_[buffer];
      const bool is_input = state.kind == abi::BufferKind::input;
      live -= is_input ? (freed.empty() ? 0 : freed[state.index]) : taken(buffer);
    }
  }
  return held;
}

CallMemory Execution::memory(std::span<const int64_t> freed) {
  resolve();
  CallMemory memory;
  memory.most = std::ranges::max(held_bytes(freed));
  for (uint32_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].kind == abi::BufferKind::output) memory.results += taken(i);
  return memory;
}

}  // namespace tandem::runtime
