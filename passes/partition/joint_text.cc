// A node of backward has the place of the node that it is the gradient of, whatever both were
// decomposed into since; so places tell what belongs beside what. Text of nodes is that of the
// graph's own print, so names are those of other dumps.
#include "passes/partition/joint_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "ir/text.h"
#include "passes/partition/partition.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

constexpr size_t kColumn = 72;

/// What stands beside each other.
struct Row {
  std::string place;
  std::vector<std::string> forward;
  std::vector<std::string> backward;
};

/// Without what the table says itself: its half, its place.
std::string shortened(std::string line) {
  line = line.substr(line.find_first_not_of(' '));
  for (std::string_view end : {" loc(", " {backward", " {no_grad"})
    line = line.substr(0, line.find(end));
  return line;
}

/// Of the nodes, in order.
std::vector<std::string> lines_of(const ir::Graph& graph) {
  std::istringstream text(ir::to_string(graph));
  std::vector<std::string> lines;
  std::string line;
  std::getline(text, line);  // the signature
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    std::getline(text, line);
    lines.push_back(shortened(line));
  }
  return lines;
}

/// Characters, not bytes: a name may have others than ASCII.
std::string cut(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  size_t end = width - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::vector<Row> rows_of(const ir::Graph& joint, const ir::Values& saved) {
  const Halves halves(joint);
  const std::vector<std::string> lines = lines_of(joint);
  std::vector<Row> rows;
  std::map<std::string, size_t> numbers;
  const auto row_of = [&](const std::string& place) -> Row& {
    const auto [at, is_new] = numbers.try_emplace(place, rows.size());
    if (is_new) rows.push_back({place, {}, {}});
    return rows[at->second];
  };
  size_t number = 0;
  for (const Node* node = joint.first(); node != nullptr; node = node->next) {
    const std::string& line = lines[number++];
    Row& row = row_of(node->origin.place);
    const bool is_saved = std::ranges::any_of(node->results, [&](const Value* result) {
      return std::ranges::find(saved, result) != saved.end();
    });
    if (halves.is_forward(node))
      row.forward.push_back((is_saved ? "* " : "  ") + line);
    else
      row.backward.push_back(line);
  }
  return rows;
}

void add_row(std::string& text, const Row& row) {
  text += row.place.empty() ? "" : row.place + "\n";
  for (size_t i = 0; i < std::max(row.forward.size(), row.backward.size()); ++i) {
    const std::string left = i < row.forward.size() ? cut(row.forward[i], kColumn) : "";
    const std::string right = i < row.backward.size() ? cut(row.backward[i], kColumn) : "";
    text += fmt::format("{:<{}} |{}{}\n", left, kColumn, right.empty() ? "" : " ", right);
  }
}

}  // namespace

std::string joint_text(const ir::Graph& joint, const ir::Values& saved) {
  std::string text =
      fmt::format("; joint graph @{}: forward | backward; * is saved\n", joint.name());
  for (const Value* input : joint.inputs())
    if (std::ranges::find(saved, input) != saved.end())
      text += fmt::format("* %{}: {}\n", input->name, to_string(input->type));
  for (const Row& row : rows_of(joint, saved)) add_row(text, row);
  return text;
}

}  // namespace tandem::passes
