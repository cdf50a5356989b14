// One walk in program order. Facts that passes establish are checked in passes/facts.cc.
#include "ir/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/dense_map.h"
#include "ir/data_sizes.h"
#include "ir/text.h"

namespace tandem::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  std::vector<Diagnostic> run() {
    check_inputs();
    for (const Node* node = graph_.first(); node != nullptr; node = node->next) check_node(*node);
    for (const Output& output : graph_.outputs())
      if (output.value != nullptr && !defined_.at(output.value))
        add("a returned value is not defined", "");
    return std::move(problems_);
  }

 private:
  void add(const std::string& text, const std::string& place) {
    problems_.push_back({text, place});
  }

  void check_inputs() {
    std::set<std::string> names;
    for (const Value* input : graph_.inputs()) {
      if (!names.insert(input->name).second) add("input %" + input->name + " is defined twice", "");
      defined_[input] = true;
      given_.insert(input->name);
      for (sym::Expr size : input->type.sizes)
        if (size.is_symbol()) given_.insert(size.name());
      if (input->constant) check_constant(*input);
      check_subject(*input);
      check_within(*input);
    }
  }

  void check_within(const Value& input) {
    if (input.within.base.empty()) return;
    const bool is_result = input.role == Role::result;
    const bool has_base = std::ranges::any_of(graph_.inputs(), [&](const Value* other) {
      const bool may_be = is_result ? other->role != Role::result : other->role == Role::base;
      return other->name == input.within.base && may_be;
    });
    if (!has_base || !input.type.is_tensor())
      add(fmt::format("input %{} {} lies within %{}, which must be {}", input.name,
                      to_string(input.type), input.within.base, is_result ? "an input" : "a base"),
          "");
  }

  /// Numbers are of the forward graph, where this is a backward one; it may be in another text.
  void check_subject(const Value& input) {
    const GraphRole::Kind role = graph_.role().kind;
    const bool is_of_other =
        role == GraphRole::Kind::backward || role == GraphRole::Kind::signature;
    const Graph* of = is_of_other ? graph_.module().find(graph_.role().of) : &graph_;
    if (of == nullptr || input.subject.kind == Subject::Kind::none) return;
    const bool is_output = input.subject.kind == Subject::Kind::output;
    const size_t count = is_output ? of->outputs().size() : of->inputs().size();
    if (input.subject.number < count) return;
    add(fmt::format("input %{} is a {} of {} {}, and @{} has {}", input.name, name_of(input.role),
                    is_output ? "output" : "input", input.subject.number, of->name(), count),
        "");
  }

  void check_constant(const Value& input) {
    if (!input.type.is_tensor())
      return add(fmt::format("input %{} is {}: only tensors are constant", input.name,
                             to_string(input.type)),
                 "");
    for (const Sizes* sizes : {&input.type.sizes, &input.type.strides})
      for (const sym::Expr& size : *sizes)
        if (!size.constant())
          add(fmt::format("input %{} is constant: {} must be a number", input.name,
                          sym::to_string(size)),
              "");
    if (input.requires_grad)
      add(fmt::format("input %{} is constant: it has no gradient", input.name), "");
  }

  void check_node(const Node& node) {
    if (node.args.size() != node.op->schema.params.size())
      add(fmt::format("[{}] has {} arguments, {} are needed", node.op->schema.full_name(),
                      node.args.size(), node.op->schema.params.size()),
          node.origin.place);
    for_each_operand(node.args, [&](const Value* value) { check_operand(node, *value); });
    check_types(node);
    check_symbols(node);
    for (const Value* result : node.results) defined_[result] = true;
  }

  void check_operand(const Node& node, const Value& value) {
    if (!defined_.at(&value))
      add(fmt::format("[{}] uses a value before its definition", node.op->schema.full_name()),
          node.origin.place);
    bool listed = std::any_of(value.uses.begin(), value.uses.end(),
                              [&](const Use& use) { return use.node == &node; });
    if (!listed)
      add(fmt::format("[{}] is missing in a use-list", node.op->schema.full_name()),
          node.origin.place);
  }

  /// What the node reads of symbols that nodes make has been made. What several make is compared.
  void check_symbols(const Node& node) {
    if (made_.empty()) return;
    const std::optional<sym::Expr> own = symbol_made_by(graph_, node);
    std::vector<sym::Expr> read;
    collect_symbols(node, read);
    for (sym::Expr symbol : read)
      if (symbol != own && std::ranges::find(made_, symbol) != made_.end() &&
          known_.count(symbol.name()) == 0 && given_.count(symbol.name()) == 0)
        add(fmt::format("[{}] has the size {} before the node that makes it",
                        node.op->schema.full_name(), symbol.name()),
            node.origin.place);
    if (own && own->constant()) return;  // compared
    if (own && !own->is_symbol())
      add(fmt::format("[{}] makes the size {}, which is no symbol", node.op->schema.full_name(),
                      sym::to_string(*own)),
          node.origin.place);
    else if (own)
      known_.insert(own->name());
  }

  void check_types(const Node& node) {
    const bool makes_size = data_dim(*node.op, node.args) >= 0;
    if (!makes_size && node.op->types == nullptr) return;
    std::vector<Type> types =
        makes_size ? data_sized_types(*node.op, node.args, *symbol_made_by(graph_, node))
                   : node.op->types(node.call());
    for (size_t i = 0; i < node.results.size(); ++i)
      if (i >= types.size() || !types[i].same_elements(node.results[i]->type))
        add(fmt::format("[{}] result {} is {}, the op gives {}", node.op->schema.full_name(), i,
                        to_string(node.results[i]->type),
                        i < types.size() ? to_string(types[i]) : "nothing"),
            node.origin.place);
  }

  const Graph& graph_;
  const std::vector<sym::Expr> made_ = symbols_made_in(graph_);
  std::set<std::string> given_;  // by inputs
  std::set<std::string> known_;  // symbols that a node has made
  DenseMap<Value, char> defined_;
  std::vector<Diagnostic> problems_;
};

}  // namespace

std::vector<Diagnostic> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace tandem::ir
