// The only door through which nodes enter a graph. Arguments are checked here once, so that type
// rules, gradients and lowerings may rely on the schema.
#include "ir/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/diagnostic.h"
#include "ir/data_sizes.h"

namespace tandem::ir {
namespace {

[[noreturn]] void misfit(const Op& op, const Param& param, const Arg& arg, std::string_view want) {
  throw UserError(fmt::format("[{}] {} must be {}, not {}", op.schema.full_name(), param.name, want,
                              to_string(arg)));
}

bool is_number(const Arg& arg) {
  return std::holds_alternative<sym::Expr>(arg) || std::holds_alternative<double>(arg) ||
         std::holds_alternative<bool>(arg);
}

bool is_scalar_value(const Arg& arg) {
  Value* const* value = std::get_if<Value*>(&arg);
  return value != nullptr && *value != nullptr && (*value)->type.kind == Type::Kind::scalar;
}

Arg to_float(const Op& op, const Param& param, const Arg& arg) {
  if (std::holds_alternative<double>(arg)) return arg;
  if (const sym::Expr* expr = std::get_if<sym::Expr>(&arg); expr && expr->constant())
    return static_cast<double>(*expr->constant());
  misfit(op, param, arg, "a float");
}

Arg to_ints(const Op& op, const Param& param, const Arg& arg) {
  if (std::holds_alternative<Ints>(arg)) {
    const Ints& ints = std::get<Ints>(arg);
    if (ints.size() == 1 && param.list_size > 1) return Ints(param.list_size, ints[0]);
    return arg;
  }
  if (const sym::Expr* expr = std::get_if<sym::Expr>(&arg))
    return Ints(param.list_size > 0 ? param.list_size : 1, *expr);
  if (const Floats* floats = std::get_if<Floats>(&arg); floats && floats->empty()) return Ints{};
  if (const Values* values = std::get_if<Values>(&arg); values && values->empty()) return Ints{};
  misfit(op, param, arg, "a list of integers");
}

Arg to_floats(const Op& op, const Param& param, const Arg& arg) {
  if (std::holds_alternative<Floats>(arg)) return arg;
  if (const Ints* ints = std::get_if<Ints>(&arg)) {
    Floats floats;
    for (const sym::Expr& expr : *ints)
      floats.push_back(std::get<double>(to_float(op, param, expr)));
    return floats;
  }
  misfit(op, param, arg, "a list of floats");
}

/// Integers, floats or scalar values.
Arg to_scalars(const Op& op, const Param& param, const Arg& arg) {
  if (const Values* values = std::get_if<Values>(&arg)) {
    for (Value* value : *values)
      if (value == nullptr || !is_scalar_value(value)) misfit(op, param, arg, "a list of numbers");
    return arg;
  }
  if (std::holds_alternative<Ints>(arg) || std::holds_alternative<Floats>(arg)) return arg;
  misfit(op, param, arg, "a list of numbers");
}

Arg to_values(const Op& op, const Param& param, const Arg& arg) {
  if (const Ints* ints = std::get_if<Ints>(&arg); ints && ints->empty()) return Values{};
  const Values* values = std::get_if<Values>(&arg);
  if (values == nullptr) misfit(op, param, arg, "a list of tensors");
  for (Value* value : *values)
    if (value == nullptr ? !param.element_optional : !value->type.is_tensor())
      misfit(op, param, arg, "a list of tensors");
  return arg;
}

/// By name, or by PyTorch's number, which is the place here.
Arg to_format(const Op& op, const Param& param, const Arg& arg) {
  constexpr std::array<std::string_view, 4> kFormats{"contiguous_format", "preserve_format",
                                                     "channels_last", "channels_last_3d"};
  const sym::Expr* number = std::get_if<sym::Expr>(&arg);
  if (number != nullptr && number->constant() && *number->constant() >= 0 &&
      *number->constant() < static_cast<int64_t>(kFormats.size()))
    return std::string(kFormats[static_cast<size_t>(*number->constant())]);
  const std::string* format = std::get_if<std::string>(&arg);
  if (format == nullptr || std::ranges::find(kFormats, *format) == kFormats.end())
    misfit(op, param, arg, fmt::format("one of {}", fmt::join(kFormats, ", ")));
  return arg;
}

Arg convert_typed(const Op& op, const Param& param, Arg arg) {
  switch (param.type) {
    case ParamType::tensor: {
      Value* const* value = std::get_if<Value*>(&arg);
      if (value == nullptr || *value == nullptr || !(*value)->type.is_tensor())
        misfit(op, param, arg, "a tensor");
      return arg;
    }
    case ParamType::tensor_list: return to_values(op, param, arg);
    case ParamType::integer:
      if (std::holds_alternative<sym::Expr>(arg) || is_scalar_value(arg)) return arg;
      if (const bool* flag = std::get_if<bool>(&arg)) return sym::Expr(*flag ? 1 : 0);
      misfit(op, param, arg, "an integer");
    case ParamType::int_list: return to_ints(op, param, arg);
    case ParamType::floating: return is_scalar_value(arg) ? arg : to_float(op, param, arg);
    case ParamType::float_list: return to_floats(op, param, arg);
    case ParamType::boolean:
      if (const sym::Expr* expr = std::get_if<sym::Expr>(&arg)) return *expr != sym::Expr(0);
      if (!std::holds_alternative<bool>(arg)) misfit(op, param, arg, "true or false");
      return arg;
    case ParamType::scalar:
      if (!is_number(arg) && !is_scalar_value(arg)) misfit(op, param, arg, "a number");
      return arg;
    case ParamType::scalar_list: return to_scalars(op, param, arg);
    case ParamType::string:
    case ParamType::graph:
      if (!std::holds_alternative<std::string>(arg)) misfit(op, param, arg, "a string");
      return arg;
    case ParamType::dtype:
      if (!std::holds_alternative<DType>(arg)) misfit(op, param, arg, "a dtype");
      return arg;
    case ParamType::memory_format: return to_format(op, param, arg);
    case ParamType::layout:
    case ParamType::device:
    case ParamType::generator:
    case ParamType::unknown: return arg;
  }
  return arg;
}

Arg convert(const Op& op, const Param& param, Arg arg) {
  if (!std::holds_alternative<None>(arg)) return convert_typed(op, param, std::move(arg));
  bool defaults_to_none = param.default_value && std::holds_alternative<None>(*param.default_value);
  if (!param.optional && !defaults_to_none) misfit(op, param, arg, "given");
  return arg;
}

/// "Scalar_mode" for "Tensor_mode"; the overload of most others is just "Scalar".
const Op* scalar_overload(const Op& op, const OpTable& table) {
  constexpr std::string_view kTensor = "Tensor";
  const std::string& overload = op.schema.overload;
  if (overload.starts_with(kTensor)) {
    const std::string rest = overload.substr(kTensor.size());
    if (const Op* found = table.find(op.schema.name + ".Scalar" + rest)) return found;
  }
  return table.find(op.schema.name + ".Scalar");
}

/// x + 2.0 spelled as add.Tensor(x, 2.0) means add.Scalar.
const Op& overload_for_numbers(const Op& op, const std::vector<Arg>& positional,
                               const OpTable& table) {
  for (size_t i = 0; i < positional.size() && i < op.schema.params.size(); ++i) {
    bool wants_tensor = op.schema.params[i].type == ParamType::tensor;
    if (!wants_tensor || !(is_number(positional[i]) || is_scalar_value(positional[i]))) continue;
    if (const Op* scalar = scalar_overload(op, table)) return *scalar;
  }
  return op;
}

/// Of the first operand, or first of several, or of the sizes that are asked for.
size_t rank_of(const std::vector<Arg>& args) {
  const Values* values = std::get_if<Values>(&args[0]);
  if (values != nullptr && !values->empty() && values->front() != nullptr)
    return static_cast<size_t>(values->front()->type.rank());
  if (Value* const* value = std::get_if<Value*>(&args[0]))
    return static_cast<size_t>((*value)->type.rank());
  const Ints* sizes = std::get_if<Ints>(&args[0]);
  return sizes == nullptr ? 0 : sizes->size();
}

void check_formats(const Op& op, const std::vector<Arg>& args) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.schema.params[i].type != ParamType::memory_format) continue;
    const std::string* format = std::get_if<std::string>(&args[i]);
    if (format == nullptr || !format->starts_with("channels_last")) continue;
    const size_t wanted = *format == "channels_last" ? 4 : 5;
    if (rank_of(args) != wanted)
      throw UserError(fmt::format("[{}] {} {} is for {} dimensions, not for {}",
                                  op.schema.full_name(), op.schema.params[i].name, *format, wanted,
                                  rank_of(args)));
  }
}

}  // namespace

std::vector<Arg> complete_args(const Op& op, std::vector<Arg> positional,
                               std::vector<Keyword> keywords) {
  const std::vector<Param>& params = op.schema.params;
  if (positional.size() > params.size())
    throw UserError(fmt::format("[{}] takes {} arguments, {} were given", op.schema.full_name(),
                                params.size(), positional.size()));
  std::vector<std::optional<Arg>> given(params.size());
  for (size_t i = 0; i < positional.size(); ++i) given[i] = std::move(positional[i]);
  for (Keyword& keyword : keywords) {
    int number = op.schema.find(keyword.first);
    if (number < 0 || given[number])
      throw UserError(fmt::format("[{}] {} argument '{}'", op.schema.full_name(),
                                  number < 0 ? "has no" : "got twice the", keyword.first));
    given[number] = std::move(keyword.second);
  }
  std::vector<Arg> args;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!given[i]) given[i] = params[i].default_value;
    if (!given[i] && params[i].optional) given[i] = None{};
    if (!given[i])
      throw UserError(
          fmt::format("[{}] argument '{}' is missing", op.schema.full_name(), params[i].name));
    args.push_back(convert(op, params[i], *given[i]));
  }
  return args;
}

Node* Builder::stamped(Node* node) const {
  node->origin = stamp_.origin;
  node->no_grad = stamp_.no_grad;
  node->backward = stamp_.backward;
  node->region = stamp_.region;
  node->policy = stamp_.policy;
  node->memory_budget = stamp_.memory_budget;
  return node;
}

Node* Builder::call(const Op& op, std::vector<Arg> positional, std::vector<Keyword> keywords) {
  const Op& chosen = overload_for_numbers(op, positional, graph_->ops());
  if (chosen.types == nullptr && chosen.data_sized.types == nullptr)
    throw UserError(
        fmt::format("[{}] the types of its results must be written", chosen.schema.full_name()));
  std::vector<Arg> args = complete_args(chosen, std::move(positional), std::move(keywords));
  check_formats(chosen, args);
  return stamped(graph_->insert(chosen, std::move(args), before_));
}

Node* Builder::call_typed(const Op& op, std::vector<Arg> positional, std::vector<Type> types) {
  std::vector<Arg> args = complete_args(op, std::move(positional), {});
  return stamped(graph_->insert_typed(op, std::move(args), std::move(types), before_));
}

Node* Builder::call(std::string_view op, std::vector<Arg> positional,
                    std::vector<Keyword> keywords) {
  const Op* found = graph_->ops().find(op);
  if (found == nullptr) throw Unsupported(fmt::format("[{}] is not an operator Tandem knows", op));
  return call(*found, std::move(positional), std::move(keywords));
}

Builder::Stamp Builder::stamp_of(const Node& node) {
  return {node.origin, node.no_grad, node.backward, node.region, node.policy, node.memory_budget};
}

Node* clone_node_with_args(Graph& graph, const Node& node, std::vector<Arg> args, Node* before) {
  std::vector<Type> types;
  for (const Value* result : node.results) types.push_back(result->type);
  const bool makes_size = data_dim(*node.op, args) >= 0;
  if (makes_size) types = data_sized_types(*node.op, args, *symbol_made_by(graph, node));
  Node* copy = makes_size || node.op->types == nullptr
                   ? graph.insert_typed(*node.op, std::move(args), std::move(types), before)
                   : graph.insert(*node.op, std::move(args), before);
  copy->origin = node.origin;
  copy->no_grad = node.no_grad;
  copy->backward = node.backward;
  copy->region = node.region;
  copy->policy = node.policy;
  copy->memory_budget = node.memory_budget;
  for (size_t i = 0; i < node.results.size() && i < copy->results.size(); ++i)
    copy->results[i]->name = node.results[i]->name;
  return copy;
}

}  // namespace tandem::ir
