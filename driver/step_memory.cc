// Problem: how much a step holds at its worst depends on which kernels there are, in which order,
// and on what lives across both programs. Approach: the runtime plans memory before it runs
// anything, so it is asked for that plan; a candidate of a partition is cut and scheduled for it,
// without code.
#include "driver/step_memory.h"

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
  for (int64_t bytes : freed) memory.saved += bytes;
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

/// A forward and a backward, as GraphFunction runs them.
std::optional<StepMemory> memory_of_halves(ir::Graph& forward, const ir::Values& saved,
                                           const Options& options) {
  passes::set_saved(forward, saved);
  GraphCtx ctx;
  passes::remat(forward, ctx);
  ctx.storage = options.storage;
  if (options.storage.kind != passes::SavedStorage::Kind::whole) {
    passes::store_saved(forward, ctx);
    passes::decompose_core(forward, ctx);
  }
  passes::split(forward, ctx);
  ir::Graph& backward = *forward.module().find(ir::GraphRole::Kind::backward, forward);
  schedule::Scheduled first = schedule::schedule(forward, target_of(options));
  take_saved_strides(backward, forward, first.output_strides);
  schedule::Scheduled second = schedule::schedule(backward, target_of(options));
  const std::unique_ptr<LoadedProgram> loaded = without_code(std::move(first.program));
  const std::unique_ptr<LoadedProgram> behind = without_code(std::move(second.program));
  for (LoadedProgram* part : {loaded.get(), behind.get()})
    part->set_memory(runtime::ProgramMemory::blocks);
  return step_memory(*loaded, behind.get(), count_results(forward));
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

}  // namespace tandem::driver
