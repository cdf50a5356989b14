// A text compiled as forward and backward. Positions join the two: forward gives results, saved
// values, then saved sizes; backward takes sizes, saved values, inputs that it writes, then
// tangents, and gives the gradients that exist. A saved value that is an input or a result is not
// kept here: the caller has that tensor, and only the caller can notice that somebody wrote to it.
#include "driver/graph_function.h"
#include "driver/reproducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/archive.h"
#include "base/file_cache.h"
#include "base/flags.h"
#include "driver/image.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "runtime/constants.h"
#include "runtime/fork.h"
#include "runtime/overlap.h"
#include "runtime/parallel_for.h"

namespace tandem::driver {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;

size_t count(const ir::Graph& graph, ir::OutputKind kind) {
  return static_cast<size_t>(
      std::count_if(graph.outputs().begin(), graph.outputs().end(),
                    [&](const ir::Output& output) { return output.kind == kind; }));
}

bool is_argument(const ir::Value* input) {
  return !input->constant && input->role != ir::Role::seed;
}

size_t argument_number(const ir::Graph& graph, const ir::Value* input) {
  const std::vector<ir::Value*>& inputs = graph.inputs();
  return static_cast<size_t>(std::count_if(
      inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(input->index), is_argument));
}

/// Inputs that the graph writes, in the order of its write-backs. Constants are no arguments.
std::vector<Mutation> mutations_of(const ir::Graph& graph) {
  std::vector<Mutation> found;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    if (node->op->mutates())
      found.push_back({argument_number(graph, std::get<ir::Value*>(node->args[0])), false});
  return found;
}

Options compile_options(const FunctionOptions& options) {
  Options compile;
  if (options.differentiate) {
    compile.gradients = Gradients::tangents;
    compile.partition = options.partition;
    compile.budget = options.budget;
    compile.caller_partition = options.caller_partition;
    compile.storage = options.storage;
    compile.derivative = options.derivative;
  }
  compile.joint_passes = options.joint_passes;
  compile.target = options.target;
  compile.freeze = options.freeze;
  compile.report = options.report;
  compile.tune = options.tune;
  compile.own_outputs = true;
  compile.share_outputs = true;
  return compile;
}

/// Somebody wants to see what the compiler does: then it must do it.
bool is_observed() {
  return flag_dump().when != DumpFlag::When::never || flag_time() || flag_verify() ||
         !flag_log().empty() || !flag_stop_after().empty() || flag_bisect() || flag_bisect_steps();
}

/// All that a compiled function depends on but its text.
CacheKey context_of(const FunctionOptions& options) {
  CacheKey key = key_of(target_of(compile_options(options)));
  const auto add = [&](std::string name, std::string value) {
    key.push_back({std::move(name), std::move(value)});
  };
  add("optimization", std::to_string(flag_opt()));
  add("differentiates", options.differentiate ? "yes" : "no");
  add("memory_budget",
      fmt::format("{} {}", passes::name_of(options.partition), passes::to_string(options.budget)));
  // Scratch is held for each thread, so which choice holds least depends on how many there are.
  if (options.partition == Partition::budget) add("threads", std::to_string(runtime::threads()));
  if (options.partition == Partition::caller)
    add("partition " + options.caller_partition.name, options.caller_partition.identity);
  add("save_activations", passes::to_string(options.storage));
  add("derivative", std::to_string(options.derivative));
  add("freeze", options.freeze ? "yes" : "no");
  add("report", options.report ? "yes" : "no");
  add("tune", options.tune ? "yes" : "no");
  for (const passes::CallerPass& pass : options.joint_passes)
    add("joint pass " + pass.name, pass.identity);
  add("flags", flags_cache_key());
  return key;
}

/// The first pass of the caller that nothing tells from others; empty where there is none.
std::string unknown_pass(const FunctionOptions& options) {
  for (const passes::CallerPass& pass : options.joint_passes)
    if (pass.identity.empty()) return pass.name;
  const bool is_unknown =
      options.partition == Partition::caller && options.caller_partition.identity.empty();
  return is_unknown ? options.caller_partition.name : "";
}

/// Of a graph that is compiled now; `cache` may be off.
std::string why_not_cached(const FileCache& cache, std::string_view text,
                           const FunctionOptions& options) {
  const std::string unknown = unknown_pass(options);
  if (!unknown.empty())
    return "bypassed: joint pass '" + unknown + "' has no identity that a later process knows";
  if (is_observed()) return "bypassed: TANDEM_* flags want to see the compiler at work";
  if (!cache.is_on())
    return flag_cache_dir().empty() ? "bypassed: TANDEM_CACHE_DIR names no folder"
                                    : "bypassed: the folder cannot be made or trusted";
  const std::string why = options.report ? cache.explain_miss(text) : "";
  return why.empty() ? "miss" : "miss: the nearest entry differs in " + why;
}

/// Null where the bytes are no image.
std::optional<FunctionImage> image_of(const std::optional<std::string>& bytes) {
  if (!bytes) return std::nullopt;
  FunctionImage image;
  ArchiveReader archive(*bytes);
  fields(archive, image);
  if (!archive.is_complete() || image.programs.empty()) return std::nullopt;
  return image;
}

std::string bytes_of(FunctionImage& image) {
  ArchiveWriter archive;
  fields(archive, image);
  return archive.take();
}

}  // namespace

int64_t Saved::bytes() const {
  int64_t total = 0;
  for (const Result& value : values)
    if (const Array* array = std::get_if<Array>(&value)) total += array->nbytes();
  return total;
}

void Saved::release() {
  values.clear();
  is_alive = false;
}

Saved Saved::take() {
  Saved taken = std::move(*this);
  taken.is_alive = is_alive;
  release();
  return taken;
}

GraphFunction::GraphFunction(std::string_view text, const FunctionOptions& options)
    : text_(text), options_(options), threads_(options.threads) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const runtime::ForkHold hold;
  check_flags();
  const bool is_beside = is_observed() || !unknown_pass(options).empty();
  const FileCache cache(is_beside ? "" : flag_cache_dir(), "function", context_of(options));
  std::optional<FunctionImage> known = image_of(cache.find(text));
  if (known && !serves(known->assumed, options.hints)) known.reset();
  cache_state_ = known ? "hit" : why_not_cached(cache, text, options);
  if (known) {
    pass_time_ = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    text_ = bound_text(text, known->assumed);
    load(std::move(*known), {}, options);
    return;
  }
  std::vector<Times> times;
  FunctionImage image = compiled_for(text_, options, times);
  if (cache.is_on()) cache.store(text, bytes_of(image));
  load(std::move(image), times, options);
}

FunctionImage GraphFunction::compiled_for(std::string& text, const FunctionOptions& options,
                                          std::vector<Times>& times) {
  const std::string any = text;
  ir::Bindings assumed = tied(options.hints);
  while (true) {
    try {
      text = bound_text(any, assumed);
      shape_ = {};
      FunctionImage image = with_reproducer(text, [&] { return compiled(text, options, times); });
      image.assumed = std::move(assumed);
      return image;
    } catch (const UserError& error) {
      if (!add_unknown(error, options.hints, assumed)) throw;
    }
  }
}

FunctionImage GraphFunction::compiled(std::string_view text, const FunctionOptions& options,
                                      std::vector<Times>& times) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  if (module->graphs().empty()) throw UserError("the text holds no graph");
  ir::Graph& graph = *module->graphs()[0];
  const Options compile = compile_options(options);
  GraphCtx ctx;
  run_passes(graph, compile, ctx);
  pass_time_ = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  find_shape(graph);
  const ir::Graph& signature = *module->find(ir::GraphRole::Kind::signature, graph);
  shape_.replay = replay_of(signature);
  shape_.signature = describe_signature(signature);
  find_handed_on(signature);
  shape_.gradient_inputs = std::move(ctx.gradient_inputs);
  FunctionImage image;
  Building forward(graph, compile);
  find_saved(forward.program());
  std::optional<Building> second;
  if (options.differentiate) {
    ir::Graph& backward = *module->find(ir::GraphRole::Kind::backward, graph);
    find_backward(backward, graph);
    if (std::count(shape_.has_gradient.begin(), shape_.has_gradient.end(), 1) > 0 ||
        !shape_.later.empty()) {
      forward.go_on_beside();
      take_saved_strides(backward, graph, forward.output_strides());
      second.emplace(backward, compile);
    }
  }
  const auto add = [&](Built built) {
    times.push_back(built.times);
    image.programs.push_back(std::move(built.image));
  };
  add(forward.take());
  if (second) add(second->take());
  image.shape = shape_;
  image.products = std::move(ctx.products);
  image.decisions = {std::move(ctx.cut), std::move(ctx.cut_table), std::move(ctx.joint)};
  return image;
}

void GraphFunction::load(FunctionImage image, const std::vector<Times>& times,
                         const FunctionOptions& options) {
  shape_ = std::move(image.shape);
  products_ = std::move(image.products);
  decisions_ = std::move(image.decisions);
  assumed_ = std::move(image.assumed);
  options_.hints = {};
  for (size_t i = 0; i < image.programs.size(); ++i) {
    Built built;
    built.image = std::move(image.programs[i]);
    if (i < times.size()) built.times = times[i];
    std::unique_ptr<Executable>& part = i == 0 ? forward_ : backward_;
    part = std::make_unique<Executable>(std::move(built));
    part->loaded().set_host_functions(options.host_functions);
    part->loaded().set_checks_overlap(!options.caller_checks_overlap);
    if (options.differentiate) part->loaded().set_memory(runtime::ProgramMemory::blocks);
    if (options.report) part->loaded().start_memory_trace();
  }
}

void GraphFunction::find_shape(const ir::Graph& forward) {
  for (const ir::Value* input : forward.inputs()) {
    if (!is_argument(input)) continue;
    shape_.names.push_back(input->name);
    shape_.reads.push_back(!input->type.is_tensor() || !input->uses.empty());
  }
  shape_.inputs = shape_.names.size();
  shape_.results = count(forward, ir::OutputKind::output);
  shape_.takes_seed = std::any_of(forward.inputs().begin(), forward.inputs().end(),
                                  [](const ir::Value* v) { return v->role == ir::Role::seed; });
  shape_.saved_sizes = count(forward, ir::OutputKind::saved_size);
  shape_.mutations = mutations_of(forward);
  shape_.has_tangent.assign(shape_.results, 0);
  shape_.has_gradient.assign(shape_.inputs, 0);
}

void GraphFunction::find_handed_on(const ir::Graph& signature) {
  for (const ir::Value* value : signature.inputs()) {
    if (value->role != ir::Role::result || value->within.base.empty()) continue;
    const auto input = std::ranges::find(shape_.names, value->within.base);
    TD_CHECK(input != shape_.names.end()) << value->within.base << " is no argument";
    shape_.handed_on.push_back(
        {value->subject.number, static_cast<size_t>(input - shape_.names.begin())});
  }
}

void GraphFunction::find_backward(const ir::Graph& backward, const ir::Graph& forward) {
  for (const ir::Value* input : backward.inputs()) {
    if (input->role == ir::Role::later)
      shape_.later.push_back(argument_number(forward, forward.inputs().at(input->subject.number)));
    if (input->role != ir::Role::tangent) continue;
    shape_.tangents.push_back(input->name);
    mark_tangent(input->subject, forward);
  }
  for (const ir::Output& output : backward.outputs()) {
    if (output.value == nullptr || output.subject.kind != ir::Subject::Kind::input) continue;
    const ir::Value* input = forward.inputs().at(output.subject.number);
    if (is_argument(input)) shape_.has_gradient.at(argument_number(forward, input)) = 1;
  }
  shape_.has_backward = std::count(shape_.has_tangent.begin(), shape_.has_tangent.end(), 1) > 0 ||
                        std::any_of(shape_.mutations.begin(), shape_.mutations.end(),
                                    [](const Mutation& mutation) { return mutation.has_tangent; });
}

void GraphFunction::mark_tangent(ir::Subject subject, const ir::Graph& forward) {
  if (subject.kind == ir::Subject::Kind::output) shape_.has_tangent.at(subject.number) = 1;
  if (subject.kind != ir::Subject::Kind::input) return;
  const size_t written = argument_number(forward, forward.inputs().at(subject.number));
  for (Mutation& mutation : shape_.mutations)
    if (mutation.input == written) mutation.has_tangent = true;
}

void GraphFunction::find_saved(const abi::Program& forward) {
  const std::vector<abi::Output>& outputs = forward.outputs;
  const size_t results = shape_.results;
  for (size_t i = results; i < outputs.size(); ++i) {
    const abi::Output& saved = outputs[i];
    SavedPlace place;
    if (saved.kind == abi::Output::Kind::input_view) place = {SavedPlace::Kind::input, saved.input};
    for (size_t k = 0; k < results && place.kind == SavedPlace::Kind::own; ++k)
      if (saved.kind == abi::Output::Kind::tensor && outputs[k].kind == abi::Output::Kind::tensor &&
          outputs[k].ref.buffer == saved.ref.buffer)
        place = {SavedPlace::Kind::output, k};
    shape_.saved_places.push_back(place);
  }
}

int64_t GraphFunction::kept_bytes(const runtime::ConstantSet& constants) {
  return constants.own_bytes() + constants.packed_bytes();
}

std::optional<StepMemory> GraphFunction::memory() const {
  return step_memory(forward_->loaded(), backward_ == nullptr ? nullptr : &backward_->loaded(),
                     shape_.results);
}

StepReport GraphFunction::step_report() const {
  const runtime::LoadedProgram* backward = backward_ == nullptr ? nullptr : &backward_->loaded();
  return {decisions_, step_timeline(forward_->loaded(), backward, shape_.results), options_.target};
}

GraphFunction& GraphFunction::differentiable_backward() {
  const std::lock_guard<std::mutex> lock(compiles_backward_);
  if (differentiable_backward_ == nullptr) {
    FunctionOptions options = options_;
    ++options.derivative;
    differentiable_backward_ = std::make_unique<GraphFunction>(text_, options);
  }
  return *differentiable_backward_;
}

GraphFunction::Forward GraphFunction::forward(std::span<const Argument> arguments,
                                              std::shared_ptr<runtime::ConstantSet> constants) {
  const size_t wanted = shape_.inputs + (shape_.takes_seed ? 1 : 0);
  if (arguments.size() != wanted)
    throw UserError(
        fmt::format("forward takes {} inputs, {} were given", wanted, arguments.size()));
  Forward made;
  made.results = forward_->loaded().run(arguments, std::move(constants));
  if (!shape_.has_backward) {
    made.results.resize(shape_.results);
    return made;
  }
  made.saved = std::make_unique<Saved>();
  for (size_t i = 0; i < shape_.saved_places.size(); ++i) {
    Result& value = made.results[shape_.results + i];
    const bool is_own = shape_.saved_places[i].kind == SavedPlace::Kind::own;
    made.saved->values.push_back(is_own ? std::move(value) : Result(Array()));
  }
  made.results.resize(shape_.results);
  return made;
}

std::vector<Result> GraphFunction::backward(Saved saved, std::span<const Array> borrowed,
                                            std::span<const Array> tangents,
                                            std::span<const Array> later) {
  if (!saved.is_alive)
    throw UserError("backward ran before on this forward and freed what it saved");
  if (backward_ == nullptr) return {};  // results have a history, and all gradients are 0
  const size_t expected = static_cast<size_t>(
      std::count_if(shape_.saved_places.begin(), shape_.saved_places.end(),
                    [](const SavedPlace& p) { return p.kind != SavedPlace::Kind::own; }));
  if (borrowed.size() != expected)
    throw UserError(fmt::format("backward takes {} saved inputs and results, {} were given",
                                expected, borrowed.size()));
  if (later.size() != shape_.later.size())
    throw UserError(
        fmt::format("backward writes {} inputs, {} were given", shape_.later.size(), later.size()));
  // Sizes come last out of forward and first into backward.
  const size_t count = saved.values.size() - shape_.saved_sizes;
  std::vector<Argument> arguments(saved.values.begin() + static_cast<std::ptrdiff_t>(count),
                                  saved.values.end());
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool is_own = shape_.saved_places[i].kind == SavedPlace::Kind::own;
    arguments.push_back(is_own ? std::move(saved.values[i]) : Argument(borrowed[next++]));
  }
  arguments.insert(arguments.end(), later.begin(), later.end());
  arguments.insert(arguments.end(), tangents.begin(), tangents.end());
  runtime::copy_shared(backward_->loaded().written_inputs(), arguments);
  return backward_->run_and_drop(std::move(arguments));
}

}  // namespace tandem::driver
