// A text compiled as forward and backward. Positions join the two: forward gives results, saved
// values, then saved sizes; backward takes sizes, saved values, then tangents, and gives the
// gradients that exist. A saved value that is an input or a result is not kept here: the caller has
// that tensor, and only the caller can notice that somebody wrote to it.
#include "driver/graph_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "ir/text.h"
#include "ops/opdef.h"

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

/// What joint gave a tangent: an output by its number ("tangent3"), or an input by its name
/// ("tangent_x").
std::optional<size_t> output_of(std::string_view tangent) {
  const std::string digits(tangent.substr(std::string_view("tangent").size()));
  size_t number = 0;
  const char* end = digits.c_str() + digits.size();
  const std::from_chars_result read = std::from_chars(digits.c_str(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
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
    compile.gradients = "tangents";
    compile.partition = options.partition;
  }
  compile.freeze = options.freeze;
  compile.report = options.report;
  compile.own_outputs = true;
  return compile;
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

GraphFunction::GraphFunction(std::string_view text, const FunctionOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  if (module->graphs().empty()) throw UserError("the text holds no graph");
  ir::Graph& graph = *module->graphs()[0];
  results_ = count(graph, ir::OutputKind::output);
  const Options compile = compile_options(options);
  PassCtx ctx;
  run_passes(graph, compile, ctx);
  pass_time_ = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  inputs_ = static_cast<size_t>(std::ranges::count_if(graph.inputs(), is_argument));
  find_shape(graph);
  forward_ = finish(graph, compile);
  forward_->loaded().set_host_functions(options.host_functions);
  find_saved();
  if (!options.differentiate) return;
  ir::Graph& backward = *module->find(graph.name() + "_backward");
  find_backward(backward);
  has_backward_ = std::count(has_tangent_.begin(), has_tangent_.end(), 1) > 0;
  if (std::count(has_gradient_.begin(), has_gradient_.end(), 1) > 0)
    backward_ = finish_backward(backward, graph, *forward_, compile);
  for (const Mutation& mutation : mutations_) has_backward_ |= mutation.has_tangent;
  if (backward_ != nullptr) backward_->loaded().set_host_functions(options.host_functions);
}

void GraphFunction::find_shape(const ir::Graph& forward) {
  takes_seed_ = std::any_of(forward.inputs().begin(), forward.inputs().end(),
                            [](const ir::Value* v) { return v->role == ir::Role::seed; });
  saved_sizes_ = count(forward, ir::OutputKind::saved_size);
  mutations_ = mutations_of(forward);
  has_tangent_.assign(results_, 0);
  has_gradient_.assign(inputs_, 0);
}

void GraphFunction::find_backward(const ir::Graph& backward) {
  for (const ir::Value* input : backward.inputs()) {
    if (input->role != ir::Role::tangent) continue;
    if (std::optional<size_t> output = output_of(input->name))
      has_tangent_.at(*output) = 1;
    else
      mark_mutation(input->name);
  }
  size_t at = 0;
  for (const ir::Output& output : backward.outputs())
    if (at < inputs_) has_gradient_[at++] = output.value != nullptr;
}

void GraphFunction::mark_mutation(std::string_view tangent) {
  const std::vector<abi::Input>& inputs = forward_->program().inputs;
  for (Mutation& mutation : mutations_)
    if (tangent == "tangent_" + inputs[mutation.input].name) mutation.has_tangent = true;
}

void GraphFunction::find_saved() {
  const std::vector<abi::Output>& outputs = forward_->program().outputs;
  for (size_t i = results_; i < outputs.size(); ++i) {
    const abi::Output& saved = outputs[i];
    SavedPlace place;
    if (saved.kind == abi::Output::Kind::input_view) place = {SavedPlace::Kind::input, saved.input};
    for (size_t k = 0; k < results_ && place.kind == SavedPlace::Kind::own; ++k)
      if (saved.kind == abi::Output::Kind::tensor && outputs[k].kind == abi::Output::Kind::tensor &&
          outputs[k].ref.buffer == saved.ref.buffer)
        place = {SavedPlace::Kind::output, k};
    saved_places_.push_back(place);
  }
}

GraphFunction::Forward GraphFunction::forward(std::span<const Argument> arguments) {
  const size_t wanted = inputs_ + (takes_seed_ ? 1 : 0);
  if (arguments.size() != wanted)
    throw UserError(
        fmt::format("forward takes {} inputs, {} were given", wanted, arguments.size()));
  Forward made;
  made.results = forward_->run(arguments);
  if (!has_backward_) {
    made.results.resize(results_);
    return made;
  }
  made.saved = std::make_unique<Saved>();
  for (size_t i = 0; i < saved_places_.size(); ++i) {
    Result& value = made.results[results_ + i];
    const bool is_own = saved_places_[i].kind == SavedPlace::Kind::own;
    made.saved->values.push_back(is_own ? std::move(value) : Result(Array()));
  }
  made.results.resize(results_);
  return made;
}

std::vector<Result> GraphFunction::backward(const Saved& saved, std::span<const Array> borrowed,
                                            std::span<const Array> tangents) {
  if (!saved.is_alive)
    throw UserError("backward ran before on this forward and freed what it saved");
  if (backward_ == nullptr) return {};  // results have a history, and all gradients are 0
  const size_t expected = static_cast<size_t>(
      std::count_if(saved_places_.begin(), saved_places_.end(),
                    [](const SavedPlace& p) { return p.kind != SavedPlace::Kind::own; }));
  if (borrowed.size() != expected)
    throw UserError(fmt::format("backward takes {} saved inputs and results, {} were given",
                                expected, borrowed.size()));
  // Sizes come last out of forward and first into backward.
  const size_t count = saved.values.size() - saved_sizes_;
  std::vector<Argument> arguments(saved.values.begin() + static_cast<std::ptrdiff_t>(count),
                                  saved.values.end());
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool is_own = saved_places_[i].kind == SavedPlace::Kind::own;
    arguments.push_back(is_own ? saved.values[i] : Argument(borrowed[next++]));
  }
  arguments.insert(arguments.end(), tangents.begin(), tangents.end());
  return backward_->run(arguments);
}

}  // namespace tandem::driver
