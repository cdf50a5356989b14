// Problem: how much a step holds at its worst depends on which kernels there are, in which order,
// and on what lives across both programs. Approach: the runtime plans memory before it runs
// anything, so it is asked for that plan; a candidate of a partition is cut and scheduled for it,
// without code.
#include "driver/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/text.h"
#include "ops/bodies.h"
#include "passes/partition/partition.h"
#include "runtime/allocator.h"
#include "runtime/size_code.h"

namespace tandem::driver {
namespace {

using runtime::LoadedProgram;

int64_t known(const abi::Program& program, const abi::SizeCode& code) {
  const std::vector<int64_t> slots(program.slots, 0);
  return code.empty() ? 0 : runtime::evaluate(code, slots);
}

int64_t bytes_of(const abi::Program& program, const abi::Input& input) {
  if (input.is_scalar) return 0;
  int64_t bytes = size_of(input.dtype);
  for (const abi::SizeCode& size : input.sizes) bytes *= known(program, size);
  return bytes;
}

/// By saved value: what letting go of it gives back. Nothing for arguments and results, and of one
/// block once.
std::vector<int64_t> own_bytes(const abi::Program& forward, size_t results) {
  std::set<uint32_t> counted;
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < forward.outputs.size(); ++i) {
    const abi::Output& output = forward.outputs[i];
    const bool is_own =
        output.kind == abi::Output::Kind::tensor && counted.insert(output.ref.buffer).second;
    if (i < results) continue;
    bytes.push_back(is_own ? runtime::Allocator::class_bytes(
                                 known(forward, forward.buffers[output.ref.buffer].bytes))
                           : 0);
  }
  return bytes;
}

}  // namespace

namespace {

/// By saved value: the output of forward that it is.
std::vector<int64_t> freed_by_input(const LoadedProgram& forward, const LoadedProgram& backward,
                                    size_t results) {
  std::vector<int64_t> freed = own_bytes(forward.program(), results);
  freed.resize(backward.program().inputs.size(), 0);
  return freed;
}

using Block = runtime::CallTimeline::Block;

/// What forward leaves: results stay, what is saved stays until backward lets go of it.
class JoinedTimeline {
 public:
  JoinedTimeline(const LoadedProgram& forward, const LoadedProgram& backward, size_t results)
      : forward_(forward), backward_(backward), results_(results) {}

  StepTimeline joined(int64_t arguments) {
    const std::vector<int64_t> freed = freed_by_input(forward_, backward_, results_);
    runtime::CallTimeline first = forward_.call_timeline();
    runtime::CallTimeline second = backward_.call_timeline(freed);
    made_.arguments = arguments;
    made_.forward_steps = static_cast<uint32_t>(first.steps.size());
    made_.steps = std::move(first.steps);
    made_.steps.insert(made_.steps.end(), second.steps.begin(), second.steps.end());
    for (const int64_t bytes : first.held) made_.planned.push_back(arguments + bytes);
    const int64_t kept = arguments + forward_.call_memory().results;
    for (const int64_t bytes : second.held) made_.planned.push_back(kept + bytes);
    add_blocks(std::move(first.blocks), second.blocks);
    add_measured();
    return std::move(made_);
  }

 private:
  void add_blocks(std::vector<Block> first, std::vector<Block>& second) {
    const uint32_t behind = made_.forward_steps;
    std::vector<uint32_t> last(forward_.program().outputs.size(),
                               static_cast<uint32_t>(made_.steps.size()) - 1);
    for (Block& block : second) {
      block.first += behind;
      block.last += behind;
      // Sizes are known, so that backward takes the saved values first, as forward gives them.
      if (block.input >= 0) last.at(results_ + static_cast<size_t>(block.input)) = block.last;
    }
    for (Block& block : first) {
      if (block.output >= 0) block.last = last[static_cast<size_t>(block.output)];
      name(block, "forward", forward_.program());
      made_.blocks.push_back(std::move(block));
    }
    for (Block& block : second) {
      if (block.input >= 0) continue;  // forward's
      name(block, "backward", backward_.program());
      made_.blocks.push_back(std::move(block));
    }
  }

  static void name(Block& block, std::string_view half, const abi::Program& program) {
    if (block.output >= 0) {
      const std::string& output = program.outputs[static_cast<size_t>(block.output)].name;
      block.label = fmt::format("{} ({})", block.label, output);
    }
    block.label = fmt::format("{}: {}", half, block.label);
  }

  /// Beyond what the allocator held when forward began.
  void add_measured() {
    const runtime::MemoryTrace::Call first = forward_.memory_trace();
    const runtime::MemoryTrace::Call second = backward_.memory_trace();
    if (first.peaks.size() + second.peaks.size() != made_.steps.size()) return;
    for (const std::vector<int64_t>* peaks : {&first.peaks, &second.peaks})
      for (const int64_t bytes : *peaks)
        made_.measured.push_back(made_.arguments + bytes - first.before);
  }

  const LoadedProgram& forward_;
  const LoadedProgram& backward_;
  size_t results_;
  StepTimeline made_;
};

}  // namespace

StepTimeline step_timeline(const LoadedProgram& forward, const LoadedProgram* backward,
                           size_t results) {
  const std::optional<StepMemory> memory = step_memory(forward, backward, results);
  if (!memory || backward == nullptr) return {};
  return JoinedTimeline(forward, *backward, results).joined(memory->arguments);
}

std::optional<StepMemory> step_memory(const LoadedProgram& forward, const LoadedProgram* backward,
                                      size_t results) {
  if (!forward.has_known_sizes() || (backward != nullptr && !backward->has_known_sizes()))
    return std::nullopt;
  StepMemory memory;
  for (const abi::Input& input : forward.program().inputs)
    memory.arguments += bytes_of(forward.program(), input);
  const runtime::CallMemory first = forward.call_memory();
  memory.forward = first.most;
  if (backward == nullptr) return memory;
  const abi::Program& program = backward->program();
  std::vector<int64_t> freed = own_bytes(forward.program(), results);
  for (const int64_t bytes : freed) memory.saved += bytes;
  for (size_t i = freed.size(); i < program.inputs.size(); ++i)
    memory.arguments += bytes_of(program, program.inputs[i]);
  freed.resize(program.inputs.size(), 0);
  memory.backward = first.results + backward->call_memory(freed).most;
  return memory;
}

namespace {

/// The values of a copy, by their places in the graph.
ir::Values same_in(const ir::Graph& copy, const ir::Graph& graph, const ir::Values& values) {
  DenseMap<ir::Value, ir::Value*> twin;
  for (size_t i = 0; i < graph.inputs().size(); ++i) twin[graph.inputs()[i]] = copy.inputs()[i];
  const ir::Node* other = copy.first();
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next) {
    for (size_t i = 0; i < node->results.size(); ++i) twin[node->results[i]] = other->results[i];
    other = other->next;
  }
  ir::Values same;
  for (const ir::Value* value : values) same.push_back(twin.at(value));
  return same;
}

std::unique_ptr<LoadedProgram> without_code(abi::Program program) {
  std::vector<abi::KernelFunction> kernels(program.kernels.size(), nullptr);
  return std::make_unique<LoadedProgram>(std::move(program), std::move(kernels));
}

/// One program, which has an arena.
std::optional<StepMemory> memory_of_whole(ir::Graph& graph, const ir::Values& saved,
                                          const Options& options) {
  passes::recompute_unsaved(graph, saved);
  return step_memory(*without_code(schedule::schedule(graph, target_of(options)).program), nullptr,
                     0);
}

size_t count_results(const ir::Graph& forward) {
  const std::vector<ir::Output>& outputs = forward.outputs();
  return static_cast<size_t>(std::ranges::count_if(outputs, [](const ir::Output& output) {
    return output.kind != ir::OutputKind::saved && output.kind != ir::OutputKind::saved_size;
  }));
}

/// A forward and a backward, as GraphFunction runs them, without code.
struct HalvesPlan {
  HalvesPlan(ir::Graph& forward, const Options& options) : results(count_results(forward)) {
    ir::Graph& other = *forward.module().find(ir::GraphRole::Kind::backward, forward);
    schedule::Scheduled made = schedule::schedule(forward, target_of(options));
    take_saved_strides(other, forward, made.output_strides);
    first = without_code(std::move(made.program));
    second = without_code(schedule::schedule(other, target_of(options)).program);
    first->set_memory(runtime::ProgramMemory::blocks);
    second->set_memory(runtime::ProgramMemory::blocks);
  }

  size_t results;
  std::unique_ptr<LoadedProgram> first;
  std::unique_ptr<LoadedProgram> second;
};

/// From choose to split.
void cut(ir::Graph& joint, const ir::Values& saved, const Options& options) {
  passes::set_saved(joint, saved);
  GraphCtx ctx;
  passes::remat(joint, ctx);
  ctx.storage = options.storage;
  if (options.storage.kind != passes::SavedStorage::Kind::whole) {
    passes::store_saved(joint, ctx);
    passes::decompose_core(joint, ctx);
  }
  passes::split(joint, ctx);
}

std::optional<StepMemory> memory_of_halves(ir::Graph& joint, const ir::Values& saved,
                                           const Options& options) {
  cut(joint, saved, options);
  const HalvesPlan plan(joint, options);
  return step_memory(*plan.first, plan.second.get(), plan.results);
}

}  // namespace

int64_t bytes_of_step(const ir::Graph& joint, const ir::Values& saved, const Options& options) {
  const std::unique_ptr<ir::Module> module =
      ir::parse_module(ops::text_with_bodies(joint), ops::op_table());
  ir::Graph& copy = *module->graphs()[0];
  const ir::Values same = same_in(copy, joint, saved);
  const std::optional<StepMemory> memory = passes::is_whole_step(copy)
                                               ? memory_of_whole(copy, same, options)
                                               : memory_of_halves(copy, same, options);
  if (!memory)
    throw UserError(
        "[memory_budget] a budget in bytes needs known sizes, and the graph has others");
  return memory->most();
}

StepTimeline timeline_of_halves(ir::Graph& forward, const Options& options) {
  const HalvesPlan plan(forward, options);
  return step_timeline(*plan.first, plan.second.get(), plan.results);
}

StepTimeline timeline_saving_all(std::string_view joint, const Options& options) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(joint, ops::op_table());
  ir::Graph& graph = *module->graphs()[0];
  Options whole = options;
  whole.storage = {};
  cut(graph, passes::all_that_is_read(graph), whole);
  return timeline_of_halves(graph, whole);
}

}  // namespace tandem::driver
