// The model function is traced anew for each thing that is made of it, so no graph is shared and
// none needs copying. Layers are found in the graph as it stands after batch norms went into
// convolutions, with the operators whole that the recipe names; what is converted then takes the
// road of every graph.
//
// Each group has one observer, which sees batches in order, and groups are observed side by side:
// so the number of threads changes nothing.
#include "driver/quantize.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/interrupt.h"
#include "driver/model_file.h"
#include "driver/trace.h"
#include "frontend/atomic_file.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/known.h"
#include "quant/convert.h"
#include "runtime/parallel_for.h"

namespace tandem::quant {
namespace {

using driver::GraphCtx;
using driver::GraphPass;
using driver::run_pass;
using runtime::Array;

/// Decomposes all but what the recipe names, so not everything has a gradient afterwards.
constexpr GraphPass kDecomposeOthers{"decompose_composite", passes::decompose_composite,
                                     passes::kFunctional, 0, 0};

void run_named(ir::Graph& graph, std::string_view name, GraphCtx& ctx) {
  run_pass(graph, *driver::find_pass(name), ctx);
}

/// What a node says beside its sizes: integers of views, and of nodes that are made from nothing,
/// are left out, so that a model is the same one for batches of another size.
std::string structure_of(const ir::Node& node) {
  bool reads = false;
  std::string text = "\n" + node.op->name();
  ir::for_each_operand(node.args, [&](const ir::Value* operand) {
    reads = true;
    text += fmt::format(" %{}", operand->id);
  });
  for (const ir::Arg& arg : node.args) {
    const bool is_integer =
        std::holds_alternative<sym::Expr>(arg) || std::holds_alternative<ir::Ints>(arg);
    const bool is_operand =
        std::holds_alternative<ir::Value*>(arg) || std::holds_alternative<ir::Values>(arg);
    if (is_operand || (is_integer && (node.op->is_view() || !reads))) continue;
    text += " " + ir::to_string(arg);
  }
  return text;
}

/// Nodes, and the types and bytes of every weight.
uint64_t hash_of(const ir::Graph& graph, const State& state) {
  std::string text;
  for (const ir::Value* input : graph.inputs()) {
    text += fmt::format("\n{} %{}", input->name, input->id);
    if (!input->constant) continue;
    const Array array = state.at(input->name).contiguous();
    const std::string_view bytes(static_cast<const char*>(array.raw()),
                                 static_cast<size_t>(array.nbytes()));
    text += fmt::format(" {} {:016x}", array.describe(), hash_bytes(bytes));
  }
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    text += structure_of(*node);
  for (const ir::Output& output : graph.outputs())
    if (output.value != nullptr) text += fmt::format("\nreturn %{}", output.value->id);
  return hash_bytes(text);
}

/// Of everything that the recipe says, however it is written.
uint64_t hash_of(const Recipe& recipe) { return hash_bytes(to_text(recipe)); }

void check_layers(const Annotation& annotation, const Recipe& recipe) {
  if (!annotation.layers.empty()) return;
  std::vector<Diagnostic> problems{
      {fmt::format("[annotate] recipe '{}' finds no layer in the model", recipe.name), ""}};
  for (const std::string& note : annotation.notes) problems.push_back({note, ""});
  throw UserError(std::move(problems));
}

/// One observer, and the results of the instrumented program that it sees.
struct Observed {
  const Group* group = nullptr;
  std::unique_ptr<Observer> observer;
  std::vector<size_t> results;
};

/// A program that returns the values of groups, and their observers.
class Instrumented {
 public:
  /// Groups of constants, or of all other values.
  Instrumented(const Model& model, const Recipe& recipe, bool constants)
      : annotated_(annotate(model, recipe)) {
    std::vector<ir::Value*> values;
    for (const Group& group : annotated_.annotation.groups) {
      if (!is_observed(group) || group.spec.constant != constants) continue;
      Observed observed{&group, make_observer(group.spec, parts_of(group)), {}};
      for (ir::Value* value : group.values) {
        observed.results.push_back(
            static_cast<size_t>(std::ranges::find(values, value) - values.begin()));
        if (observed.results.back() == values.size()) values.push_back(value);
      }
      observed_.push_back(std::move(observed));
    }
    if (values.empty()) return;
    instrument(*annotated_.graph, values);
    driver::Options options;
    options.freeze = true;
    options.own_outputs = true;
    program_.emplace(driver::compile(*annotated_.graph, options), *model.state,
                     model.inputs.size());
  }

  bool is_empty() const { return observed_.empty(); }

  void observe(std::span<const Array> batch) {
    std::vector<Array> values;
    for (const runtime::Result& result : program_->run(batch))
      values.push_back(std::get<Array>(result).contiguous());
    runtime::parallel_for(static_cast<int64_t>(observed_.size()), [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i) observe(observed_[static_cast<size_t>(i)], values);
    });
  }

  void add_to(Statistics& statistics) const {
    Diagnostics problems;
    for (const Observed& observed : observed_) {
      const Group& group = *observed.group;
      if (observed.observer->seen() == 0) {
        problems.add(fmt::format("[calibrate] group '{}' saw no value", group.name));
        continue;
      }
      statistics.groups[group.name] = {std::string(name_of(group.spec.observer)),
                                       observed.observer->seen(), observed.observer->range()};
    }
    problems.finish();
  }

 private:
  static void observe(Observed& observed, const std::vector<Array>& values) {
    for (const size_t number : observed.results) {
      const Array& value = values[number];
      try {
        observed.observer->observe({value.data<float>(), static_cast<size_t>(value.numel())},
                                   inner_of(*observed.group));
      } catch (const UserError& error) {
        throw UserError(
            fmt::format("[calibrate] group '{}': {}", observed.group->name, error.what()));
      }
    }
  }

  Annotated annotated_;
  std::vector<Observed> observed_;
  std::optional<BoundProgram> program_;
};

/// What a program of constants takes and does not read.
std::vector<Array> nothing_for(const Model& model) {
  std::vector<Array> arrays;
  for (const InputSpec& input : model.inputs)
    arrays.push_back(Array::zeros(input.dtype, input.sizes));
  return arrays;
}

void check_same(const Statistics& statistics, const Annotated& annotated, const Recipe& recipe) {
  Diagnostics problems;
  if (statistics.model_hash != annotated.model_hash)
    problems.add(
        "[convert] the statistics are of another model: its graph or its weights changed after "
        "calibration");
  if (statistics.recipe_hash != hash_of(recipe))
    problems.add(fmt::format(
        "[convert] the statistics are of another recipe, '{}': '{}' differs, calibrate again",
        statistics.recipe, recipe.name));
  problems.finish();
}

struct ConvertedGraph {
  Annotated annotated;
  Converted converted;
};

ConvertedGraph converted_graph(const Model& model, const Recipe& recipe,
                               const Statistics& statistics, const std::set<std::string>& skip) {
  ConvertedGraph made{annotate(model, recipe), {}};
  check_same(statistics, made.annotated, recipe);
  made.converted = convert(*made.annotated.graph, made.annotated.annotation, statistics, skip);
  return made;
}

/// Scales as arrays of the sizes that the graph's constants have.
runtime::ConstantValues arrays_of(const ConvertedGraph& made) {
  runtime::ConstantValues arrays;
  for (const ir::Value* input : made.annotated.graph->inputs()) {
    const auto it = made.converted.scales.find(input->name);
    if (it == made.converted.scales.end()) continue;
    std::vector<int64_t> sizes;
    for (const sym::Expr& size : input->type.sizes) sizes.push_back(*size.constant());
    Array array = Array::empty(DType::f32, sizes);
    std::ranges::copy(it->second, array.data<float>());
    arrays.insert_or_assign(input->name, std::move(array));
  }
  return arrays;
}

/// What is quantized and known, in the order of Converted::constants: computed by a program of its
/// own, as setup would.
std::vector<Array> integers_of(const Model& model, const Recipe& recipe,
                               const Statistics& statistics, const std::set<std::string>& skip) {
  const ConvertedGraph made = converted_graph(model, recipe, statistics, skip);
  std::vector<ir::Value*> values;
  for (const Converted::Integers& constant : made.converted.constants)
    values.push_back(constant.value);
  if (values.empty()) return {};
  runtime::ConstantValues scales = arrays_of(made);
  instrument(*made.annotated.graph, values);
  driver::Options options;
  options.freeze = true;
  options.own_outputs = true;
  BoundProgram program(driver::compile(*made.annotated.graph, options), *model.state,
                       model.inputs.size(), std::move(scales));
  std::vector<Array> arrays;
  for (const runtime::Result& result : program.run(nothing_for(model)))
    arrays.push_back(std::get<Array>(result).contiguous());
  return arrays;
}

ir::Value* constant_in_place_of(ir::Graph& graph, const Converted::Integers& integers) {
  ir::Value* input = graph.add_input(
      graph.free_input_name(integers.name + ".q"),
      ir::Type::tensor(integers.value->type.dtype, integers.value->type.sizes), ir::Role::buffer);
  input->constant = true;
  graph.replace_all_uses(integers.value, input);
  return input;
}

void erase_unread_weights(ir::Graph& graph) {
  const ir::Values inputs = graph.inputs();
  for (ir::Value* input : inputs)
    if (input->constant && input->uses.empty()) graph.erase_input(input);
}

driver::Traced graph_of(const Model& model) {
  if (model.text.empty()) return driver::trace_model(model.function, model.inputs, false);
  driver::Traced read;
  read.module = ir::parse_module(model.text, ops::op_table());
  if (read.module->graphs().size() != 1)
    throw UserError(fmt::format("[quantize] the text has {} graphs, a model is one",
                                read.module->graphs().size()));
  read.graph = read.module->graphs()[0].get();
  return read;
}

/// A model in a file says itself what it writes.
void check_frozen(const ir::Graph& graph) {
  Diagnostics problems;
  for (const ir::Value* input : graph.inputs())
    if ((input->role == ir::Role::parameter || input->role == ir::Role::buffer) && !input->constant)
      problems.add(
          fmt::format("[quantize] %{} is no constant: the model writes it, or its sizes "
                      "are not known",
                      input->name));
  problems.finish();
}

}  // namespace

BoundProgram compile_plain(const Model& model) {
  driver::Traced traced = graph_of(model);
  driver::Options options;
  options.freeze = true;
  return {driver::compile(*traced.graph, options), *model.state, model.inputs.size()};
}

Annotated annotate(const Model& model, const Recipe& recipe) {
  driver::Traced traced = graph_of(model);
  Annotated annotated;
  annotated.module = std::move(traced.module);
  annotated.graph = traced.graph;
  GraphCtx ctx;
  ctx.kept = recipe.op_names();
  run_named(*annotated.graph, "functionalize", ctx);
  run_named(*annotated.graph, "freeze", ctx);
  if (!model.text.empty()) check_frozen(*annotated.graph);
  run_pass(*annotated.graph, kDecomposeOthers, ctx);
  for (const std::string_view name : {"cse", "dce", "fold_batch_norm", "dce"})
    run_named(*annotated.graph, name, ctx);
  const passes::KnownValues known(*annotated.graph);
  annotated.annotation =
      annotate(*annotated.graph, recipe, [&](const ir::Value* value) { return known.has(value); });
  annotated.model_hash = hash_of(*annotated.graph, *model.state);
  check_layers(annotated.annotation, recipe);
  return annotated;
}

BatchSource source_of(const std::vector<std::vector<Array>>& batches) {
  return [&batches, next = size_t{0}]() mutable -> std::optional<std::vector<Array>> {
    if (next == batches.size()) return std::nullopt;
    return batches[next++];
  };
}

Statistics calibrate(const Model& model, const Recipe& recipe, const BatchSource& source,
                     const CalibrateOptions& options) {
  Statistics statistics;
  statistics.recipe = recipe.name;
  statistics.recipe_hash = hash_of(recipe);
  statistics.model_hash = annotate(model, recipe).model_hash;
  Instrumented weights(model, recipe, true);
  if (!weights.is_empty()) weights.observe(nothing_for(model));
  Instrumented activations(model, recipe, false);
  int64_t batches = 0;
  while (!activations.is_empty()) {
    poll_interrupt();
    const std::optional<std::vector<Array>> batch = source();
    if (!batch) break;
    activations.observe(*batch);
    if (options.progress) options.progress(++batches);
  }
  weights.add_to(statistics);
  activations.add_to(statistics);
  return statistics;
}

Recipe recipe_of(const std::string& name) {
  return name.ends_with(".toml") ? parse_recipe(driver::read_text(name), name) : recipe_named(name);
}

void save(const Statistics& statistics, const std::string& path) {
  const std::string text = to_text(statistics);
  frontend::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

Statistics load(const std::string& path) { return parse_statistics(driver::read_text(path), path); }

BoundProgram convert(const Model& model, const Recipe& recipe, const Statistics& statistics,
                     const std::set<std::string>& skip) {
  const ConvertedGraph made = converted_graph(model, recipe, statistics, skip);
  runtime::ConstantValues scales = arrays_of(made);
  driver::Options options;
  options.freeze = true;
  return {driver::compile(*made.annotated.graph, options), *model.state, model.inputs.size(),
          std::move(scales)};
}

std::string converted_text(const Model& model, const Recipe& recipe, const Statistics& statistics,
                           const std::set<std::string>& skip) {
  return ir::to_string(*converted_graph(model, recipe, statistics, skip).annotated.graph);
}

StoredModel stored(const Model& model, const Recipe& recipe, const Statistics& statistics,
                   const std::set<std::string>& skip) {
  const std::vector<Array> integers = integers_of(model, recipe, statistics, skip);
  const ConvertedGraph made = converted_graph(model, recipe, statistics, skip);
  ir::Graph& graph = *made.annotated.graph;
  runtime::ConstantValues own = arrays_of(made);
  for (size_t i = 0; i < integers.size(); ++i) {
    const Converted::Integers& constant = made.converted.constants[i];
    ir::Value* input = constant_in_place_of(graph, constant);
    own.insert_or_assign(input->name, integers[i]);
  }
  GraphCtx ctx;
  run_named(graph, "dce", ctx);
  erase_unread_weights(graph);
  StoredModel result{ir::to_string(graph), {}};
  for (const ir::Value* input : graph.inputs()) {
    if (!input->constant) continue;
    const auto it = own.find(input->name);
    result.tensors.insert_or_assign(input->target.empty() ? input->name : input->target,
                                    it == own.end() ? model.state->at(input->name) : it->second);
  }
  return result;
}

}  // namespace tandem::quant
