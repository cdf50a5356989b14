// Texts of arguments are made here and not where they are run, because this is where expressions of
// sizes print.
#include "driver/replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/dense_map.h"
#include "ir/text.h"

namespace tandem::driver {
namespace {

using Names = DenseMap<ir::Value, std::string>;

/// Inputs have theirs; what steps make is numbered.
Names names_of(const ir::Graph& signature) {
  Names names;
  for (const ir::Value* input : signature.inputs()) names[input] = input->name;
  int next = 0;
  for (const ir::Node* node = signature.first(); node != nullptr; node = node->next)
    for (const ir::Value* result : node->results) names[result] = fmt::format("view{}", next++);
  return names;
}

struct TextOf {
  const Names& names;

  std::string operator()(const ir::None&) const { return "None"; }
  std::string operator()(const ir::Value* value) const {
    return value == nullptr ? "None" : names.at(value);
  }
  std::string operator()(bool flag) const { return flag ? "True" : "False"; }
  std::string operator()(double number) const { return fmt::format("{}", number); }
  std::string operator()(sym::Expr number) const { return sym::to_string(number); }
  std::string operator()(DType dtype) const { return std::string(name_of(dtype)); }
  std::string operator()(const std::string& text) const { return fmt::format("\"{}\"", text); }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::vector<std::string> texts;
    for (const T& each : list) texts.push_back((*this)(each));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
};

ReplayStep step_of(const ir::Node& node, const Names& names) {
  ReplayStep step;
  step.op = node.op->name();
  step.no_grad = node.no_grad;
  for (size_t i = 0; i < node.args.size(); ++i) {
    const ir::Param& param = node.op->schema.params[i];
    const std::string text = std::visit(TextOf{names}, node.args[i]);
    step.arguments.push_back(param.keyword_only ? param.name + "=" + text : text);
  }
  for (const ir::Value* result : node.results) step.results.push_back(names.at(result));
  return step;
}

std::string describe(const ir::Writes& writes) {
  std::vector<std::string_view> ways;
  if (writes.recorded) ways.emplace_back("recorded");
  if (writes.hidden) ways.emplace_back("through a detached alias");
  if (writes.no_grad) ways.emplace_back("under no_grad");
  if (writes.backward) ways.emplace_back("when backward runs");
  return fmt::format("written {}", fmt::join(ways, ", "));
}

/// A result of a custom function that gave its input.
std::string describe_handed(const ir::Value& value) {
  return fmt::format("input %{} with the history of result {}", value.within.base,
                     value.subject.number);
}

std::string describe_start(const ir::Value& value) {
  if (!value.within.base.empty()) return describe_handed(value);
  if (value.role != ir::Role::result) return fmt::format("input %{}", value.name);
  return fmt::format("result {}", value.subject.number);
}

/// Memory of one value, history of another: a detached alias that was written.
bool joins_history(const ir::Node& node) { return node.op->schema.find("old") >= 0; }

/// What the view is taken of; of a list, the element that this result shows.
const ir::Value* viewed(const ir::Value& view) {
  if (joins_history(*view.node)) return std::get<ir::Value*>(view.node->args[1]);
  const ir::Arg& self = view.node->args[0];
  if (const ir::Values* list = std::get_if<ir::Values>(&self)) return list->at(view.index);
  return std::get<ir::Value*>(self);
}

std::string describe_view(const ir::Value& view) {
  if (joins_history(*view.node))
    return fmt::format("with the history of result {}, ",
                       std::get<ir::Value*>(view.node->args[0])->subject.number);
  if (view.node->results.size() > 1)
    return fmt::format("part {} of {} of ", view.index, view.node->op->name());
  return fmt::format("{} of ", view.node->op->name());
}

}  // namespace

std::string describe(const ir::Value& value) {
  if (value.node == nullptr && value.within.base.empty())
    return value.role == ir::Role::result ? "fresh, " + describe_start(value)
                                          : "the " + describe_start(value);
  std::string text;
  const ir::Value* at = &value;
  while (at->node != nullptr) {
    text += describe_view(*at);
    at = viewed(*at);
  }
  return text + describe_start(*at);
}

Replay replay_of(const ir::Graph& signature) {
  const Names names = names_of(signature);
  Replay replay;
  for (const ir::Node* node = signature.first(); node != nullptr; node = node->next)
    replay.steps.push_back(step_of(*node, names));
  for (const ir::Output& output : signature.outputs())
    replay.returned.push_back(names.at(output.value));
  return replay;
}

std::string describe_signature(const ir::Graph& signature) {
  std::string text;
  for (const ir::Value* input : signature.inputs())
    if (input->writes.any())
      text += fmt::format("input %{}: {}\n", input->name, describe(input->writes));
  size_t number = 0;
  for (const ir::Output& output : signature.outputs())
    text += fmt::format("returns {}: {}\n", number++, describe(*output.value));
  return text;
}

}  // namespace tandem::driver
