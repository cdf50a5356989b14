// Rules are tried in their order, each over the whole graph; a node belongs to the first that takes
// it. Rules that propagate come last, in one walk in program order, because each asks what became
// of the producers of its operands.
#include "quant/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/dense_map.h"
#include "base/diagnostic.h"
#include "ir/pattern.h"
#include "ir/text.h"

namespace tandem::quant {
namespace {

using ir::Node;
using ir::Value;

bool names(const std::vector<std::string>& ops, const Node& node) {
  return std::ranges::find(ops, node.op->name()) != ops.end();
}

/// The only reader of the node's one result; null where there are more, or a result of the graph.
Node* only_reader(const Node& node) {
  if (node.results.empty()) return nullptr;
  for (size_t i = 1; i < node.results.size(); ++i)
    if (!node.results[i]->uses.empty()) return nullptr;
  const std::vector<ir::Use>& uses = node.results[0]->uses;
  return uses.size() == 1 ? uses[0].node : nullptr;
}

/// An addition without a factor.
const ir::Pattern& addition() {
  static const ir::Pattern kSum =
      ir::call("aten::add.Tensor", {ir::keep("value"), ir::keep("other")}).commutes();
  return kSum;
}

/// Of an addition of two values of one shape: the operand that is not `value`.
std::optional<ir::Use> other_operand(Node& add, Value* value) {
  ir::Match match;
  if (!ir::matches(addition(), add, match.knows("value", value))) return std::nullopt;
  const Value* other = match.value("other");
  if (other == value || other->type.sizes != value->type.sizes) return std::nullopt;
  return ir::Use{&add, add.args[0] == ir::Arg(value) ? 1U : 0U, 0};
}

/// Tensor operands of a parameter: one, the elements of a list, or none.
std::vector<ir::Use> uses_of(Node& node, std::string_view param) {
  const int number = node.op->schema.find(param);
  if (number < 0) return {};
  const ir::Arg& arg = node.args[static_cast<size_t>(number)];
  const ir::Values* many = std::get_if<ir::Values>(&arg);
  const size_t count = many != nullptr ? many->size() : std::holds_alternative<Value*>(arg);
  std::vector<ir::Use> uses;
  for (size_t i = 0; i < count; ++i)
    uses.push_back({&node, static_cast<uint32_t>(number), static_cast<uint32_t>(i)});
  return uses;
}

/// The parameter that a known value is made of: its first operand's, and so on.
std::string target_of(const Value* value) {
  while (value->node != nullptr) {
    const Value* first = nullptr;
    ir::for_each_operand(value->node->args, [&](const Value* operand) {
      if (first == nullptr) first = operand;
    });
    if (first == nullptr) return "";
    value = first;
  }
  return value->target;
}

std::string owner_of(const std::string& target) {
  const size_t dot = target.rfind('.');
  return dot == std::string::npos ? target : target.substr(0, dot);
}

class LayerFinder {
 public:
  LayerFinder(const ir::Graph& graph, const Recipe& recipe, const IsKnown& is_known,
              std::vector<std::string>& notes)
      : graph_(&graph), recipe_(&recipe), is_known_(&is_known), notes_(&notes) {
    for (Node* node = graph.first(); node != nullptr; node = node->next)
      order_[node] = static_cast<int>(nodes_++);
  }

  std::vector<Match> run() {
    for (const Rule& rule : recipe_->rules)
      for (Node* node = graph_->first(); !rule.propagates && node != nullptr; node = node->next)
        take(rule, *node);
    for (Node* node = graph_->first(); node != nullptr; node = node->next)
      for (const Rule& rule : recipe_->rules)
        if (rule.propagates) take(rule, *node);
    note_unused_exceptions();
    sort();
    for (Match& match : matches_)
      if (match.rule->propagates) fill_after(match);
    return std::move(matches_);
  }

 private:
  void take(const Rule& rule, Node& first) {
    Match match;
    match.rule = &rule;
    if (!follow(rule, first, match)) return;
    match.layer.rule = rule.name;
    match.layer.name = name_of_layer(match);
    const std::vector<const Exception*> exceptions = exceptions_of(match);
    const bool is_left = std::ranges::any_of(
        exceptions, [](const Exception* exception) { return !exception->quantize; });
    if (!is_left) {
      choose_specs(match, exceptions);
      const std::string reason = why_not(rule, match);
      if (!reason.empty()) {
        if (!rule.propagates)
          notes_->push_back(
              fmt::format("{}: {} is left: {}", rule.name, ir::to_string(first), reason));
        return;
      }
    } else {
      notes_->push_back(fmt::format("{}: left by the recipe", match.layer.name));
    }
    for (const Node* node : match.layer.nodes) taken_[node] = true;
    if (is_left) return;
    quantized_[match.layer.nodes.back()] = true;
    matches_.push_back(std::move(match));
  }

  /// The nodes of the chain and its operands.
  bool follow(const Rule& rule, Node& first, Match& match) {
    Node* node = &first;
    for (size_t link = 0; link < rule.chain.size(); ++link) {
      if (node == nullptr || taken_.at(node) || !names(rule.chain[link], *node)) return false;
      if (link > 0 && ir::is_candidate(addition(), *node)) {
        const std::optional<ir::Use> other =
            other_operand(*node, match.layer.nodes.back()->results[0]);
        if (!other) return false;
        if (!rule.other.empty()) match.operands.push_back({*other, "other", nullptr});
      }
      match.layer.nodes.push_back(node);
      if (link + 1 < rule.chain.size()) node = only_reader(*node);
    }
    std::vector<Match::Operand> inputs;
    for (size_t arg = 0; arg < first.args.size(); ++arg) {
      const std::string& param = first.op->schema.params[arg].name;
      if (rule.inputs.count(param) == 0) continue;
      for (const ir::Use& use : uses_of(first, param)) inputs.push_back({use, param, nullptr});
    }
    match.operands.insert(match.operands.begin(), inputs.begin(), inputs.end());
    return true;
  }

  static bool is_below(const std::string& name, const std::string& layer) {
    return name == layer || name.starts_with(layer + ".");
  }

  /// Of the layer, the longest name first; then of the operator.
  std::vector<const Exception*> exceptions_of(const Match& match) {
    std::vector<const Exception*> found;
    size_t length = 0;
    for (const std::pair<const std::string, Exception>& entry : recipe_->layers) {
      if (!is_below(match.layer.name, entry.first)) continue;
      used_.insert(&entry.second);
      if (entry.first.size() < length) continue;
      found = {&entry.second};
      length = entry.first.size();
    }
    if (!found.empty()) return found;
    const auto it = recipe_->ops.find(match.layer.nodes[0]->op->name());
    if (it != recipe_->ops.end()) found.push_back(&it->second);
    return found;
  }

  void note_unused_exceptions() {
    for (const std::pair<const std::string, Exception>& entry : recipe_->layers)
      if (used_.count(&entry.second) == 0)
        notes_->push_back(
            fmt::format("no layer is named '{}', which the recipe excepts", entry.first));
  }

  void choose_specs(Match& match, const std::vector<const Exception*>& exceptions) const {
    for (Match::Operand& operand : match.operands) {
      const bool is_other = operand.use.node != match.layer.nodes[0];
      std::string name = is_other ? match.rule->other : match.rule->inputs.at(operand.param);
      for (const Exception* exception : exceptions) {
        const auto it = exception->specs.find(operand.param);
        if (it != exception->specs.end()) name = it->second;
      }
      operand.spec = &recipe_->specs.at(name);
    }
  }

  std::string why_not(const Rule& rule, const Match& match) const {
    if (match.operands.empty()) return "it has no such operand";
    const ir::Sizes& sizes = value_at(match.operands[0].use)->type.sizes;
    for (const Match::Operand& operand : match.operands) {
      const Value* value = value_at(operand.use);
      if (value->type.dtype != DType::f32)
        return fmt::format("{} is {}", operand.param, ir::to_string(value->type));
      if (operand.spec->constant != (*is_known_)(value))
        return fmt::format("{} is {}", operand.param,
                           operand.spec->constant ? "no constant" : "constant");
      if (rule.same_shape && value->type.sizes != sizes) return "its operands have two shapes";
      const std::string reason = why_not_parts(*operand.spec, *value);
      if (!reason.empty()) return fmt::format("{} {}", operand.param, reason);
      const bool is_quantized = value->node != nullptr && quantized_.at(value->node);
      if (rule.propagates && !is_quantized) return "its operand is not quantized";
    }
    const Node& last = *match.layer.nodes.back();
    if (rule.needs_reader && !has_quantized_reader(last)) return "no layer reads its result";
    return why_not_op(match);
  }

  static std::string why_not_parts(const QSpec& spec, const Value& value) {
    if (spec.per == Per::channel && spec.axis >= value.type.rank())
      return fmt::format("has no axis {}", spec.axis);
    if (spec.per != Per::group) return "";
    const bool is_matrix = value.type.rank() == 2;
    const std::optional<int64_t> columns =
        is_matrix ? value.type.sizes[1].constant() : std::nullopt;
    if (!columns || *columns % spec.group_size != 0)
      return fmt::format("{} is no matrix with rows of groups of {}", ir::to_string(value.type),
                         spec.group_size);
    return "";
  }

  /// Channels of a transposed convolution's weight lie along its second axis.
  static std::string why_not_op(const Match& match) {
    const Node& node = *match.layer.nodes[0];
    const bool is_transposed =
        node.op->schema.find("transposed") >= 0 && node.call().boolean("transposed");
    if (!is_transposed) return "";
    const bool fits = std::ranges::all_of(match.operands, [](const Match::Operand& operand) {
      const bool has_channels = operand.param == "weight" && operand.spec->per == Per::channel;
      return !has_channels || operand.spec->axis == 1;
    });
    return fits ? "" : "it is transposed: the channels of its weight lie along axis 1";
  }

  bool has_quantized_reader(const Node& node) const {
    return std::ranges::any_of(node.results[0]->uses, [&](const ir::Use& use) {
      return use.node != nullptr && std::ranges::any_of(matches_, [&](const Match& match) {
               return !match.rule->propagates && match.layer.nodes[0] == use.node;
             });
    });
  }

  std::string name_of_layer(const Match& match) {
    const Node& first = *match.layer.nodes[0];
    for (const Match::Operand& operand : match.operands) {
      const Value* value = value_at(operand.use);
      if (!(*is_known_)(value)) continue;
      const std::string target = target_of(value);
      if (!target.empty()) return owner_of(target);
    }
    const std::string& name = first.op->schema.name;
    return name.substr(name.rfind(':') + 1);
  }

  /// In program order; names that several layers have are numbered.
  void sort() {
    std::ranges::sort(matches_, [&](const Match& a, const Match& b) {
      return order_.at(a.layer.nodes[0]) < order_.at(b.layer.nodes[0]);
    });
    std::map<std::string, int> count;
    for (Match& match : matches_) {
      const bool has_weight = match.operands[0].use.node->op->schema.find("weight") >= 0;
      const int number = ++count[match.layer.name];
      if (!has_weight || number > 1) match.layer.name += fmt::format("#{}", number);
    }
  }

  void fill_after(Match& match) const {
    for (const Match::Operand& operand : match.operands)
      for (size_t i = 0; i < matches_.size(); ++i)
        if (matches_[i].layer.nodes.back() == value_at(operand.use)->node)
          match.layer.after.push_back(i);
  }

  const ir::Graph* graph_;
  const Recipe* recipe_;
  const IsKnown* is_known_;
  std::vector<std::string>* notes_;
  DenseMap<Node, int> order_;
  int64_t nodes_ = 0;
  DenseMap<Node, char> taken_;      // by a layer, or left by the recipe
  DenseMap<Node, char> quantized_;  // last nodes of layers
  std::vector<Match> matches_;
  std::set<const Exception*> used_;  // looked up only
};

/// An operator that a recipe names wrongly would never be found, and nobody would know.
void check_names(const Recipe& recipe, const ir::OpTable& ops) {
  Diagnostics problems;
  for (const Rule& rule : recipe.rules) {
    for (size_t link = 0; link < rule.chain.size(); ++link)
      for (const std::string& name : rule.chain[link]) {
        const ir::Op* op = ops.find(name);
        if (op == nullptr)
          problems.add(fmt::format("[{}] rule '{}' names it, and Tandem knows no such operator",
                                   name, rule.name));
        for (const std::pair<const std::string, std::string>& input : rule.inputs)
          if (op != nullptr && link == 0 && op->schema.find(input.first) < 0)
            problems.add(fmt::format("[{}] rule '{}': there is no operand '{}'", name, rule.name,
                                     input.first));
      }
  }
  for (const std::pair<const std::string, Exception>& entry : recipe.ops)
    if (ops.find(entry.first) == nullptr)
      problems.add(fmt::format("[{}] the recipe excepts it, and Tandem knows no such operator",
                               entry.first));
  problems.finish();
}

}  // namespace

std::vector<Match> find_layers(const ir::Graph& graph, const Recipe& recipe,
                               const IsKnown& is_known, std::vector<std::string>& notes) {
  check_names(recipe, graph.ops());
  return LayerFinder(graph, recipe, is_known, notes).run();
}

}  // namespace tandem::quant
