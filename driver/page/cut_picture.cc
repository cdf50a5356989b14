// Problem: a joint graph of thousands of nodes is no picture, but its cut may be one. Approach:
// four columns, what makes the values that cross, these values on the line, what backward computes
// again, and what reads; each box in a row of its own and with words of one size. Of more rows than
// can be looked at those with the most bytes, or microseconds, are drawn, and how many are not is
// said.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "driver/page/markup.h"
#include "driver/page/parts.h"

namespace tandem::driver::page {
namespace {

using passes::CutRow;
using passes::CutTable;

constexpr size_t kMostRows = 250;  // of a column
constexpr double kRow = 26;
constexpr double kBox = 20;
constexpr size_t kCharacters = 34;
constexpr std::array<double, 4> kColumn = {10, 290, 480, 780};
constexpr std::array<double, 4> kColumnWidth = {240, 130, 250, 250};

size_t column_of(const CutRow& row) {
  switch (row.kind) {
    case CutRow::Kind::saved: return 1;
    case CutRow::Kind::again: return 2;
    case CutRow::Kind::reader: return 3;
  }
  return 3;
}

/// "aten.mm" of "aten.mm(f32[4, 4])".
std::string_view op_of(const CutRow& row) {
  return std::string_view(row.what).substr(0, row.what.find('('));
}

class Picture {
 public:
  explicit Picture(const CutTable& table) : table_(table), place_(table.rows.size(), -1) {
    for (const CutRow::Kind kind : {CutRow::Kind::saved, CutRow::Kind::again, CutRow::Kind::reader})
      place(chosen(kind));
  }

  std::string text() const {
    const double height = kRow * (static_cast<double>(rows_) + 2);
    std::string svg = fmt::format(
        "<div class=\"scroll\"><svg class=\"cut\" viewBox=\"0 0 1050 {0}\" "
        "width=\"1050\" height=\"{0}\">\n",
        height);
    svg += fmt::format("<line class=\"border\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/>\n",
                       kColumn[1] + kColumnWidth[1] / 2, height);
    return omitted() + svg + heads() + edges() + boxes() + "</svg></div>\n";
  }

 private:
  static double weight(const CutRow& row) {
    if (row.kind == CutRow::Kind::again) return row.microseconds;
    return row.is_free ? 0 : static_cast<double>(row.bytes);
  }

  /// In graph order.
  std::vector<uint32_t> chosen(CutRow::Kind kind) const {
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < table_.rows.size(); ++i)
      if (table_.rows[i].kind == kind && is_joined(table_.rows[i])) rows.push_back(i);
    if (rows.size() <= kMostRows) return rows;
    std::ranges::stable_sort(rows, [&](uint32_t a, uint32_t b) {
      return weight(table_.rows[a]) > weight(table_.rows[b]);
    });
    rows.resize(kMostRows);
    std::ranges::sort(rows);
    return rows;
  }

  /// A reader of nothing that is drawn would stand alone.
  bool is_joined(const CutRow& row) const {
    return row.kind != CutRow::Kind::reader ||
           std::ranges::any_of(row.reads, [&](uint32_t read) { return place_[read] >= 0; });
  }

  /// Next to what they read, where that row is free.
  void place(const std::vector<uint32_t>& rows) {
    std::set<size_t> taken;
    size_t next = 1;
    for (const uint32_t row : rows) {
      size_t at = std::max(wanted(table_.rows[row]), size_t{1});
      if (table_.rows[row].kind == CutRow::Kind::saved) at = next++;
      while (!taken.insert(at).second) ++at;
      place_[row] = kRow * static_cast<double>(at);
      rows_ = std::max(rows_, at);
    }
  }

  size_t wanted(const CutRow& row) const {
    double sum = 0;
    size_t count = 0;
    for (const uint32_t read : row.reads)
      if (place_[read] >= 0) sum += place_[read], ++count;
    return count == 0 ? 0 : static_cast<size_t>(sum / kRow / static_cast<double>(count));
  }

  std::string omitted() const {
    size_t left_out = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < place_.size(); ++i) {
      if (place_[i] >= 0) continue;
      ++left_out;
      const CutRow& row = table_.rows[i];
      if (row.kind == CutRow::Kind::saved && !row.is_free) bytes += row.bytes;
    }
    if (left_out == 0) return "";
    return fmt::format(
        "<p>Not drawn: {} of {} boxes, {} of what is saved; the tables have all.</p>\n", left_out,
        place_.size(), bytes_text(bytes));
  }

  static std::string heads() {
    constexpr std::array<const char*, 4> kNames = {"forward computes", "saved", "computed again",
                                                   "backward reads"};
    std::string text;
    for (size_t i = 0; i < kNames.size(); ++i)
      text +=
          fmt::format("<text class=\"head\" x=\"{}\" y=\"16\">{}</text>\n", kColumn[i], kNames[i]);
    return text;
  }

  std::string boxes() const {
    std::string text;
    for (uint32_t i = 0; i < place_.size(); ++i) {
      if (place_[i] < 0) continue;
      const CutRow& row = table_.rows[i];
      const bool is_saved = row.kind == CutRow::Kind::saved;
      const std::string what = row.what.empty() ? row.why : std::string(op_of(row));
      const std::string named = fmt::format("%{} {}", row.name, what);
      if (is_saved) text += box(i, 0, row.what.empty() ? "input" : "forward", named);
      text += box(i, column_of(row),
                  is_saved                          ? "kept"
                  : row.kind == CutRow::Kind::again ? "remade"
                                                    : "reader",
                  is_saved ? bytes_text(row.bytes) : named);
    }
    return text;
  }

  std::string box(uint32_t number, size_t column, std::string_view style,
                  const std::string& words) const {
    const CutRow& row = table_.rows[number];
    const std::string full = fmt::format("%{} {}: {} bytes, {:.2f} µs. {}", row.name, row.what,
                                         row.bytes_text, row.microseconds, row.why);
    return fmt::format(
        "<g class=\"box {0}\" data-row=\"{1}\"><title>{2}</title><rect x=\"{3}\" "
        "y=\"{4}\" width=\"{5}\" height=\"{6}\" rx=\"3\"/><text x=\"{7}\" "
        "y=\"{8}\">{9}</text></g>\n",
        style, number, escaped(full), kColumn[column], place_[number], kColumnWidth[column], kBox,
        kColumn[column] + 6, place_[number] + 14, escaped(shortened(words, kCharacters)));
  }

  std::string edges() const {
    std::string text;
    for (uint32_t i = 0; i < place_.size(); ++i) {
      if (place_[i] < 0) continue;
      if (table_.rows[i].kind == CutRow::Kind::saved) text += edge(i, 0, i, 1);
      for (const uint32_t read : table_.rows[i].reads)
        if (place_[read] >= 0)
          text += edge(read, column_of(table_.rows[read]), i, column_of(table_.rows[i]));
    }
    return text;
  }

  /// Between boxes of one column it bows out to the right.
  std::string edge(uint32_t from, size_t from_column, uint32_t to, size_t to_column) const {
    const double x1 = kColumn[from_column] + kColumnWidth[from_column];
    const bool is_bow = from_column == to_column;
    const double x2 = is_bow ? x1 : kColumn[to_column];
    const double y1 = place_[from] + kBox / 2;
    const double y2 = place_[to] + kBox / 2;
    const double c1 = is_bow ? x1 + 24 : (x1 + x2) / 2;
    return fmt::format(
        "<path class=\"edge\" data-from=\"{}\" data-to=\"{}\" d=\"M{} {} C{} {} {} {} "
        "{} {}\"/>\n",
        from, to, x1, y1, c1, y1, c1, y2, x2, y2);
  }

  const CutTable& table_;
  std::vector<double> place_;  // y, by row of the table; below 0: not drawn
  size_t rows_ = 0;
};

}  // namespace

std::string cut_picture(const CutTable& table) { return Picture(table).text(); }

}  // namespace tandem::driver::page
