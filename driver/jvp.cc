// A function and its derivatives. Which tangents the program takes, and which results have a
// derivative, its graph says: tangents name their inputs, derivatives follow the results in order.
#include <fmt/format.h>

#include "driver/api.h"
#include "driver/traced.h"
#include "ops/opdef.h"
#include "runtime/fork.h"

namespace tandem {
namespace {

/// Of the inputs that require a gradient.
std::vector<size_t> tangents_read(const ir::Graph& graph, const std::vector<AotInput>& inputs) {
  std::vector<size_t> read;
  for (const ir::Value* input : graph.inputs()) {
    if (input->role != ir::Role::tangent) continue;
    size_t number = 0;
    for (size_t i = 0; i < input->subject.number; ++i) number += inputs[i].requires_grad;
    read.push_back(number);
  }
  return read;
}

/// By result, whether a derivative of it follows.
std::vector<char> results_with_derivative(const ir::Graph& graph, size_t results) {
  std::vector<char> has(results);
  for (const ir::Output& output : graph.outputs())
    if (output.subject.kind == ir::Subject::Kind::output) has[output.subject.number] = 1;
  return has;
}

}  // namespace

JvpFunction::JvpFunction(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         driver::Options options)
    : seed_(std::make_unique<std::atomic<int64_t>>(0)), data_inputs_(inputs.size()) {
  ir::Module module(ops::op_table());
  ir::Graph& graph = module.add_graph("jvp");
  driver::trace_function(graph, function, inputs);
  const size_t outputs = graph.outputs().size();
  const runtime::ForkHold hold;
  options.gradients = driver::Gradients::forward;
  driver::GraphCtx ctx;
  driver::run_passes(graph, options, ctx);
  for (const AotInput& input : inputs) tangents_ += input.requires_grad;
  for (const ir::Value* input : graph.inputs()) takes_seed_ |= input->role == ir::Role::seed;
  read_ = tangents_read(graph, inputs);
  has_derivative_ = results_with_derivative(graph, outputs);
  program_ = driver::finish(graph, options);
}

JvpFunction::Results JvpFunction::run(std::span<const runtime::Array> inputs,
                                      std::span<const runtime::Array> tangents) {
  if (inputs.size() != data_inputs_ || tangents.size() != tangents_)
    throw UserError(fmt::format("jvp takes {} inputs and {} tangents, {} and {} were given",
                                data_inputs_, tangents_, inputs.size(), tangents.size()));
  std::vector<runtime::Argument> arguments(inputs.begin(), inputs.end());
  if (takes_seed_) arguments.emplace_back(seed_->fetch_add(1));
  for (size_t number : read_) arguments.emplace_back(tangents[number]);
  std::vector<runtime::Result> all = program_->run(arguments);
  const std::ptrdiff_t outputs = static_cast<std::ptrdiff_t>(has_derivative_.size());
  Results results;
  results.outputs.assign(all.begin(), all.begin() + outputs);
  std::vector<runtime::Result>::iterator next = all.begin() + outputs;
  for (char has : has_derivative_) {
    results.derivatives.emplace_back();
    if (has != 0) results.derivatives.back() = std::get<runtime::Array>(std::move(*next++));
  }
  return results;
}

JvpFunction jvp_function(const ModelFunction& function, const std::vector<AotInput>& inputs,
                         const driver::Options& options) {
  return {function, inputs, options};
}

}  // namespace tandem
