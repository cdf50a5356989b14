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

class CutRows {
 public:
  CutRows(const ir::Graph& joint, const GraphCtx& ctx, const ir::Values& saved)
      : joint_(joint),
        target_(ctx.target),
        saved_(saved),
        storage_(ctx.storage),
        partition_(ctx.partition),
        kept_(joint, ctx.storage),
        halves_(joint),
        bans_(bans_of(joint, halves_, ctx.target.tuning.chains, ctx.budget.knobs)),
        wide_(wide_nodes(joint, ctx.target.tuning.chains)),
        names_(ir::value_names(joint)) {}

  CutTable table() {
    for (const Value* value : saved_) add_saved(*value);
    for (const Node* node : computed_again(joint_, halves_, saved_)) again_[node] = 1;
    for (const Node* node = joint_.first(); node != nullptr; node = node->next) {
      if (again_.at(node) != 0) add_again(*node);
      if (halves_.needs_tangent(node)) add_reader(*node);
    }
    return {joint_.name(), std::move(rows_)};
  }

 private:
  void add_saved(const Value& value) {
    CutRow row = row_of(CutRow::Kind::saved, value);
    const Node* node = value.node;
    row.is_free = lives_anyway(&value);
    row.why = node != nullptr ? why_saved(bans_.at(node))
              : row.is_free   ? "lives anyway"
                              : "an input";
    if (node != nullptr) measure(row, *node);
    if (is_kept_small(joint_, value, "%" + row.name, storage_)) shrink(row, value);
    add(std::move(row), {&value});
  }

  void add_again(const Node& node) {
    CutRow row = row_of(CutRow::Kind::again, *node.results.at(0));
    row.why = why_again(node);
    row.reads = reads_of(node);
    measure(row, node);
    add(std::move(row), {node.results.begin(), node.results.end()});
  }

  /// Only what stands at the cut: of backward's other nodes no row is told.
  void add_reader(const Node& node) {
    std::vector<uint32_t> reads = reads_of(node);
    if (reads.empty() || node.results.empty()) return;
    CutRow row = row_of(CutRow::Kind::reader, *node.results[0]);
    row.reads = std::move(reads);
    rows_.push_back(std::move(row));
  }

  CutRow row_of(CutRow::Kind kind, const Value& value) const {
    CutRow row;
    row.kind = kind;
    row.name = names_.at(&value);
    if (value.node != nullptr) row.what = described(*value.node);
    row.bytes_text = sym::to_string(bytes_of(&value));
    row.bytes = typical_bytes(&value);
    return row;
  }

  /// A symbolic size stays what it was in words: those of the whole value.
  void shrink(CutRow& row, const Value& value) const {
    row.bytes = kept_.of(&value);
    if (bytes_of(&value).constant()) row.bytes_text = std::to_string(row.bytes);
    const bool is_mask = value.type.dtype == DType::boolean;
    row.why += fmt::format("; kept as {}", is_mask ? "bits" : name_of(storage_.kind));
  }

  void measure(CutRow& row, const Node& node) const {
    row.microseconds = microseconds_again(node, target_);
    row.flops = product_flops(node);
  }

  /// `values`: what a reader of the row reads.
  void add(CutRow row, const std::vector<const Value*>& values) {
    rows_.push_back(std::move(row));
    for (const Value* value : values) number_[value] = static_cast<uint32_t>(rows_.size());
  }

  std::vector<uint32_t> reads_of(const Node& node) const {
    std::vector<uint32_t> rows;
    ir::for_each_operand(node.args, [&](const Value* operand) {
      const uint32_t number = number_.at(operand);
      if (number > 0 && std::ranges::find(rows, number - 1) == rows.end())
        rows.push_back(number - 1);
    });
    return rows;
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
    if (!bans_.at(&node).is_ban()) return "runs inside of its reader";
    if (partition_ == Partition::caller) return "the caller's partition";
    return partition_ == Partition::priced ? "its bytes outweigh its time" : "the budget";
  }

  const ir::Graph& joint_;
  const Target& target_;
  const ir::Values& saved_;
  const SavedStorage& storage_;
  Partition partition_;
  KeptBytes kept_;
  Halves halves_;
  DenseMap<Node, Ban> bans_;
  DenseMap<Node, char> wide_;
  DenseMap<Value, std::string> names_;
  DenseMap<Node, char> again_;
  DenseMap<Value, uint32_t> number_;  // of the row, from 1
  std::vector<CutRow> rows_;
};

std::string line_of(const CutRow& row) {
  if (row.kind == CutRow::Kind::saved)
    return fmt::format("  saved  {:>12} bytes  %{}{}: {}\n", row.bytes_text, row.name,
                       row.what.empty() ? "" : " = " + row.what, row.why);
  return fmt::format("  again  {:>12.2f} us     %{} = {}, {} bytes: {}\n", row.microseconds,
                     row.name, row.what, row.bytes_text, row.why);
}

}  // namespace

CutTable cut_table(const ir::Graph& joint, const GraphCtx& ctx, const ir::Values& saved) {
  return CutRows(joint, ctx, saved).table();
}

CutSums sums_of(const CutTable& table) {
  CutSums sums;
  for (const CutRow& row : table.rows) {
    const bool is_again = row.kind == CutRow::Kind::again;
    sums.saved += row.kind == CutRow::Kind::saved;
    sums.again += is_again;
    if (row.kind == CutRow::Kind::saved && !row.is_free) sums.bytes += row.bytes;
    if (is_again) sums.microseconds += row.microseconds;
    if (is_again) sums.flops += row.flops;
  }
  return sums;
}

std::string cut_text(const CutTable& table) {
  const CutSums sums = sums_of(table);
  std::string text = fmt::format(
      "cut of @{}: {} values saved, {} bytes; {} nodes computed again, {:.1f} us, {:.0f} "
      "flops of products\n",
      table.graph, sums.saved, sums.bytes, sums.again, sums.microseconds, sums.flops);
  for (const CutRow& row : table.rows)
    if (row.kind != CutRow::Kind::reader) text += line_of(row);
  return text;
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
