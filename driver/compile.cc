// Graph to executable: passes, schedule, code, load; each stage timed.
#include <chrono>

#include "base/flags.h"
#include "base/log.h"
#include "driver/compiler.h"
#include "loop/text.h"
#include "runtime/parallel_for.h"

namespace tandem::driver {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The executor's estimate of a launch that is worth a team, whatever its size.
constexpr int64_t kLongWork = 1'000'000;

abi::SizeCode number(int64_t value) { return {{abi::SizeInstruction::Op::constant, value}}; }

template <class F>
void for_each_launch(abi::Program& program, F f) {
  for (abi::Instruction& instruction : program.instructions)
    if (abi::Launch* launch = std::get_if<abi::Launch>(&instruction)) f(*launch);
}

/// Stands in for compiled code: the kernel to interpret comes as size argument 0.
int64_t interpret_kernel(void* const* buffers, const int64_t* sizes, int64_t lo, int64_t hi,
                         void*) {
  const loop::Kernel& kernel = *reinterpret_cast<const loop::Kernel*>(sizes[0]);
  std::vector<void*> numbered;  // a launch leaves scratch out
  for (const loop::Buffer& buffer : kernel.buffers)
    numbered.push_back(buffer.access == loop::Access::scratch ? nullptr : *buffers++);
  return loop::interpret(kernel, numbered.data(), sizes + 1, lo, hi);
}

}  // namespace

namespace {

/// Launches of the program run its kernels in the interpreter.
std::vector<abi::KernelFunction> interpreted(abi::Program& program,
                                             const std::vector<loop::Kernel>& kernels) {
  for_each_launch(program, [&](abi::Launch& launch) {
    int64_t address = reinterpret_cast<int64_t>(&kernels[launch.kernel]);
    launch.sizes.insert(launch.sizes.begin(), number(address));
  });
  return std::vector<abi::KernelFunction>(kernels.size(), interpret_kernel);
}

}  // namespace

void Executable::interpret(schedule::Scheduled scheduled) {
  interpreted_ = std::move(scheduled.kernels);
  interpreted_setup_ = std::move(scheduled.setup_kernels);
  std::vector<abi::KernelFunction> setup;
  if (scheduled.program.setup != nullptr)
    setup = interpreted(*scheduled.program.setup, interpreted_setup_);
  std::vector<abi::KernelFunction> functions = interpreted(scheduled.program, interpreted_);
  loaded_ = std::make_unique<runtime::LoadedProgram>(std::move(scheduled.program),
                                                     std::move(functions), std::move(setup));
}

Executable::Executable(schedule::Scheduled scheduled, const Target& target, const Options& options)
    : output_strides_(std::move(scheduled.output_strides)) {
  if (options.report) report = schedule::report(scheduled);
  notes_ = std::move(scheduled.notes);
  if (options.always_parallel)
    for_each_launch(scheduled.program,
                    [](abi::Launch& launch) { launch.work = number(kLongWork); });
  if (options.interpret) {
    interpret(std::move(scheduled));
    return;
  }
  codegen::CompileOptions code;
  code.threads = options.compile_threads;
  code.level = options.level < 0 ? flag_opt() : options.level;
  code.cache_dir = flag_cache_dir();
  kernels_ = codegen::KernelLibrary::compile(scheduled.kernels, target, code);
  std::vector<abi::KernelFunction> setup;
  if (scheduled.program.setup != nullptr) {
    setup_kernels_ = codegen::KernelLibrary::compile(scheduled.setup_kernels, target, code);
    setup = setup_kernels_->functions();
  }
  loaded_ = std::make_unique<runtime::LoadedProgram>(std::move(scheduled.program),
                                                     kernels_->functions(), std::move(setup));
}

std::unique_ptr<Executable> finish(const ir::Graph& graph, const Options& options) {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  static const Target kTarget = codegen::host_target();
  check_flags();
  if (flag_threads() > 0) runtime::set_threads(flag_threads());
  schedule::Scheduled scheduled = schedule::schedule(graph, kTarget);
  for (const schedule::Note& note : scheduled.notes)
    log("schedule", 2, note.place + ": " + note.text);
  Times times;
  times.schedule = milliseconds_since(start);
  if (flag_dump().when == DumpFlag::When::after && flag_dump().argument == "schedule")
    for (const loop::Kernel& kernel : scheduled.kernels)  // setup's are in the report
      std::fprintf(stderr, "%s\n", loop::to_string(kernel).c_str());
  start = std::chrono::steady_clock::now();
  std::unique_ptr<Executable> executable =
      std::make_unique<Executable>(std::move(scheduled), kTarget, options);
  times.codegen = milliseconds_since(start);
  executable->times = times;
  return executable;
}

std::unique_ptr<Executable> finish_backward(ir::Graph& backward, const ir::Graph& forward_graph,
                                            const Executable& forward, const Options& options) {
  std::vector<ir::Sizes> saved;
  size_t number = 0;  // among the outputs of the program: those that exist
  for (const ir::Output& output : forward_graph.outputs()) {
    bool is_saved = output.kind == ir::OutputKind::saved && output.value->type.is_tensor();
    if (is_saved) saved.push_back(forward.output_strides()[number]);
    number += output.value != nullptr || output.kind == ir::OutputKind::saved_size;
  }
  size_t next = 0;
  for (ir::Value* input : backward.inputs()) {
    if (!input->type.is_tensor() || next == saved.size()) continue;
    bool is_plain = saved[next] == ir::contiguous_strides(input->type.sizes);
    input->type.strides = is_plain ? ir::Sizes() : saved[next];
    ++next;
  }
  return finish(backward, options);
}

std::unique_ptr<Executable> compile(ir::Graph& graph, const Options& options) {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  PassCtx ctx;
  run_passes(graph, options, ctx);
  double passes = milliseconds_since(start);
  std::unique_ptr<Executable> executable = finish(graph, options);
  executable->times.passes = passes;
  return executable;
}

}  // namespace tandem::driver
