// Strides as eager would have them, for the questions that depend on them before functionalize is
// done: does a reshape share memory or copy? Does an op that counts in its operand's storage
// (as_strided) see the elements in row-major order?
#pragma once

#include <optional>
#include <vector>

#include "base/dense_map.h"
#include "ir/graph.h"

namespace tandem::passes {

/// Dimensions from the outermost in memory to the innermost; empty where that is row-major, or
/// where the type has gaps or overlaps.
std::vector<int64_t> memory_order(const ir::Type& type);
/// The same where elements lie without gaps and overlaps, empty for row-major; nothing where not.
/// A dimension of size 1 comes behind the others of its stride.
std::optional<std::vector<int64_t>> dense_order(const ir::Sizes& sizes, const ir::Sizes& strides);

/// Unsupported: the op counts in the storage of an operand that does not lie as it must.
[[noreturn]] void refuse_gaps(const ir::Node& node, const ir::Value* operand);

/// Places of a view as they count over the elements of its operand in row-major order.
struct StridedPlaces {
  ir::Sizes strides;
  sym::Expr offset;
};

/// All elements of the result are one number, whatever self holds.
bool is_one_number(const ir::Graph& graph, const ir::Node& node);

class EagerStrides {
 public:
  explicit EagerStrides(const ir::Graph& graph) : graph_(&graph) {}

  /// Notes the strides of a view op's results. False when eager copies instead: elements of the
  /// result do not lie at even steps in self's memory, or the op is `contiguous` and self is not.
  /// UserError for `view`, which never copies.
  bool shares_memory(const ir::Node& view, const ir::Value* self);

  /// Of a view that counts in self's storage (as_strided): the order in which self's dimensions lie
  /// there, from its start and without gaps. Empty where that is row-major, or not known.
  std::vector<int64_t> storage_order(const ir::Node& view, const ir::Value* self) const;

  /// The view counts in self's storage (as_strided), where self's elements do not lie row-major
  /// from the start, as far as is known.
  bool counts_elsewhere(const ir::Node& view, const ir::Value* self) const;
  /// Of such a view that shows elements of self alone, counted from where self begins: as it counts
  /// over these. Nothing where that is not known, or where a dimension goes on in self's next row.
  std::optional<StridedPlaces> row_major_places(const ir::Node& view, const ir::Value* self) const;

  /// Where it begins in the memory of what it is a view of, where that is known.
  std::optional<sym::Expr> begin_of(const ir::Value* value) const;

  /// What views made of it, else what a front end wrote; row-major where nothing is known.
  ir::Sizes of(const ir::Value* value) const;
  /// False where `of` is row-major because nothing was said: a view made of other views.
  bool knows(const ir::Value* value) const;

  /// Dimensions of a view's result along which it shows the same elements of self again.
  std::vector<int64_t> repeated_dims(const ir::Node& view, const ir::Value* result) const;
  /// Several elements of it are one place, as far as is known: all along a dimension, or wherever
  /// there are fewer places than elements.
  bool shows_places_twice(const ir::Value* value) const;
  bool overlaps(const ir::Value* value) const;

  /// Notes the strides of the result of a copy that asks for a memory format, and no front end has
  /// said. False where it asks for none.
  bool note_format(const ir::Node& node, const ir::Value* result);

  /// Notes whether eager lays the results out in row-major order from the start of a storage;
  /// `shared` when they share self's memory. To be called for every node in order. Unsupported when
  /// the op counts in the storage of an operand that is not laid out so.
  void note_layout(const ir::Node& node, bool shared);

 private:
  /// Where the result's elements lie, counted from self's begin.
  std::optional<StridedPlaces> view_places(const ir::Node& view, const ir::Value* result,
                                           const ir::Sizes& self) const;
  bool is_row_major(const ir::Value* value) const;
  const ir::Graph* graph_;
  DenseMap<ir::Value, ir::Sizes> strides_;
  DenseMap<ir::Value, std::optional<sym::Expr>> begins_;  // of views
  // Not from the start of a storage, or in strides that are not known.
  DenseMap<ir::Value, char> is_odd_;
};

}  // namespace tandem::passes
