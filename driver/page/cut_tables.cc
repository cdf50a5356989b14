// Problem: of hundreds of decisions a few matter. Approach: each table begins with what takes most,
// and a share bar in each row says how much of all that is.
#include <fmt/format.h>

#include <algorithm>

#include "driver/page/markup.h"
#include "driver/page/parts.h"

namespace tandem::driver::page {
namespace {

using passes::CutRow;
using passes::CutSums;
using passes::CutTable;

using Rows = std::vector<const CutRow*>;

Rows rows_of(const CutTable& table, CutRow::Kind kind) {
  Rows rows;
  for (const CutRow& row : table.rows)
    if (row.kind == kind) rows.push_back(&row);
  return rows;
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string bar(double percent) {
  return fmt::format("<td class=\"bar\"><i style=\"width:{:.1f}%\"></i></td>", percent);
}

std::string name_cells(const CutRow& row) {
  return fmt::format("<td class=\"name\">%{}</td><td class=\"what\">{}</td>", escaped(row.name),
                     escaped(row.what));
}

std::string saved_row(const CutRow& row, const CutSums& sums) {
  const double percent =
      row.is_free ? 0 : share(static_cast<double>(row.bytes), static_cast<double>(sums.bytes));
  return fmt::format(
      "<tr>{}<td class=\"number\" title=\"{} bytes\">{}</td>{}"
      "<td class=\"number\">{:.2f}</td><td>{}</td></tr>\n",
      name_cells(row), escaped(row.bytes_text), bytes_text(row.bytes), bar(percent),
      row.microseconds, escaped(row.why));
}

std::string again_row(const CutRow& row, const CutSums& sums) {
  return fmt::format(
      "<tr>{}<td class=\"number\">{:.2f}</td>{}"
      "<td class=\"number\" title=\"{} bytes\">{}</td><td>{}</td></tr>\n",
      name_cells(row), row.microseconds, bar(share(row.microseconds, sums.microseconds)),
      escaped(row.bytes_text), bytes_text(row.bytes), escaped(row.why));
}

std::string saved_table(const CutTable& table, const CutSums& sums) {
  Rows rows = rows_of(table, CutRow::Kind::saved);
  std::ranges::stable_sort(rows, [](const CutRow* a, const CutRow* b) {
    return a->is_free != b->is_free ? b->is_free : a->bytes > b->bytes;
  });
  std::string text =
      "<table class=\"saved\"><caption>Saved</caption><tr><th>value</th><th>made by</th>"
      "<th>bytes</th><th></th><th>µs to make it again</th><th>why it is saved</th></tr>\n";
  for (const CutRow* row : rows) text += saved_row(*row, sums);
  return text + "</table>\n";
}

std::string again_table(const CutTable& table, const CutSums& sums) {
  Rows rows = rows_of(table, CutRow::Kind::again);
  if (rows.empty()) return "<p>Nothing is computed again.</p>\n";
  std::ranges::stable_sort(
      rows, [](const CutRow* a, const CutRow* b) { return a->microseconds > b->microseconds; });
  std::string text =
      "<table class=\"again\"><caption>Computed again</caption><tr><th>value</th><th>made by</th>"
      "<th>µs</th><th></th><th>bytes not kept</th><th>why it is not saved</th></tr>\n";
  for (const CutRow* row : rows) text += again_row(*row, sums);
  return text + "</table>\n";
}

}  // namespace

std::string cut_tables(const CutTable& table) {
  const CutSums sums = sums_of(table);
  return fmt::format(
             "<p class=\"sums\">{} values are saved, {}; {} nodes are computed again, {:.1f} µs"
             " by the cost model, {:.0f} million operations of products.</p>\n",
             sums.saved, bytes_text(sums.bytes), sums.again, sums.microseconds, sums.flops / 1e6) +
         saved_table(table, sums) + again_table(table, sums);
}

}  // namespace tandem::driver::page
