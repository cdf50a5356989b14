// A cut as plain data: what reports print and draw of it, also long after the graph is gone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::passes {

struct CutRow {
  enum class Kind : uint8_t {
    saved,   // a value that forward keeps for backward
    again,   // a node that backward computes once more
    reader,  // a node of backward that reads one of the others
  } kind = Kind::saved;
  std::string name;         // of the value, or of the node's first result: "4" in a dump
  std::string what;         // "aten.mm(f32[64, 64], f32[64, 512]) (model.py:3)"; empty: an input
  std::string why;          // of what is saved or computed again
  std::string bytes_text;   // symbols included
  int64_t bytes = 0;        // a symbol counts as a typical size
  bool is_free = false;     // it lives anyway, and counts nothing
  double microseconds = 0;  // to compute the node (again), by the cost model; 0 for inputs
  double flops = 0;         // of products among that
  std::vector<uint32_t> reads;  // rows, by number
};

/// Saved values in graph order, then what is computed again and what reads, in graph order.
struct CutTable {
  std::string graph;
  std::vector<CutRow> rows;
};

struct CutSums {
  size_t saved = 0;
  size_t again = 0;
  int64_t bytes = 0;        // saved, but for what lives anyway
  double microseconds = 0;  // computed again
  double flops = 0;         // of products among that
};
CutSums sums_of(const CutTable& table);

}  // namespace tandem::passes
