// Which items share a kernel, and in which order kernels run.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "schedule/lowering.h"
#include "schedule/plan.h"

namespace tandem::schedule {

/// Iteration space of a kernel: outer axes (rows) and inner axes (reduced, or empty for pointwise
/// work).
struct Space {
  ir::Sizes outer;
  ir::Sizes inner;
  bool reduces = false;
  /// outer x inner is the row-major order of the tensors worked on, so whole tensors fit in.
  bool whole = true;
};

/// How a member of a group uses its space: each point; each row; each column, adding up what the
/// rows of a block bring.
enum class Extent : uint8_t { full, row, columns };

/// Where partial sums of columns stand at the point (outer, inner) of a space of rows.
struct ColumnPoint {
  ops::Index out;  // (block, column…)
  ops::Index in;   // (row of the block)
};
ColumnPoint column_point(const Item& item, const Space& space, const ops::Index& outer,
                         const ops::Index& inner);

struct Member {
  Item* item = nullptr;
  Extent extent = Extent::full;
  int stage = 0;
};

/// A group before its kernel is built.
struct Draft {
  Space space;
  std::vector<Member> members;
  std::set<const ir::Value*> reads;  // realised values and inputs read from memory or from members
  std::set<uint32_t> depends;        // drafts that must run before
  std::string reason;                // why the members share it
  const Item* on_the_way = nullptr;  // a sum that is computed where it is read: window_sums.cc
  bool fixed = false;                // nothing may join (library, scan, scatter)
  bool can_fail = false;
};

struct Drafts {
  std::vector<Draft> drafts;  // in execution order
  /// Results that live in the memory of an input they replace.
  std::map<std::pair<const Item*, uint32_t>, const ir::Value*> in_place;
  /// Results read outside their group (or leaving the graph): these are stored.
  std::set<std::pair<const Item*, uint32_t>> stored;
};

Drafts form_groups(Plan& plan, GraphLowering& lowering);

/// Index of a tensor of `sizes` at the point (axes) of a space with axis sizes `space`, same
/// element count.
ops::Index index_at(const ir::Sizes& space, const ops::Index& axes, const ir::Sizes& sizes);
sym::Expr linear_index(const ops::Index& index, const ir::Sizes& sizes);
/// Sizes without the dimensions of extent 1, which carry no position.
ir::Sizes without_ones(const ir::Sizes& sizes);

}  // namespace tandem::schedule
