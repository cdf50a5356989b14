// The road of a compile up to the joint graph, and then writes become results. What an exported
// graph cannot say is refused before anything is rewritten, where functional values still are those
// of the program.
#include "driver/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "driver/compiler.h"
#include "driver/pipeline.h"
#include "driver/replay.h"
#include "passes/reverse_mode.h"

namespace tandem::driver {
namespace {

using ir::Graph;
using ir::Node;
using ir::OutputKind;
using ir::Value;

Value* written(const Node& write_back) { return std::get<Value*>(write_back.args[0]); }

[[noreturn]] void refuse(const std::string& text) { throw UserError("[export] " + text); }

void check_writes(const Graph& graph) {
  for (const Node* node = passes::first_write_back(graph); node != nullptr; node = node->next) {
    const Value* input = written(*node);
    if (input->role == ir::Role::parameter)
      refuse(fmt::format("the parameter %{} is written", input->name));
    if (input->requires_grad && !node->no_grad)
      refuse(fmt::format("%{} requires a gradient, and is written with history", input->name));
  }
}

/// By result, whether it has a history.
std::vector<char> histories(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node* node = graph.first(); node != nullptr; node = node->next) nodes.push_back(node);
  ir::Builder builder(graph);
  passes::ReverseMode reverse(builder);
  for (const Value* input : graph.inputs())
    if (input->requires_grad) reverse.mark(input);
  reverse.find_needs(nodes);
  std::vector<char> found;
  for (const ir::Output& output : graph.outputs())
    found.push_back(output.value != nullptr && reverse.needs(output.value));
  return found;
}

void check_loss(Graph& graph, size_t loss) {
  const std::vector<char> has_history = histories(graph);
  if (loss >= has_history.size())
    refuse(fmt::format("the loss is result {}, and there are {}", loss, has_history.size()));
  const Value* value = graph.outputs()[loss].value;
  if (value == nullptr || value->type.numel() != sym::Expr(1))
    refuse(fmt::format("the loss, result {}, is {}, not one number", loss,
                       value == nullptr ? "none" : to_string(value->type)));
  if (!has_history[loss])
    refuse(fmt::format("the loss, result {}, depends on nothing that requires a gradient", loss));
  for (size_t i = 0; i < has_history.size(); ++i)
    if (i != loss && has_history[i])
      refuse(fmt::format("result {} requires a gradient and is not the loss; detach it", i));
}

void check_is_function(const Graph& signature) {
  for (const Value* input : signature.inputs())
    if (input->writes.any())
      refuse(fmt::format("%{} is written, and a joint graph as a function writes nothing",
                         input->name));
  std::vector<const Value*> known;
  for (const ir::Output& output : signature.outputs()) {
    if (output.value->role != ir::Role::result || std::ranges::count(known, output.value) > 0)
      refuse(fmt::format(
          "result {} is {}, and those of a joint graph as a function are memory of their own",
          known.size(),
          output.value->role == ir::Role::result ? "another one" : describe(*output.value)));
    known.push_back(output.value);
  }
}

/// By what a caller would get; the graph stays as it is.
void check_is_function(Graph& graph, GraphCtx& ctx) {
  const std::vector<ir::Output> outputs = graph.outputs();
  run_pass(graph, *find_pass("share_outputs"), ctx);
  const Graph& signature = *graph.module().find(ir::GraphRole::Kind::signature, graph);
  check_is_function(signature);
  graph.module().erase(signature.name());
  graph.clear_outputs();
  for (const ir::Output& output : outputs) graph.add_output(output);
}

/// The result moves to another number; those between make room.
void move_output(Graph& graph, size_t from, size_t to) {
  std::vector<ir::Output> outputs = graph.outputs();
  const ir::Output moved = outputs[from];
  outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(from));
  outputs.insert(outputs.begin() + static_cast<std::ptrdiff_t>(to), moved);
  graph.clear_outputs();
  for (const ir::Output& output : outputs) graph.add_output(output);
}

void differentiate(Graph& graph, Gradients gradients, GraphCtx& ctx) {
  ctx.gradients = gradients;
  run_pass(graph, *find_pass("body_gradients"), ctx);
  run_pass(graph, *find_pass("joint"), ctx);
  run_pass(graph, *find_pass("join_later_inputs"), ctx);
}

void differentiate_loss(Graph& graph, size_t loss, GraphCtx& ctx) {
  move_output(graph, loss, 0);
  differentiate(graph, Gradients::ones, ctx);
  move_output(graph, 0, loss);
  for (const ir::Output& output : graph.outputs()) {
    if (output.kind != OutputKind::gradient || output.value != nullptr) continue;
    const Value* input = graph.inputs().at(output.subject.number);
    if (input->role == ir::Role::parameter && input->requires_grad)
      refuse(fmt::format("the parameter %{} gets no gradient from the loss", input->name));
  }
}

/// A tangent for each result with a history.
void differentiate_results(Graph& graph, GraphCtx& ctx) {
  if (std::ranges::count(histories(graph), 1) == 0)
    refuse("no result depends on an input that requires a gradient");
  differentiate(graph, Gradients::tangents, ctx);
}

/// Write-backs become the first results. Results that are none go.
void lift_writes(Graph& graph) {
  const std::vector<ir::Output> outputs = graph.outputs();
  graph.clear_outputs();
  std::vector<Node*> writes;
  for (Node* node = passes::first_write_back(graph); node != nullptr; node = node->next)
    writes.push_back(node);
  for (Node* node : writes) {
    graph.add_output(std::get<Value*>(node->args[1]), OutputKind::mutated_input,
                     written(*node)->name);
    graph.erase(node);
  }
  for (const ir::Output& output : outputs)
    if (output.value != nullptr) graph.add_output(output);
}

const Value* input_named(const Graph& graph, const std::string& name) {
  const auto found =
      std::ranges::find_if(graph.inputs(), [&](const Value* input) { return input->name == name; });
  return *found;
}

void note_inputs(const Graph& graph, ExportSignature& signature) {
  for (const Value* input : graph.inputs()) {
    if (input->role == ir::Role::parameter)
      signature.parameters.emplace_back(input->name, input->target);
    else if (input->role == ir::Role::buffer)
      signature.buffers.emplace_back(input->name, input->target);
    else if (input->role == ir::Role::tangent)
      signature.tangents.emplace_back(input->name, input->subject.number);
    else if (input->role != ir::Role::seed)
      signature.user_inputs.push_back(input->name);
  }
}

void note_results(const Graph& graph, ExportSignature& signature) {
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    if (output.kind == OutputKind::output) signature.user_outputs.push_back(i);
    if (output.kind != OutputKind::mutated_input && output.kind != OutputKind::gradient) continue;
    const Value* input = input_named(graph, output.name);
    const bool is_gradient = output.kind == OutputKind::gradient;
    if (input->role == ir::Role::parameter || input->role == ir::Role::buffer)
      (is_gradient ? signature.gradients_to_parameters : signature.buffers_to_mutate)
          .emplace_back(i, input->target);
    else
      (is_gradient ? signature.gradients_to_user_inputs : signature.user_inputs_to_mutate)
          .emplace_back(i, input->name);
  }
}

std::string line(std::string_view what, const std::vector<ExportSignature::Named>& pairs) {
  std::string text;
  for (const auto& [input, name] : pairs)
    text += fmt::format("{} %{}: \"{}\"\n", what, input, name);
  return text;
}

std::string line(std::string_view what, const std::vector<ExportSignature::Result>& pairs) {
  std::string text;
  for (const auto& [number, name] : pairs)
    text += fmt::format("result {}: {} \"{}\"\n", number, what, name);
  return text;
}

}  // namespace

ExportSignature export_graph(Graph& graph, const ExportOptions& options) {
  if (options.loss && options.joint) refuse("a joint graph is of a loss or a function, not both");
  GraphCtx ctx;
  ctx.gradients = Gradients::none;
  if (options.joint) check_is_function(graph, ctx);
  run_until_joint(graph, options.loss ? Gradients::ones : Gradients::none, ctx);
  check_writes(graph);
  if (options.loss) check_loss(graph, *options.loss);
  if (options.loss) differentiate_loss(graph, *options.loss, ctx);
  if (options.joint) differentiate_results(graph, ctx);
  lift_writes(graph);
  run_pass(graph, *find_pass("dce"), ctx);
  ExportSignature signature;
  note_inputs(graph, signature);
  note_results(graph, signature);
  if (options.loss) signature.loss_output = signature.user_outputs.at(*options.loss);
  return signature;
}

std::string to_string(const ExportSignature& signature) {
  std::string text = line("parameter", signature.parameters) + line("buffer", signature.buffers);
  for (const std::string& name : signature.user_inputs) text += fmt::format("input %{}\n", name);
  for (const auto& [input, number] : signature.tangents)
    text += fmt::format("tangent %{}: of result {}\n", input, number);
  text += line("new value of buffer", signature.buffers_to_mutate);
  text += line("new value of input", signature.user_inputs_to_mutate);
  for (size_t number : signature.user_outputs)
    text += fmt::format("result {}: {}\n", number,
                        number == signature.loss_output ? "the loss" : "returned");
  text += line("gradient of parameter", signature.gradients_to_parameters);
  return text + line("gradient of input", signature.gradients_to_user_inputs);
}

}  // namespace tandem::driver
