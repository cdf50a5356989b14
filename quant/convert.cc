// For a value x with scale s and zero point z, what a layer reads becomes
//   dequantize(quantize(x, s, z), s, z)
// One pair serves all readers in a group. A result that is quantized goes through its pair for all
// its readers, and readers of the same group need no second one.
//
// Weights are quantized in the graph, from constants, so setup computes their integers once, and a
// weight keeps its one place: the state.
#include "quant/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/dense_map.h"
#include "base/diagnostic.h"
#include "ops/tensor.h"

namespace tandem::quant {
namespace {

using ir::Value;
using ops::Tensor;

int64_t number(const sym::Expr& size) { return size.constant().value_or(0); }

/// The text of a graph has names of letters, digits, points and underscores.
std::string input_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';
  return name;
}

class Converter {
 public:
  Converter(ir::Graph& graph, const Annotation& annotation, const Statistics& statistics,
            const std::set<std::string>& skip)
      : graph_(&graph), annotation_(&annotation), statistics_(&statistics) {
    for (const Layer& layer : annotation.layers) {
      const bool loses_operand =
          std::ranges::any_of(layer.after, [&](size_t producer) { return skipped_[producer]; });
      skipped_.push_back(skip.count(layer.name) != 0 || loses_operand);
    }
    check_names(skip);
    check_coverage();
  }

  Converted run() {
    for (const Place& place : annotation_->places)
      if (!skipped_[place.layer] && place.is_output()) quantize_result(place);
    for (const Place& place : annotation_->places)
      if (!skipped_[place.layer] && !place.is_output()) quantize_operand(place);
    return std::move(converted_);
  }

 private:
  void check_names(const std::set<std::string>& skip) const {
    Diagnostics problems;
    for (const std::string& name : skip)
      if (std::ranges::none_of(annotation_->layers,
                               [&](const Layer& layer) { return layer.name == name; }))
        problems.add(fmt::format("[convert] there is no layer '{}' to leave in f32", name));
    problems.finish();
  }

  /// A group without statistics is an error, never a guess.
  void check_coverage() const {
    Diagnostics problems;
    std::set<size_t> seen;
    for (const Place& place : annotation_->places) {
      const Group& group = annotation_->groups[place.group];
      if (skipped_[place.layer] || !is_observed(group) || !seen.insert(place.group).second)
        continue;
      const auto it = statistics_->groups.find(group.name);
      if (it == statistics_->groups.end()) {
        problems.add(
            fmt::format("[convert] statistics have no group '{}': its values were not "
                        "observed",
                        group.name));
        continue;
      }
      const size_t parts = it->second.range.low.size();
      if (static_cast<int64_t>(parts) != parts_of(group))
        problems.add(fmt::format("[convert] group '{}' has {} scales, its statistics have {}",
                                 group.name, parts_of(group), parts));
    }
    problems.finish();
  }

  void quantize_result(const Place& place) {
    const std::vector<ir::Use> readers = place.value->uses;
    Value* quantized = pair_behind(*place.value, place.group);
    for (const ir::Use& use : readers) {
      if (use.node == nullptr)
        graph_->set_output(use.arg, quantized);
      else
        set_operand(use, quantized);
    }
    results_[place.value] = {quantized, place.group};
  }

  void quantize_operand(const Place& place) {
    Value* value = place.value;
    if (const Result* result = results_.find(value);
        result != nullptr && result->value != nullptr) {
      if (result->group == place.group) return;
      value = result->value;
    }
    Value*& quantized = pairs_[{value->id, place.group}];
    if (quantized == nullptr) quantized = pair_behind(*value, place.group);
    set_operand(place.use, quantized);
  }

  void set_operand(const ir::Use& use, Value* value) {
    ir::Arg arg = use.node->args[use.arg];
    if (ir::Values* many = std::get_if<ir::Values>(&arg))
      (*many)[use.element] = value;
    else
      arg = value;
    graph_->set_arg(use.node, use.arg, std::move(arg));
  }

  /// Quantize and dequantize, right behind the value.
  Value* pair_behind(Value& value, size_t number) {
    ir::Builder builder(*graph_, value.node == nullptr ? graph_->first() : value.node->next);
    if (value.node != nullptr) builder.stamp() = ir::Builder::stamp_of(*value.node);
    const Group& group = annotation_->groups[number];
    if (group.spec.dynamic) return dynamic_pair(builder, value, group.spec);
    Value* pair = calibrated_pair(builder, value, group);
    if (group.spec.constant)
      converted_.constants.push_back(
          {input_name(group.name), std::get<Value*>(pair->node->args[0])});
    return pair;
  }

  Value* calibrated_pair(ir::Builder& builder, Value& value, const Group& group) {
    const Range& range = statistics_->groups.at(group.name).range;
    switch (group.spec.per) {
      case Per::tensor: return tensor_pair(builder, value, group.spec, range);
      case Per::channel: return channel_pair(builder, value, group, range);
      case Per::group: return group_pair(builder, value, group, range);
    }
    return nullptr;
  }

  static Value* tensor_pair(ir::Builder& builder, Value& value, const QSpec& spec,
                            const Range& range) {
    const QParams params = qparams_of(spec, range.low[0], range.high[0]);
    const Tensor q = ops::call(builder, "quantized_decomposed.quantize_per_tensor",
                               {Tensor(builder, &value), params.scale, params.zero_point,
                                spec.quant_min, spec.quant_max, spec.dtype});
    return ops::call(
               builder, "quantized_decomposed.dequantize_per_tensor",
               {q, params.scale, params.zero_point, spec.quant_min, spec.quant_max, spec.dtype})
        .value();
  }

  /// The range is that of the values of the call.
  static Value* dynamic_pair(ir::Builder& builder, Value& value, const QSpec& spec) {
    const Tensor x(builder, &value);
    const ops::Tensors params =
        ops::call_many(builder, "quantized_decomposed.choose_qparams.tensor",
                       {x, spec.quant_min, spec.quant_max, spec.epsilon, spec.dtype});
    const Tensor q =
        ops::call(builder, "quantized_decomposed.quantize_per_tensor.tensor",
                  {x, params[0], params[1], spec.quant_min, spec.quant_max, spec.dtype});
    return ops::call(builder, "quantized_decomposed.dequantize_per_tensor.tensor",
                     {q, params[0], params[1], spec.quant_min, spec.quant_max, spec.dtype})
        .value();
  }

  Value* channel_pair(ir::Builder& builder, Value& value, const Group& group, const Range& range) {
    const QSpec& spec = group.spec;
    const Tensor scales = scales_of(builder, group, range, {parts_of(group)});
    const Tensor zeros = ops::full(builder, scales.sizes(), 0, DType::i64);
    const Tensor q = ops::call(builder, "quantized_decomposed.quantize_per_channel",
                               {Tensor(builder, &value), scales, zeros, spec.axis, spec.quant_min,
                                spec.quant_max, spec.dtype});
    return ops::call(builder, "quantized_decomposed.dequantize_per_channel",
                     {q, scales, Tensor(), spec.axis, spec.quant_min, spec.quant_max, spec.dtype})
        .value();
  }

  Value* group_pair(ir::Builder& builder, Value& value, const Group& group, const Range& range) {
    const QSpec& spec = group.spec;
    const int64_t rows = number(value.type.sizes[0]);
    const Tensor scales =
        scales_of(builder, group, range, {rows, number(value.type.sizes[1]) / spec.group_size});
    const Tensor zeros = ops::full(builder, scales.sizes(), 0, DType::i32);
    const Tensor q = ops::call(builder, "quantized_decomposed.quantize_per_channel_group",
                               {Tensor(builder, &value), scales, zeros, spec.quant_min,
                                spec.quant_max, spec.dtype, spec.group_size});
    return ops::call(builder, "quantized_decomposed.dequantize_per_channel_group",
                     {q, scales, Tensor(), spec.quant_min, spec.quant_max, spec.dtype,
                      spec.group_size, DType::f32})
        .value();
  }

  /// A new constant of the graph.
  Tensor scales_of(ir::Builder& builder, const Group& group, const Range& range,
                   const ir::Sizes& sizes) {
    std::vector<float> scales;
    for (size_t part = 0; part < range.low.size(); ++part)
      scales.push_back(
          static_cast<float>(qparams_of(group.spec, range.low[part], range.high[part]).scale));
    Value* input = graph_->add_input(graph_->free_input_name(input_name(group.name) + ".scale"),
                                     ir::Type::tensor(DType::f32, sizes), ir::Role::buffer);
    input->constant = true;
    converted_.scales[input->name] = std::move(scales);
    return {builder, input};
  }

  struct Result {
    Value* value = nullptr;  // dequantized
    size_t group = 0;
  };

  ir::Graph* graph_;
  const Annotation* annotation_;
  const Statistics* statistics_;
  std::vector<char> skipped_;                            // by layer
  DenseMap<Value, Result> results_;                      // quantized results of layers
  std::map<std::pair<uint32_t, size_t>, Value*> pairs_;  // by value and group; looked up only
  Converted converted_;
};

}  // namespace

bool is_observed(const Group& group) { return !group.spec.dynamic; }

int64_t parts_of(const Group& group) {
  const ir::Sizes& sizes = group.values[0]->type.sizes;
  switch (group.spec.per) {
    case Per::tensor: return 1;
    case Per::channel: return number(sizes[static_cast<size_t>(group.spec.axis)]);
    case Per::group: return number(sizes[0]) * number(sizes[1]) / group.spec.group_size;
  }
  return 1;
}

int64_t inner_of(const Group& group) {
  const ir::Sizes& sizes = group.values[0]->type.sizes;
  if (group.spec.per == Per::group) return group.spec.group_size;
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(group.spec.axis) + 1; i < sizes.size(); ++i)
    inner *= number(sizes[i]);
  return inner;
}

void instrument(ir::Graph& graph, const std::vector<Value*>& values) {
  graph.clear_outputs();
  for (Value* value : values) graph.add_output(value);
}

Converted convert(ir::Graph& graph, const Annotation& annotation, const Statistics& statistics,
                  const std::set<std::string>& skip) {
  return Converter(graph, annotation, statistics, skip).run();
}

}  // namespace tandem::quant
