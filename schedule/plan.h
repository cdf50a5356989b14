// What scheduling decides, in the order it decides it: items (values that get computed as such),
// groups (items that share a kernel), kernels. Every decision keeps its reason.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/program.h"
#include "base/dense_map.h"
#include "base/target.h"
#include "ir/graph.h"
#include "schedule/computation.h"
#include "schedule/decision.h"

namespace tandem::schedule {

/// One stored (or row-local) result of an item.
struct Slot {
  const ir::Value* value = nullptr;  // null for the partial sums of a split reduction
  DType dtype = DType::f32;
  ir::Sizes sizes;
  ir::Sizes strides;  // layout of its buffer, in elements
};

/// A value, or several of one reduction, that is computed as such rather than inlined into its
/// users.
struct Item {
  enum class Kind : uint8_t { map, reduce, scan, scatter, library };
  uint32_t id = 0;
  Kind kind = Kind::map;
  const ir::Node* node = nullptr;
  size_t result = 0;        // of a map: which result of the node
  Computation computation;  // of a library item: unused
  ops::RouteKind route = ops::RouteKind::matmul;
  std::vector<Slot> slots;
  /// Split reductions: the item whose slots hold this item's partial results, and the number of
  /// blocks.
  Item* partial_of = nullptr;
  /// Partial sums of columns: how many rows there are (each block takes reduce_sizes[0] of them); 0
  /// where the sums are no columns of a row-major space.
  sym::Expr partial_rows = 0;
  std::string reason;  // why it is realised
  /// The item walks memory channels-last: so lie its slots, or what it reduces.
  bool channels_last = false;
};

/// Strided elements of a realised value (or graph input): what a view of it denotes.
struct StridedRef {
  const ir::Value* root = nullptr;
  ir::Sizes sizes;
  ir::Sizes strides;
  sym::Expr offset = 0;
};

/// Where each value lives: input, slot of an item, or nowhere (inlined).
struct Home {
  Item* item = nullptr;
  uint32_t slot = 0;
};

struct Note {
  std::string place;  // "%12 aten.exp"
  std::string text;
};

struct Plan {
  const ir::Graph* graph = nullptr;
  Target target;
  std::vector<std::unique_ptr<Item>> items;  // in program order
  DenseMap<ir::Value, Home> homes;
  std::vector<Note> notes;
  Decisions decisions;
  /// Results of the graph that are another value's elements in the same order, with other sizes:
  /// they leave as that value, and have no place of their own.
  DenseMap<ir::Value, const ir::Value*> leaves_as;
  bool is_realized(const ir::Value* value) const {
    return value->node == nullptr || homes.at(value).item != nullptr;
  }
};

}  // namespace tandem::schedule
