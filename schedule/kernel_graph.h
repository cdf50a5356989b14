// What stands between the tensor graph and the program: which values are computed as such (items),
// by what, how they lie in memory, which of them share a kernel (groups), the kernels, and the
// order they run in. Each step is a pass over it, and adds what the next ones need.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/program.h"
#include "base/dense_map.h"
#include "base/pass.h"
#include "base/target.h"
#include "ir/graph.h"
#include "loop/kernel.h"
#include "schedule/computation.h"
#include "schedule/decision.h"
#include "schedule/schedule.h"

namespace tandem::schedule {

/// One result of an item: where it is kept, and how.
struct Slot {
  const ir::Value* value = nullptr;  // null for the partial sums of a split reduction
  DType dtype = DType::f32;
  ir::Sizes sizes;
  ir::Sizes strides;  // layout of its buffer, in elements
  /// Read outside of its group, or leaves the graph; else it is a local or a row of scratch.
  bool is_stored = false;
  const ir::Value* in_place_of = nullptr;  // the input whose memory it takes
};

/// A value, or several of one reduction, that is computed as such rather than inlined into its
/// users.
struct Item {
  enum class Kind : uint8_t { map, reduce, scan, scatter, library };
  uint32_t id = 0;
  Kind kind = Kind::map;
  const ir::Node* node = nullptr;
  size_t result = 0;        // of a map: which result of the node
  Computation computation;  // over materialized values, once inline_values has run; of a library
                            // item: unused
  ops::RouteKind route = ops::RouteKind::matmul;
  std::vector<Slot> slots;
  /// Split reductions: the item whose slots hold this item's partial results, and the number of
  /// blocks.
  Item* partial_of = nullptr;
  /// Partial sums of columns: how many rows there are (each block takes reduce_sizes[0] of them); 0
  /// where the sums are no columns of a row-major space.
  sym::Expr partial_rows = 0;
  std::string reason;  // why it is materialized
  /// The item walks memory channels-last: so lie its slots, or what it reduces.
  bool channels_last = false;
};
std::string_view name_of(Item::Kind kind);

/// Where a value lives: a slot of an item; none for inputs and for what is inlined.
struct Home {
  Item* item = nullptr;
  uint32_t slot = 0;
};

/// Iteration space of a group: outer axes (rows) and inner axes (reduced, or empty for pointwise
/// work).
struct Space {
  ir::Sizes outer;
  ir::Sizes inner;
  bool reduces = false;
  /// outer x inner is the row-major order of the tensors worked on, so whole tensors fit in.
  bool whole = true;

  bool operator==(const Space&) const = default;
};

/// How a member of a group uses its space: each point; each row; each column, adding up what the
/// rows of a block bring.
enum class Extent : uint8_t { full, row, columns };
std::string_view name_of(Extent extent);

struct Member {
  Item* item = nullptr;
  Extent extent = Extent::full;
  int stage = 0;
};

/// What a group needs of others.
struct Needs {
  std::set<const ir::Value*>
      reads;                  // materialized values and inputs read from memory or from members
  std::set<uint32_t> groups;  // numbers of those that must run before
  bool can_fail = false;      // it checks: nothing it would leave half done may come first
};

/// A library call whose result a kernel works on line by line.
struct Followed {
  uint32_t call = 0;  // number of its group, which comes right before
  int64_t lines = 0;  // of its result: images times rows of the first spatial dimension
};

/// Items that run as one kernel, or one library call.
struct Group {
  enum class Kind : uint8_t { loops, alone, library, chain };
  /// loops: others may join. alone: a scan or a scatter. chain: kernels of one row after the other.
  Kind kind = Kind::loops;
  Space space;
  std::vector<Member> members;
  Needs needs;
  /// A sum that is computed where it is read: what is read of it at one point is a stage of its
  /// own.
  const Item* footprint = nullptr;
  int footprint_reads = 0;          // places where it is read; one is computed there
  std::optional<Followed> follows;  // the kernel runs along a call, a task for each line
  loop::Kernel kernel;              // of no library call
  std::vector<const ir::Value*>
      buffer_values;               // what each kernel buffer holds; null for scratch and partials
  std::vector<Home> buffer_homes;  // for slots without a value

  bool is_library() const { return kind == Kind::library; }
  bool takes_members() const { return kind == Kind::loops; }
  Item& first() const { return *members[0].item; }
};

std::string_view name_of(Group::Kind kind);

/// Groups by number, in the order they run; those that run at the same time stand together.
using LaunchOrder = std::vector<std::vector<size_t>>;

struct KernelGraph {
  KernelGraph(const ir::Graph& graph, const Target& target);
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;

  bool is_materialized(const ir::Value* value) const {
    return value->node == nullptr || homes.at(value).item != nullptr;
  }
  /// How the memory of a materialized value or an input lies.
  ir::Sizes strides_of(const ir::Value* value) const;
  /// The value that memory belongs to: itself, or the input that it replaces.
  const ir::Value* memory_of(const ir::Value* value) const;
  /// Whether that is the program's own, which begins on a line; no input's.
  bool has_own_memory(const ir::Value* value) const;
  void note(const ir::Node& node, std::string text);
  /// Removes groups without members; `joined_to`, by group: where its members are now.
  void drop_empty_groups(const std::vector<uint32_t>& joined_to);

  const ir::Graph* graph = nullptr;
  Target target;
  Computations computations;                 // of nodes, each on its own
  loop::ScalarPool scalars;                  // of the items' computations
  std::vector<std::unique_ptr<Item>> items;  // in program order
  DenseMap<ir::Value, Home> homes;
  /// Results of the graph that are another value's elements in the same order, with other sizes:
  /// they leave as that value, and have no place of their own.
  DenseMap<ir::Value, const ir::Value*> leaves_as;
  std::vector<Group> groups;  // in execution order
  LaunchOrder order;
  std::vector<Note> notes;
  Decisions decisions;
  Chooser choose;  // among mappings; null: the first that fits
};

using KernelPass = Pass<KernelGraph>;

// What holds of a kernel graph, in the order in which it comes to hold.
enum KernelFacts : Facts {
  kItems = 1,         // values that get memory or a place in a kernel; their routes
  kComputations = 2,  // each item says what it computes of materialized values
  kGroups = 4,        // items that share a kernel
  kKernels = 8,       // each group has one
  kOrdered = 16,      // groups run in this order
};

/// All steps in their order, on a new kernel graph. UserError where a step that another one needs
/// is disabled, or TANDEM_STOP_AFTER ends the road.
void run_steps(KernelGraph& graph);

}  // namespace tandem::schedule
