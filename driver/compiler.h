// The whole road: a graph in, something that runs out.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/pass.h"
#include "base/target.h"
#include "codegen/codegen.h"
#include "ir/graph.h"
#include "passes/passes.h"
#include "runtime/executor.h"
#include "schedule/schedule.h"

namespace tandem::driver {

using passes::Budget;
using passes::Gradients;
using passes::GraphCtx;
using passes::GraphPass;
using passes::Partition;
using passes::QuantizedProduct;

struct Options {
  /// What is compiled for; nothing: this machine, or what TANDEM_ISA makes of it at the time.
  std::optional<Target> target;
  /// Gradients of the inputs that require them become outputs; ones: the first output is a scalar
  /// loss; forward: derivatives of the results along tangents of these inputs do (passes::jvp).
  Gradients gradients = Gradients::none;
  /// Of what `gradients` are asked: 1: the graph; 2: its backward, which is the program then, a
  /// function of inputs and tangents; 3: the backward of that, and so on.
  int derivative = 1;
  /// A training step: what becomes of the gradients instead.
  passes::UpdateRule updates;
  /// Functions of the caller over the joint graph, in order.
  std::vector<passes::CallerPass> joint_passes;
  /// Cuts the joint graph in two. The graph becomes forward, and the module gets a graph
  /// `<name>_backward`; see passes::split.
  /// With `updates` the program stays one, and what a partition would not save is computed again in
  /// it.
  Partition partition = Partition::none;
  Budget budget;                             // of Partition::budget
  passes::CallerPartition caller_partition;  // of Partition::caller
  passes::SavedStorage storage;              // of what forward saves
  /// Inference: parameters and buffers that the program does not write are constants. What depends
  /// on them alone is computed once and library calls read them packed. Their values are given by
  /// Executable::bind_constants. Not with gradients.
  bool freeze = false;
  /// Results are memory of their own, never views of inputs or of one another.
  bool own_outputs = false;
  /// Outputs that share memory are no results, but views in the graph's signature: see
  /// passes::share_outputs.
  bool share_outputs = false;
  int compile_threads = 2;
  int level = -1;                // code generator's level; -1: TANDEM_OPT
  bool interpret = false;        // kernels run in the loop interpreter instead of as machine code
  bool always_parallel = false;  // every launch uses the team, however small: for tests
  bool report = false;           // keep Executable::report
  /// Kernels of known sizes are mapped in the ways that are likely to be fast, timed on this
  /// machine once, and the choice kept in TANDEM_CACHE_DIR. Sums may then be taken in another order
  /// than without: results are equal to rounding, and to the bit for one choice.
  bool tune = false;
};

/// Milliseconds by stage.
struct Times {
  double passes = 0;
  double schedule = 0;
  double codegen = 0;
  double load = 0;
};

/// What a compile made, as data: image.h keeps it between processes.
struct Image {
  Target target;
  abi::Program program;
  std::vector<codegen::ObjectCode> kernels;        // in the order of Program::kernels
  std::vector<codegen::ObjectCode> setup_kernels;  // of Program::setup
  std::vector<schedule::Note> notes;
  std::string report;  // what was decided and every kernel, where options asked for it
};

struct Built {
  Image image;
  std::vector<ir::Sizes> output_strides;  // by output of the program
  Times times;
};

struct InLoopInterpreter {};

/// A compiled graph in this process.
class Executable {
 public:
  /// Links the code and loads the program. Throws UserError where it is of another machine, whose
  /// instructions this one lacks.
  explicit Executable(Built built);
  /// Kernels run in the loop interpreter.
  Executable(schedule::Scheduled scheduled, InLoopInterpreter);
  std::vector<runtime::Result> run(std::span<const runtime::Argument> arguments) {
    return loaded_->run(arguments);
  }
  /// See LoadedProgram.
  std::vector<runtime::Result> run_and_drop(std::vector<runtime::Argument> arguments) {
    return loaded_->run_and_drop(std::move(arguments));
  }
  /// Values of constants, which the program needs before its first call; see LoadedProgram.
  void bind_constants(const runtime::ConstantValues& values) { loaded_->bind_constants(values); }
  /// After constants were written in place.
  void refresh() { loaded_->refresh(); }
  const abi::Program& program() const { return loaded_->program(); }
  runtime::LoadedProgram& loaded() { return *loaded_; }
  const runtime::LoadedProgram& loaded() const { return *loaded_; }
  const std::vector<schedule::Note>& notes() const { return notes_; }
  /// How results lie, by output of the program; not of an image from a cache.
  const std::vector<ir::Sizes>& output_strides() const { return output_strides_; }
  Times times;
  std::string report;

 private:
  std::vector<loop::Kernel> interpreted_;
  std::vector<loop::Kernel> interpreted_setup_;
  std::unique_ptr<codegen::KernelLibrary> kernels_;
  std::unique_ptr<codegen::KernelLibrary> setup_kernels_;
  std::unique_ptr<runtime::LoadedProgram> loaded_;
  std::vector<schedule::Note> notes_;
  std::vector<ir::Sizes> output_strides_;
};

/// The pipeline on one page: pipeline.cc. Runs over `graph` in place.
void run_passes(ir::Graph& graph, const Options& options, GraphCtx& ctx);
/// Of a graph of the role signature: its views become a program that gives views of its arguments.
void run_signature_passes(ir::Graph& signature);
/// One pass by name, for `tandem opt` and tests; null when unknown.
const GraphPass* find_pass(std::string_view name);
std::vector<std::string_view> pass_names();
/// Runs one pass with facts checked, dumps and times as the flags ask.
void run_pass(ir::Graph& graph, const GraphPass& pass, GraphCtx& ctx);

/// What the options say, or this machine.
const Target& target_of(const Options& options);
/// A processor by LLVM's name, for Options::target; TANDEM_ISA=avx2 lowers it. Or a GPU ("sm_90"),
/// for which graphs are scheduled, and interpreted, but not compiled yet. Throws UserError.
Target target_named(const std::string& cpu);
/// A graph that the passes have seen on its way to object code: scheduled when it is made, which
/// says how results lie, compiled when it is taken.
class Building {
 public:
  Building(const ir::Graph& graph, const Options& options);
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

  const abi::Program& program() const { return built_.image.program; }
  const std::vector<ir::Sizes>& output_strides() const { return built_.output_strides; }
  /// Code generation begins in another thread, where options leave more than one, while the caller
  /// schedules what comes next. Ends with the kernel at hand when it is taken or thrown away.
  void go_on_beside();
  /// Once, with what is left to compile. The time of code generation is what the caller waits for.
  Built take();

 private:
  void compile(const codegen::CompileOptions& code);

  const ir::Graph& graph_;
  codegen::CompileOptions code_;
  schedule::Scheduled scheduled_;
  Built built_;
  std::future<void> done_;
  std::jthread beside_;  // the last member: it is joined while the others live
};

/// Schedule and code generation for a graph that the passes have seen.
Built build(const ir::Graph& graph, const Options& options);
/// The same, loaded.
std::unique_ptr<Executable> finish(const ir::Graph& graph, const Options& options);
/// Before the backward graph of a partition is built: its inputs get the strides of what the
/// program of `forward`, with results that lie so, saves.
void take_saved_strides(ir::Graph& backward, const ir::Graph& forward,
                        const std::vector<ir::Sizes>& output_strides);
/// Passes, schedule, code generation, load. Changes `graph`. Throws UserError.
std::unique_ptr<Executable> compile(ir::Graph& graph, const Options& options);

}  // namespace tandem::driver
