// Problem: a cut is a hundred decisions, and whoever wonders about memory or time wants to know
// which ones matter. Approach: each line says what a value is, what it takes and why, in graph
// order, under the names that a dump of the graph gives.
#include "passes/partition/cut_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/partition/bans.h"
#include "passes/partition/cut.h"
#include "passes/partition/recompute_cost.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

class CutReport {
 public:
  CutReport(const ir::Graph& joint, const Target& target, const ir::Values& saved)
      : joint_(joint),
        target_(target),
        saved_(saved),
        halves_(joint),
        bans_(bans_of(joint, halves_, target.tuning.chains)),
        wide_(wide_nodes(joint, target.tuning.chains)),
        names_(ir::value_names(joint)) {}

  std::string text() {
    std::string lines;
    for (const Value* value : saved_) lines += saved_line(*value);
    double microseconds = 0;
    double flops = 0;
    const std::vector<const Node*> again = computed_again(joint_, halves_, saved_);
    for (const Node* node : again) {
      lines += again_line(*node);
      microseconds += microseconds_again(*node, target_);
      flops += product_flops(*node);
    }
    return fmt::format(
               "cut of @{}: {} values saved, {} bytes; {} nodes computed again, {:.1f} us, {:.0f} "
               "flops of products\n",
               joint_.name(), saved_.size(), typical_bytes(saved_), again.size(), microseconds,
               flops) +
           lines;
  }

 private:
  static std::string bytes_text(const Value& value) { return sym::to_string(bytes_of(&value)); }

  std::string saved_line(const Value& value) const {
    const char* why = value.node == nullptr ? (lives_anyway(&value) ? "lives anyway" : "an input")
                                            : why_saved(bans_.at(value.node));
    return fmt::format("  saved  {:>12} bytes  %{}{}: {}\n", bytes_text(value), names_.at(&value),
                       value.node == nullptr ? "" : " = " + described(*value.node), why);
  }

  std::string again_line(const Node& node) const {
    const Value& result = *node.results.at(0);
    return fmt::format("  again  {:>12.2f} us     %{} = {}, {} bytes: {}\n",
                       microseconds_again(node, target_), names_.at(&result), described(node),
                       bytes_text(result), why_again(node));
  }

  static std::string described(const Node& node) {
    const std::string& place = node.origin.place;
    return ir::to_string(node) + (place.empty() ? "" : fmt::format(" ({})", place));
  }

  const char* why_again(const Node& node) const {
    if (node.op->is_view()) return "a view";
    if (asked_to_recompute(node)) return "its policy";
    if (wide_.at(&node) != 0) return "long attention";
    if (is_source(node)) return "made from nothing";
    return bans_.at(&node).is_ban() ? "the budget" : "runs inside of its reader";
  }

  const ir::Graph& joint_;
  const Target& target_;
  const ir::Values& saved_;
  Halves halves_;
  DenseMap<Node, Ban> bans_;
  DenseMap<Node, char> wide_;
  DenseMap<Value, std::string> names_;
};

}  // namespace

std::string cut_text(const ir::Graph& joint, const Target& target, const ir::Values& saved) {
  return CutReport(joint, target, saved).text();
}

std::string pareto_text(const Frontier& frontier) {
  constexpr double kWidest = 40;
  const double most = static_cast<double>(std::max<int64_t>(frontier.choices.back().bytes, 1));
  std::string text =
      "  bytes saved                                             us computed again\n";
  for (const Choice& choice : frontier.choices) {
    const double share = static_cast<double>(choice.bytes) / most;
    text += fmt::format("{:>13}  {:<40}  {:>15.1f}{}\n", choice.bytes,
                        std::string(static_cast<size_t>(kWidest * share), '#'), choice.microseconds,
                        choice.bytes == frontier.cut_bytes ? "  min_cut" : "");
  }
  return text;
}

}  // namespace tandem::passes
