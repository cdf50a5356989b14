// Graph to executable: passes, schedule, code, load; each stage timed.
#include <chrono>

#include "base/flags.h"
#include "base/log.h"
#include "driver/compiler.h"
#include "driver/reproducer.h"
#include "driver/tune.h"
#include "ir/text.h"
#include "loop/text.h"
#include "ops/bodies.h"
#include "runtime/fork.h"
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
  for (const std::shared_ptr<abi::Program>& body : program.bodies) for_each_launch(*body, f);
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

/// Launches of the program run its kernels in the interpreter.
std::vector<abi::KernelFunction> interpreted(abi::Program& program,
                                             const std::vector<loop::Kernel>& kernels) {
  for_each_launch(program, [&](abi::Launch& launch) {
    int64_t address = reinterpret_cast<int64_t>(&kernels[launch.kernel]);
    launch.sizes.insert(launch.sizes.begin(), number(address));
    launch.block = {};  // the interpreter runs whole blocks
  });
  return std::vector<abi::KernelFunction>(kernels.size(), interpret_kernel);
}

void take_thread_flag() {
  if (flag_threads() > 0) runtime::set_threads(flag_threads());
}

}  // namespace

Executable::Executable(Built built)
    : times(built.times),
      report(std::move(built.image.report)),
      notes_(std::move(built.image.notes)),
      output_strides_(std::move(built.output_strides)) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  codegen::check_runs_here(built.image.target);
  take_thread_flag();
  kernels_ = std::make_unique<codegen::KernelLibrary>(built.image.kernels);
  setup_kernels_ = std::make_unique<codegen::KernelLibrary>(built.image.setup_kernels);
  loaded_ = std::make_unique<runtime::LoadedProgram>(
      std::move(built.image.program), kernels_->functions(), setup_kernels_->functions());
  times.load = milliseconds_since(start);
}

Executable::Executable(schedule::Scheduled scheduled, InLoopInterpreter)
    : interpreted_(std::move(scheduled.kernels)),
      interpreted_setup_(std::move(scheduled.setup_kernels)),
      notes_(std::move(scheduled.notes)),
      output_strides_(std::move(scheduled.output_strides)) {
  take_thread_flag();
  std::vector<abi::KernelFunction> setup;
  if (scheduled.program.setup != nullptr)
    setup = interpreted(*scheduled.program.setup, interpreted_setup_);
  std::vector<abi::KernelFunction> functions = interpreted(scheduled.program, interpreted_);
  loaded_ = std::make_unique<runtime::LoadedProgram>(std::move(scheduled.program),
                                                     std::move(functions), std::move(setup));
}

namespace {

// TANDEM_ISA is read at each use, as all flags; asking the processor is dear.
const Target& this_machine() {
  const std::optional<std::string> isa = flag_isa();
  if (isa == "avx2") {
    static const Target kLowered = codegen::host_target(isa);
    return kLowered;
  }
  if (isa == "avx512") {
    static const Target kAsked = codegen::host_target(isa);
    return kAsked;
  }
  static const Target kOwn = codegen::host_target(isa);
  return kOwn;
}

}  // namespace

const Target& target_of(const Options& options) {
  return options.target ? *options.target : this_machine();
}

Target target_named(const std::string& cpu) {
  if (std::optional<Target> gpu = codegen::gpu_target(cpu)) return *gpu;
  return codegen::cpu_target(cpu, flag_isa());
}

namespace {

/// With its setup: `tandem schedule --core` takes it up from there.
void dump_before_schedule(const ir::Graph& graph) {
  if (flag_dump().when != DumpFlag::When::before) return;
  std::string text = ops::text_with_bodies(graph);
  if (const ir::Graph* setup = graph.module().find(ir::GraphRole::Kind::setup, graph))
    text += ir::to_string(*setup);
  std::fprintf(stderr, "; before schedule\n%s; end\n", text.c_str());
}

schedule::Scheduled scheduled_graph(const ir::Graph& graph, const Options& options) {
  check_flags();
  dump_before_schedule(graph);
  const Target& target = target_of(options);
  if (options.tune && target.is_gpu())
    throw UserError("[tune] mappings are timed on this machine, and the target is " + target.cpu);
  schedule::Scheduled scheduled = schedule::schedule(
      graph, target, options.tune ? tuner(target) : schedule::Chooser(), options.report);
  for (const schedule::Note& note : scheduled.notes)
    log("schedule", 2, note.place + ": " + note.text);
  if (flag_dump().when == DumpFlag::When::after && flag_dump().argument == "schedule")
    for (const loop::Kernel& kernel : scheduled.kernels)  // setup's are in the report
      std::fprintf(stderr, "%s\n", loop::to_string(kernel).c_str());
  if (options.always_parallel)
    for_each_launch(scheduled.program,
                    [](abi::Launch& launch) { launch.work = number(kLongWork); });
  return scheduled;
}

}  // namespace

namespace {

/// What fails in `work` is told with the graph, which is whole: it is read only.
template <class F>
auto with_reproducer(const ir::Graph& graph, const F& work) {
  try {
    return work();
  } catch (const InternalError& error) {
    throw InternalError(error.what(),
                        "run again: tandem run <this graph>\n" + ops::text_with_bodies(graph));
  }
}

codegen::CompileOptions code_options(const Options& options) {
  codegen::CompileOptions code;
  code.threads = options.compile_threads;
  code.level = options.level < 0 ? flag_opt() : options.level;
  code.cache_dir = flag_cache_dir();
  return code;
}

}  // namespace

Building::Building(const ir::Graph& graph, const Options& options)
    : graph_(graph), code_(code_options(options)) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  scheduled_ = with_reproducer(graph, [&] { return scheduled_graph(graph, options); });
  built_.image.target = target_of(options);
  if (options.report) built_.image.report = schedule::report(scheduled_);
  built_.image.program = std::move(scheduled_.program);
  built_.image.notes = std::move(scheduled_.notes);
  built_.output_strides = std::move(scheduled_.output_strides);
  built_.times.schedule = milliseconds_since(start);
}

namespace {

/// Object code of those kernels that have none yet.
void complete(std::vector<codegen::ObjectCode>& objects, const std::vector<loop::Kernel>& kernels,
              const Target& target, const codegen::CompileOptions& code) {
  objects.resize(kernels.size());
  std::vector<size_t> numbers;
  std::vector<loop::Kernel> missing;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!objects[i].bytes.empty()) continue;
    numbers.push_back(i);
    missing.push_back(kernels[i]);
  }
  std::vector<codegen::ObjectCode> made = codegen::compile_objects(missing, target, code);
  for (size_t i = 0; i < numbers.size(); ++i) objects[numbers[i]] = std::move(made[i]);
}

}  // namespace

void Building::compile(const codegen::CompileOptions& code) {
  Image& image = built_.image;
  complete(image.kernels, scheduled_.kernels, image.target, code);
  if (code.stop.stop_requested()) return;
  complete(image.setup_kernels, scheduled_.setup_kernels, image.target, code);
}

void Building::go_on_beside() {
  if (code_.threads < 2) return;  // the caller's thread is all there is
  std::packaged_task<void(std::stop_token)> work([this](std::stop_token stop) {
    codegen::CompileOptions code = code_;
    code.threads -= 1;
    code.stop = std::move(stop);
    compile(code);
  });
  done_ = work.get_future();
  beside_ = std::jthread(std::move(work));
}

Built Building::take() {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  with_reproducer(graph_, [&] {
    beside_.request_stop();
    if (done_.valid()) done_.get();
    compile(code_);  // what is left, by all threads
  });
  built_.times.codegen = milliseconds_since(start);
  return std::move(built_);
}

Built build(const ir::Graph& graph, const Options& options) {
  return Building(graph, options).take();
}

std::unique_ptr<Executable> finish(const ir::Graph& graph, const Options& options) {
  if (options.interpret)
    return std::make_unique<Executable>(scheduled_graph(graph, options), InLoopInterpreter());
  return std::make_unique<Executable>(build(graph, options));
}

void take_saved_strides(ir::Graph& backward, const ir::Graph& forward,
                        const std::vector<ir::Sizes>& output_strides) {
  std::vector<ir::Sizes> saved;
  size_t number = 0;  // among the outputs of the program: those that exist
  for (const ir::Output& output : forward.outputs()) {
    bool is_saved = output.kind == ir::OutputKind::saved && output.value->type.is_tensor();
    if (is_saved) saved.push_back(output_strides[number]);
    number += output.value != nullptr || output.kind == ir::OutputKind::saved_size;
  }
  size_t next = 0;
  for (ir::Value* input : backward.inputs()) {
    if (!input->type.is_tensor() || next == saved.size()) continue;
    bool is_plain = saved[next] == ir::contiguous_strides(input->type.sizes);
    input->type.strides = is_plain ? ir::Sizes() : saved[next];
    ++next;
  }
}

namespace {

std::unique_ptr<Executable> compile_unguarded(ir::Graph& graph, const Options& options) {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  GraphCtx ctx;
  run_passes(graph, options, ctx);
  double passes = milliseconds_since(start);
  std::unique_ptr<Executable> executable = finish(graph, options);
  executable->times.passes = passes;
  return executable;
}

}  // namespace

std::unique_ptr<Executable> compile(ir::Graph& graph, const Options& options) {
  const runtime::ForkHold hold;
  return with_reproducer("", [&] { return compile_unguarded(graph, options); });
}

}  // namespace tandem::driver
