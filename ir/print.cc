// Printing gives results the numbers %0, %1, … in program order, so equal graphs print equal text
// whatever their history. Named results keep their names unless two collide.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/dense_map.h"
#include "ir/text.h"

namespace tandem::ir {
namespace {

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(value_names(graph)) {}

  std::string print() {
    std::string text = "graph @" + graph_.name() + "(";
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      text += (i ? ", " : "") + input(*graph_.inputs()[i]);
    text += ")" + role() + symbols() + " {\n";
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      text += "  " + line(*node) + "\n";
    return text + "  return" + outputs() + "\n}\n";
  }

  std::string line(const Node& node) const {
    std::string text;
    for (size_t i = 0; i < node.results.size(); ++i)
      text += fmt::format("{}%{}: {}", i ? ", " : "", names_.at(node.results[i]),
                          to_string(node.results[i]->type));
    if (!node.results.empty()) text += " = ";
    return text + node.op->name() + "(" + arguments(node) + ")" + attributes(node);
  }

 private:
  std::string role() const {
    const GraphRole& role = graph_.role();
    if (role.kind == GraphRole::Kind::none) return "";
    return fmt::format(" {} of @{}", name_of(role.kind), role.of);
  }

  static std::string subject(const Subject& subject) {
    if (subject.kind == Subject::Kind::none) return "";
    const bool is_output = subject.kind == Subject::Kind::output;
    return fmt::format(" of {} {}", is_output ? "output" : "input", subject.number);
  }

  std::string input(const Value& value) const {
    std::string text = fmt::format("%{}: {}", value.name, to_string(value.type));
    bool plain = value.role == Role::input || value.role == Role::none;
    const bool is_marked = value.requires_grad || value.constant || value.zeros;
    const bool is_within = !value.within.base.empty();
    if (plain && !is_marked && !is_within && !value.writes.any()) return text;
    text += fmt::format(" {{{}{}", name_of(value.role), subject(value.subject));
    if (!value.target.empty()) text += fmt::format(" \"{}\"", value.target);
    if (value.requires_grad) text += " grad";
    if (value.constant) text += " constant";
    if (value.zeros) text += " zeros";
    if (is_within) text += fmt::format(" within %{} at {}", value.within.base, value.within.offset);
    return text + writes(value.writes) + "}";
  }

  static std::string writes(const Writes& writes) {
    if (!writes.any()) return "";
    return fmt::format(" written{}{}{}{}", writes.recorded ? " recorded" : "",
                       writes.hidden ? " hidden" : "", writes.no_grad ? " no_grad" : "",
                       writes.backward ? " backward" : "");
  }

  /// A node may bring a size that no input has (expand).
  static void collect_symbols(const Node& node, std::vector<sym::Expr>& all) {
    for (const Arg& arg : node.args) {
      if (const sym::Expr* number = std::get_if<sym::Expr>(&arg))
        sym::collect_symbols(*number, all);
      if (const Ints* numbers = std::get_if<Ints>(&arg))
        for (sym::Expr number : *numbers) sym::collect_symbols(number, all);
    }
    for (const Value* result : node.results)
      for (sym::Expr size : result->type.sizes) sym::collect_symbols(size, all);
  }

  std::string symbols() const {
    std::vector<sym::Expr> all;
    for (const Value* value : graph_.inputs()) {
      for (sym::Expr size : value->type.sizes) sym::collect_symbols(size, all);
      for (sym::Expr stride : value->type.strides) sym::collect_symbols(stride, all);
    }
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      collect_symbols(*node, all);
    std::string text;
    for (const sym::Expr& symbol : all) {
      sym::Range range = symbol.range();
      text +=
          fmt::format("{}{} in [{}, {}]", text.empty() ? " where " : ", ", symbol.name(), range.lo,
                      range.hi == sym::Range::kMax ? "inf" : std::to_string(range.hi));
    }
    return text;
  }

  std::string value_name(const Value* value) const {
    return value == nullptr ? "none" : "%" + names_.at(value);
  }

  std::string argument(const Arg& arg) const {
    if (Value* const* one = std::get_if<Value*>(&arg)) return value_name(*one);
    const Values* many = std::get_if<Values>(&arg);
    if (many == nullptr) return to_string(arg);
    std::string text = "[";
    for (size_t i = 0; i < many->size(); ++i) text += (i ? ", " : "") + value_name((*many)[i]);
    return text + "]";
  }

  static bool is_default(const Param& param, const Arg& arg) {
    if (param.default_value) return *param.default_value == arg;
    return param.optional && std::holds_alternative<None>(arg);
  }

  std::string arguments(const Node& node) const {
    const std::vector<Param>& params = node.op->schema.params;
    std::string text;
    bool positional = true;  // an omitted default makes everything after it named
    for (size_t i = 0; i < params.size(); ++i) {
      if (is_default(params[i], node.args[i])) {
        positional = false;
        continue;
      }
      bool named = params[i].keyword_only || !positional;
      text +=
          (text.empty() ? "" : ", ") + (named ? params[i].name + "=" : "") + argument(node.args[i]);
    }
    return text;
  }

  static std::string attributes(const Node& node) {
    static const char* const kPolicies[] = {"", "must_recompute", "prefer_recompute", "prefer_save",
                                            "must_save"};
    std::string text;
    auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
    if (node.no_grad) add("no_grad");
    if (node.backward) add("backward");
    if (node.region != 0) add(fmt::format("region {}", node.region));
    if (node.policy != RecomputePolicy::none) add(kPolicies[static_cast<int>(node.policy)]);
    if (node.memory_budget) add(fmt::format("memory_budget {}", *node.memory_budget));
    if (!text.empty()) text = " {" + text + "}";
    if (!node.origin.place.empty()) text += fmt::format(" loc(\"{}\")", node.origin.place);
    return text;
  }

  std::string outputs() const {
    std::string text;
    for (const Output& output : graph_.outputs()) {
      text += text.empty() ? " " : ", ";
      if (output.kind != OutputKind::output) text += std::string(name_of(output.kind)) + " ";
      if (!output.name.empty()) text += "\"" + output.name + "\" ";
      text += value_name(output.value);
      if (!output.order.empty()) text += fmt::format(" order [{}]", fmt::join(output.order, ", "));
    }
    return text;
  }

  const Graph& graph_;
  DenseMap<Value, std::string> names_;
};

}  // namespace

std::string to_string(const Graph& graph) { return Printer(graph).print(); }

std::string to_string(const Module& module) {
  std::string text;
  for (const std::unique_ptr<Graph>& graph : module.graphs())
    text += (text.empty() ? "" : "\n") + to_string(*graph);
  return text;
}

std::string to_string(const Node& node) {
  std::string operands;
  for_each_operand(node.args, [&](const Value* value) {
    operands += (operands.empty() ? "" : ", ") + to_string(value->type);
  });
  return node.op->name() + "(" + operands + ")";
}

DenseMap<Value, std::string> value_names(const Graph& graph) {
  DenseMap<Value, std::string> names;
  std::set<std::string> taken;
  for (const Value* value : graph.inputs()) {
    names[value] = value->name;
    taken.insert(value->name);
  }
  int next = 0;
  const auto numbered = [&] {
    std::string name = std::to_string(next++);
    while (taken.contains(name)) name = std::to_string(next++);  // of an input
    return name;
  };
  for (const Node* node = graph.first(); node != nullptr; node = node->next)
    for (const Value* value : node->results)
      names[value] =
          !value->name.empty() && taken.insert(value->name).second ? value->name : numbered();
  return names;
}

}  // namespace tandem::ir
