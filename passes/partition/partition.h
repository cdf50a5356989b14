// What the partition passes share: which part of a joint graph a value belongs to, and what it
// costs to keep.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/dense_map.h"
#include "base/tuning.h"
#include "ir/graph.h"
#include "passes/partition/kept_bytes.h"

namespace tandem::passes {

/// One program that owns the whole step: what reverse mode made is read by updates, not handed out.
bool is_whole_step(const ir::Graph& graph);

/// The two halves of a joint graph, or of a whole step (by the flags of its nodes). What is in
/// neither may be computed on either side.
struct Halves {
  explicit Halves(const ir::Graph& graph);

  /// Outputs, saved values, write-backs and checks on data need it.
  bool is_forward(const ir::Node* node) const { return forward_.at(node); }
  /// A tangent reaches it, so that only backward can compute it.
  bool needs_tangent(const ir::Node* node) const { return tangent_.at(node); }
  bool needs_tangent(const ir::Value* value) const;
  /// An input that is no tangent, or the result of a forward node.
  bool is_forward(const ir::Value* value) const;

 private:
  void find_by_flags(const ir::Graph& graph);
  void find_by_tangents(const ir::Graph& graph);

  DenseMap<ir::Node, char> forward_;
  DenseMap<ir::Node, char> tangent_;
};

/// Values of the forward half that the rest reads, each once, in graph order (inputs first).
ir::Values crossing(const ir::Graph& graph, const Halves& halves);
/// What is saved where nothing but views is computed again: of those their bases, each once.
ir::Values all_that_is_read(const ir::Graph& graph);

/// Bytes of a value: for the eye, and as a number to compare by (a symbolic size counts as a
/// typical one).
sym::Expr bytes_of(const ir::Value* value);
int64_t typical_bytes(const ir::Value* value);
/// None where a size is a symbol.
std::optional<int64_t> known_bytes(const ir::Value* value);
int64_t typical_size(sym::Expr size);

/// The value whose elements a chain of views shows.
ir::Value* base_of(ir::Value* value);
/// Costs nothing to keep: a parameter or buffer that lives anyway and that the program does not
/// overwrite.
bool lives_anyway(const ir::Value* value);
/// Reads no tensor: a constant fill, a ramp, random numbers.
bool is_source(const ir::Node& node);
/// Nothing tells a second run from the first: it writes nothing, cannot fail, runs here, and draws
/// its random numbers by a seed.
bool gives_the_same_again(const ir::Node& node);
/// Checkpointing asks that it be computed again. Never so where that could give something else, nor
/// of what a later checkpoint region starts from.
bool asked_to_recompute(const ir::Node& node);

/// Large results of batches of narrow products, what is made of those element by element, and the
/// random numbers that go into them (dropout of the weights): cheaper made again than kept,
/// whatever the partition. Sizes that are not known count as small. wide.cc
DenseMap<ir::Node, char> wide_nodes(const ir::Graph& graph, const Tuning::Chains& limits);

// The partitions: what forward saves.
struct CutKnobs;

/// The forward values that backward reads; instead of a view its base; not what is made from
/// nothing, nor casts and masks of what is kept anyway or smaller. Recompute policies go first, but
/// for what can fail. choose.cc
ir::Values default_choice(ir::Graph& graph, const Tuning::Chains& limits, const KeptBytes& kept);
/// By whom halves and wide nodes are known.
ir::Values default_choice(ir::Graph& graph, const Halves& halves,
                          const DenseMap<ir::Node, char>& wide, const KeptBytes& kept);
/// A minimum cut over bytes: chains of pointwise nodes are computed again where that saves memory.
/// Products, reductions, random numbers and what can fail never are. The default's, where that is
/// smaller. Notes say why a value is saved. min_cut.cc
ir::Values min_cut(ir::Graph& graph, const Tuning::Chains& limits, const KeptBytes& kept,
                   std::vector<std::string>& notes, const CutKnobs& knobs);

/// Makes `values` the saved values: outputs of kind `saved` before the gradients, scalars last. Of
/// an input that is overwritten, by forward or backward, a copy is saved.
void set_saved(ir::Graph& graph, const ir::Values& values);
/// Of the outputs of kind `saved`, in order: what the report of the cut calls them.
void name_saved(ir::Graph& graph, const std::vector<std::string>& names);
/// Of a whole step: backward reads copies of what makes the forward values that it reads and that
/// are not among these. Gives how many nodes are copied. recompute.cc
size_t recompute_unsaved(ir::Graph& graph, const ir::Values& saved);
/// Bytes to compare choices by: what lives anyway and scalars count nothing.
int64_t typical_bytes(const ir::Values& saved);
/// The note of a choice: how many values, how many bytes.
std::string describe_saved(const ir::Graph& graph);

}  // namespace tandem::passes
