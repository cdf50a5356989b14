// What items read: a question about their computations, asked once an item. At another position it
// is the same with other axes.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// Elements of materialized values and inputs, by their row-major position.
using ReadList = std::vector<std::pair<const ir::Value*, sym::Expr>>;

/// All that has no place inlined, over the axes of the item's computation.
struct ItemReads {
  ReadList at;
  bool can_fail = false;
};

/// The elements of tensors among the parts of scalars.
std::vector<loop::Val> elements_of(const Computations& computations,
                                   std::span<const loop::Val> roots);

/// Whether a scatter's result starts as the value, element by element, and nothing else of the
/// value is read: in the value's own memory only what is scattered need be stored.
bool starts_as(const Computations& computations, const Item& item, const ir::Value* value);

/// Values that results, write-backs and what runs elsewhere are made of. What may fail stays in the
/// graph unread; what only it reads is computed for nobody.
DenseMap<ir::Value, char> wanted_values(const ir::Graph& graph);

class ReadsByItem {
 public:
  explicit ReadsByItem(const KernelGraph& graph) : graph_(&graph) {}
  const ItemReads& of(const Item& item);

 private:
  const KernelGraph* graph_;
  std::vector<std::optional<ItemReads>> known_;  // by item id
};

/// What an item reads at a point of a group's space, as row-major positions.
struct PlacedReads {
  ReadList at;
  sym::Expr full;  // linear position of the point in the whole space
  sym::Expr row;   // of its row
  bool can_fail = false;
};

/// An item's reads at the axes of spaces. Each place is worked out once: of the hundreds of groups
/// of a recurrence that read one weight, most have the same space.
class ReadsInSpace {
 public:
  explicit ReadsInSpace(const KernelGraph& graph) : graph_(graph), reads_(graph) {}
  const PlacedReads& of(const Item& item, const Space& space, Extent extent);
  /// At the item's own axes: positions mean nothing to others.
  PlacedReads of_item(const Item& item);

 private:
  struct Place {
    Space space;
    Extent extent = Extent::full;
    PlacedReads reads;
  };

  PlacedReads placed_at(const Item& item, const Space& space, Extent extent);
  const ops::Index& axes_of(const ir::Sizes& sizes);

  const KernelGraph& graph_;
  ReadsByItem reads_;
  std::deque<std::deque<Place>> places_;               // by item id; places stay where they are
  std::deque<std::pair<ir::Sizes, ops::Index>> axes_;  // spaces of the same sizes have the same
};

}  // namespace tandem::schedule
