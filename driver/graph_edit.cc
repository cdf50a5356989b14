// Order is not checked here: a graph may be in pieces between two edits. It is when the pass ends.
#include "driver/graph_edit.h"

#include <fmt/format.h>

#include "base/diagnostic.h"

namespace tandem::driver {
namespace {

/// Text stands for what Python has no word for.
ir::Arg taken(const ir::Graph& graph, ir::Arg arg, const ir::Param& param) {
  const std::string* text = std::get_if<std::string>(&arg);
  if (text == nullptr || param.type == ir::ParamType::string) return arg;
  if (param.type != ir::ParamType::dtype) return size_named(graph, *text);
  const std::optional<DType> dtype = dtype_from_name(*text);
  if (!dtype)
    throw UserError(fmt::format("argument '{}' is no element type: '{}'", param.name, *text));
  return *dtype;
}

const ir::Param& param_of(const ir::Op& op, int number) {
  if (number < 0 || static_cast<size_t>(number) >= op.schema.params.size())
    throw UserError(fmt::format("[{}] has no such argument", op.schema.full_name()));
  return op.schema.params[static_cast<size_t>(number)];
}

}  // namespace

sym::Expr size_named(const ir::Graph& graph, const std::string& text) {
  std::string error;
  const std::optional<sym::Expr> size = sym::parse(graph.pool(), text, &error);
  if (!size) throw UserError(fmt::format("'{}' is no size: {}", text, error));
  return *size;
}

ir::Node* insert_call(ir::Graph& graph, std::string_view op, EditedCall call, ir::Node* before) {
  const ir::Op* found = graph.ops().find(op);
  if (found == nullptr) throw UserError(fmt::format("there is no operator '{}'", op));
  for (size_t i = 0; i < call.positional.size(); ++i)
    call.positional[i] =
        taken(graph, std::move(call.positional[i]), param_of(*found, static_cast<int>(i)));
  std::vector<ir::Keyword> keywords;
  for (auto& [name, arg] : call.keywords)
    keywords.emplace_back(name,
                          taken(graph, std::move(arg), param_of(*found, found->schema.find(name))));
  ir::Builder builder(graph, before);
  if (before != nullptr) {
    builder.stamp().backward = before->backward;
    builder.stamp().origin.place = before->origin.place;
  }
  return builder.call(*found, std::move(call.positional), std::move(keywords));
}

void replace_value(ir::Graph& graph, ir::Value* old, ir::Value* replacement) {
  const bool is_equal = old->type.is_tensor() == replacement->type.is_tensor() &&
                        old->type.dtype == replacement->type.dtype &&
                        old->type.sizes == replacement->type.sizes;
  if (!is_equal)
    throw UserError(fmt::format("a value of type {} cannot stand for one of type {}",
                                to_string(replacement->type), to_string(old->type)));
  const std::vector<ir::Use> uses = old->uses;
  for (const ir::Use& use : uses) {
    if (use.node == nullptr) {
      graph.set_output(use.arg, replacement);
    } else if (use.node != replacement->node) {
      graph.set_arg(use.node, use.arg,
                    ir::map_operands(use.node->args[use.arg], [&](ir::Value* value) {
                      return value == old ? replacement : value;
                    }));
    }
  }
}

void erase_node(ir::Graph& graph, ir::Node* node) {
  const std::string name = node->op->schema.full_name();
  if (node->op->mutates())
    throw UserError(fmt::format("[{}] writes an input of the graph: it cannot be erased", name));
  for (const ir::Value* result : node->results)
    if (!result->uses.empty())
      throw UserError(fmt::format("[{}] cannot be erased: its result is read {} times", name,
                                  result->uses.size()));
  graph.erase(node);
}

}  // namespace tandem::driver
