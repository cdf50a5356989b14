// Graph to graph: every pass of this room, with its contract. Each is one file of its name.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/pass.h"
#include "base/target.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "passes/partition/cut_table.h"
#include "passes/partition/knapsack.h"
#include "passes/partition/storage.h"

namespace tandem::passes {

/// What gradients start from: a tangent of each result, or the one of a loss; or, forward, from a
/// tangent of each input.
enum class Gradients : uint8_t { none, tangents, ones, forward };
/// "tangents", "ones", "forward", or "" for none; UserError for others.
Gradients gradients_named(std::string_view name);

/// What a forward program keeps for its backward; none: there is one program.
enum class Partition : uint8_t {
  none,
  standard,  // what backward reads
  priced,    // what saves enough bytes for its time is computed again
  min_cut,   // what costs next to no time is
  budget,
  caller,  // a function of who compiles says
};
/// "as_read" is standard, "default" is priced, "min_cut", and `budget` is for what budget_named
/// takes; UserError for others.
Partition partition_named(std::string_view name);
/// The word for it; "budget" where a Budget says the rest.
std::string_view name_of(Partition partition);

/// What min_cut does not compute again, and what costs it nothing to keep; so also of what
/// fractions are shares of. Named as PyTorch's configuration names them.
struct CutKnobs {
  bool ban_recompute_used_far_apart = true;
  bool ban_recompute_long_fusible_chains = true;
  bool ban_recompute_materialized_backward = true;
  bool ban_recompute_not_in_allowlist =
      true;                               // without: products and random numbers alone are kept
  bool ban_recompute_reductions = true;   // of what is much smaller than what it is made from
  bool aggressive_recomputation = false;  // all bans above but the last are off
  bool treat_parameters_as_free_to_save = true;
  bool recompute_views = false;  // no view is saved, not even of a part
  bool operator==(const CutKnobs&) const = default;
};
/// Of "ban_recompute_reductions=false" and the like; UserError names those there are.
CutKnobs knobs_named(const std::vector<std::string>& words);

/// Of Partition::budget: the room for what is saved.
struct Budget {
  enum class Kind : uint8_t {
    fraction,    // of the way from the fewest bytes possible (0) to those of min_cut (1)
    min_memory,  // the fewest bytes possible
    min_time,    // as many as it takes for the least work in backward
    bytes,       // what a step holds at once, arguments included
  };
  Kind kind = Kind::fraction;
  double fraction = 1;
  int64_t bytes = 0;
  KnapsackSolver solver = KnapsackSolver::dp;
  /// By which work that is done again is compared: the time it takes, by the rates of the target's
  /// table or by those measured on this machine, or operations of products alone, the rest only
  /// where these are equal.
  enum class Cost : uint8_t { time, flops, measured };
  Cost cost = Cost::time;
  CutKnobs knobs;  // of Partition::min_cut, too
};
/// "min_memory", "min_time", a fraction from 0 to 1, or bytes ("512MiB", "1.5GB"); "dp", "greedy",
/// "exact"; "time", "flops", "measured". Text that names another partition gives the whole
/// fraction. UserError for others.
Budget budget_named(std::string_view text, std::string_view solver = "dp",
                    std::string_view cost = "time");
/// Says all of it: "0.5 dp time".
std::string to_string(const Budget& budget);

struct ParameterGradient {
  ir::Value* parameter = nullptr;
  ir::Value* gradient = nullptr;
};
struct NewValue {
  ir::Value* input = nullptr;
  ir::Value* value = nullptr;
};
/// Writes what a training step makes of its gradients, an optimizer's formula, where the builder
/// stands. It may add inputs; it gives the values that inputs have after the step.
using UpdateRule = std::function<std::vector<NewValue>(
    ir::Builder& builder, const std::vector<ParameterGradient>& gradients)>;

/// A product with a dequantized factor; `reason`: why it stays one of floats, empty where it became
/// one of integers.
struct QuantizedProduct {
  std::string product;
  std::string reason;
};

/// A function of who compiles over the graph that holds forward and backward (or forward alone,
/// where no gradient is asked for), before anything decides on it. `name` is for errors. `identity`
/// says which function it is, in every process; without one nothing is taken from the cache.
struct CallerPass {
  std::string name;
  std::function<void(ir::Graph& graph)> run;
  std::string identity;
};

/// A function of who compiles that looks at a joint graph of core operators, or at a whole step,
/// and gives the values that forward saves: inputs, and results of forward nodes. What backward
/// reads of the others it computes again, but for what a second run could change, which is saved
/// too. `name` and `identity` as of a CallerPass.
struct CallerPartition {
  std::string name;
  std::function<ir::Values(ir::Graph& graph)> run;
  std::string identity;
};

/// What passes over tensor graphs are told.
struct GraphCtx : PassCtx {
  Gradients gradients = Gradients::tangents;  // of joint
  Partition partition = Partition::standard;  // of choose
  Budget budget;                              // of choose
  CallerPartition caller_partition;           // of Partition::caller
  SavedStorage storage;                       // of store_saved
  bool describes_cut = false;                 // choose writes `cut`
  std::string cut;                            // what is saved, what is computed again, and why
  CutTable cut_table;                         // the same as data
  std::string joint;                          // the graph before choose, as text, for reports
  bool describes_choices = false;             // … and the choices that there are behind it
  /// Bytes that a step holds at once where these values are saved; for budgets in bytes.
  std::function<int64_t(const ir::Graph& joint, const ir::Values& saved)> step_bytes;
  UpdateRule updates;                        // of updates
  std::vector<CallerPass> caller_passes;     // of caller_passes, in order
  std::vector<std::string> kept;             // operators that decompose_composite leaves whole
  Target target;                             // the machine that is compiled for
  bool multiplies_bytes = true;              // the same
  std::vector<QuantizedProduct> products;    // what integer_products did
  std::vector<std::string> gradient_inputs;  // inputs_of_gradients, where there are gradients
};
using GraphPass = Pass<ir::Graph, GraphCtx>;

/// Facts about a graph that passes need, give and break.
inline constexpr Facts kFunctional = 1 << 0;      // nothing mutates but copy_ to inputs at the end
inline constexpr Facts kPure = 1 << 1;            // random ops carry seed and stream
inline constexpr Facts kDifferentiable = 1 << 2;  // every op has a gradient or a reason
inline constexpr Facts kJoint = 1 << 3;           // gradients of inputs are outputs
inline constexpr Facts kCore = 1 << 4;            // every op has a lowering
inline constexpr Facts kChosen = 1 << 5;          // outputs name what forward saves for backward
inline constexpr Facts kSeparate = 1 << 6;  // backward reads nothing of forward but saved values

/// The first of the nodes at the end that all write to inputs; null where there are none. What a
/// pass adds stands before it.
ir::Node* first_write_back(const ir::Graph& graph);

/// Nodes that contradict the facts.
std::vector<Diagnostic> check_facts(const ir::Graph& graph, Facts facts);

/// In-place and out= ops become pure ones; writes through views become scatters to the base; later
/// reads of aliases are regenerated. Inputs that were written get a `copy_` at the end, under
/// no_grad where no write was part of history. A value written under no_grad keeps the old one's
/// history (with_history).
void functionalize(ir::Graph& graph, GraphCtx& ctx);

/// Before functionalize, which then knows no views: what the caller of the graph gets becomes a
/// graph `<name>_signature` of that role, over inputs of the graph (marked where it writes them)
/// and its results. Outputs that are inputs or views of inputs are no results any more. Those that
/// share memory among themselves are views of one result, their base; an output alone is a result
/// where its elements lie without gaps. Does nothing to a graph that has a signature.
void share_outputs(ir::Graph& graph, GraphCtx& ctx);

/// Before functionalize, behind share_outputs: inputs that lie within a base become views of it,
/// and bases are inputs like others from here on. UserError for a view that leaves its base,
/// Unsupported for one of another element size.
void synthetic_bases(ir::Graph& graph, GraphCtx& ctx);
/// There are some, so it must run.
bool has_bases(const ir::Graph& graph);

/// Before functionalize, behind share_outputs: inputs that the backward of a custom function writes
/// come to backward once more, as inputs of the role later, and the signature says so. Bodies are
/// functional. Unsupported where a graph asks for gradients itself.
void later_inputs(ir::Graph& graph, GraphCtx& ctx);
/// Behind joint, where backward stays in the program: it takes what forward leaves, and there are
/// no later inputs any more.
void join_later_inputs(ir::Graph& graph, GraphCtx& ctx);

/// Complex values become two real ones, by the rules of their ops (ops/complex.h); inputs and
/// results become real ones with a dimension of two parts behind the others, as they lie in memory.
/// Unsupported for ops that have no rule and are not composite. complex_parts.cc
void complex_parts(ir::Graph& graph, GraphCtx& ctx);

/// Each tandem::vmap becomes the nodes of its body, on all rows at once. Bodies are functional and
/// in ops that have gradients. Unsupported where a body draws, or asks data for a size. vmap.cc
void vmap(ir::Graph& graph, GraphCtx& ctx);

/// Calls of bodies (tandem::invoke_subgraph) become the bodies' nodes.
void inline_calls(ir::Graph& graph, GraphCtx& ctx);

/// Replaces ops that have no gradient rule by their decomposition, so that reverse mode sees
/// through them.
void decompose_composite(ir::Graph& graph, GraphCtx& ctx);

/// Numbers random ops and gives them the seed input: from here they are functions of (seed, stream,
/// index).
void rng(ir::Graph& graph, GraphCtx& ctx);

/// tandem::gradient nodes become the nodes that compute these gradients.
void inner_gradients(ir::Graph& graph, GraphCtx& ctx);

/// Bodies of loops and branches that gradients go through: each such node gets bodies of its own,
/// which give what their backward reads as further results, and graphs of the role backward that
/// compute their gradients; calls of one body keep to one. A scan saves rows, and no step runs
/// twice; a branch runs its forward once more, and so does the gradient of a loop that data end.
void body_gradients(ir::Graph& graph, GraphCtx& ctx);

/// A body is given the sizes that its tensors do not tell: i64 inputs with the names of symbols.
void size_inputs(ir::Graph& graph, GraphCtx& ctx);

/// Reverse mode: adds the backward nodes behind the forward ones. `ctx.gradients`: tangents (one
/// tangent input for each differentiable output, then one for each input that was written with
/// history) or ones (the first output is a
/// scalar loss). Gradients become outputs named by input, in input order; none for inputs that need
/// none.
void joint(ir::Graph& graph, GraphCtx& ctx);

/// Of a joint graph: gradients are asked of the tangents of its results from here on, and of
/// nothing else. Unsupported where it writes an input with a history.
void linearize(ir::Graph& graph, GraphCtx& ctx);

/// A linearized joint graph becomes the function with its derivatives: it takes a tangent for each
/// input that a gradient reached, named `tangent_<input>`, and gives, behind its results, the
/// derivative of each that had a tangent.
void jvp(ir::Graph& graph, GraphCtx& ctx);

/// Runs `ctx.caller_passes`. UserError, which names the function, where one leaves a graph that is
/// not whole or not functional.
void caller_passes(ir::Graph& graph, GraphCtx& ctx);

/// A joint graph becomes its backward alone, as a graph of inputs and tangents that joint can
/// differentiate again: gradients (without those that are none) are its outputs, tangents inputs
/// that require grad, a seed comes last. Inputs that no gradient reads go, unless sizes are read
/// off them. Writes to inputs stay with forward: a gradient is that of the value before.
void differentiable_backward(ir::Graph& graph, GraphCtx& ctx);
/// Names of the inputs of a joint graph that it keeps.
std::vector<std::string> inputs_of_gradients(const ir::Graph& graph);

/// A joint graph becomes a training step: `ctx.updates` gets the gradients, which are outputs no
/// more, and what it gives is written to inputs at the end. Without a rule nothing changes.
void updates(ir::Graph& graph, GraphCtx& ctx);

/// Replaces ops without a lowering by their decomposition.
void decompose_core(ir::Graph& graph, GraphCtx& ctx);

/// What follows from its position alone, as a mask of aranges does, becomes a constant or a ramp
/// wherever it is one. Bits stay the same.
void positional(ir::Graph& graph, GraphCtx& ctx);

/// Removes what changes nothing: x * 1, casts to the same type, transposes of transposes, reshapes
/// of reshapes … Bits stay the same. Only after joint: a value loses its place in the gradient's
/// history.
void constant_fold(ir::Graph& graph, GraphCtx& ctx);

/// What is scattered into zeros and added to another value is added there where that lies: the
/// gradient of a table that rows are looked up in and that is a factor as well. Bits may differ:
/// sums have another order.
void accumulate(ir::Graph& graph, GraphCtx& ctx);

/// The places of a scatter that is written back to what it starts as are checked by a node of their
/// own, so that it cannot fail and may write the input's memory.
void checked_places(ir::Graph& graph, GraphCtx& ctx);

// Constants: inputs given once for a program. No gradients are asked for.

/// Parameters and buffers become constants, but for those that the program writes.
void freeze(ir::Graph& graph, GraphCtx& ctx);

/// Takes a batch norm of constant statistics into the constant weights of the convolution before
/// it.
void fold_batch_norm(ir::Graph& graph, GraphCtx& ctx);

/// Convolutions of f32 by windows of 3x3 become products of transformed tiles and weights, where
/// that is less work (Winograd). Sums round elsewhere.
void winograd(ir::Graph& graph, GraphCtx& ctx);

/// Constant right factors of f32 products that loops compute are laid out in panels of columns.
void weight_panels(ir::Graph& graph, GraphCtx& ctx);

/// Moves what depends on constants alone to a graph `<name>.setup` of that role. Its inputs have
/// the names of constants; its outputs are named, and are new constants of those names. Only where
/// moving pays.
void setup(ir::Graph& graph, GraphCtx& ctx);

/// Every result is memory of its own, laid out in its order: copies what the graph hands through or
/// returns twice, and permutes what has an order (the value is then the permuted one).
void own_outputs(ir::Graph& graph, GraphCtx& ctx);
/// A result is not row-major, so own_outputs must run.
bool has_order(const ir::Graph& graph);

/// Merges equal nodes; the stronger recompute policy wins.
void cse(ir::Graph& graph, GraphCtx& ctx);

/// Removes nodes whose results nothing reads, keeping those that write.
void dce(ir::Graph& graph, GraphCtx& ctx);

// Partition (partition/): a joint graph becomes forward and backward. Sizes need no saving until
// split: they are symbols, not values.

/// Chooses what forward saves: outputs of kind `saved`. `ctx.partition` says how (partition.h).
void choose(ir::Graph& graph, GraphCtx& ctx);

/// Copies forward nodes whose results backward reads but forward does not save into the backward
/// part, each right before its first reader; marks every node as forward or backward. cse would
/// undo it.
void remat(ir::Graph& graph, GraphCtx& ctx);

/// Keeps what is saved in fewer bits, as `ctx.storage` says; backward makes it whole again. Behind
/// remat: in backward all readers of a saved value change. cse may not follow.
void store_saved(ir::Graph& graph, GraphCtx& ctx);

/// Where one program owns the whole step: backward reads copies of the forward nodes that a policy,
/// or `ctx.partition`, wants computed again, each right before its first reader. cse would undo it.
void recompute(ir::Graph& graph, GraphCtx& ctx);

/// Before choose, or recompute: budgets of nodes become policies, by `ctx.budget`'s cost and
/// solver.
void region_budgets(ir::Graph& graph, GraphCtx& ctx);

/// The graph becomes forward: outputs and write-backs as before, then saved values (tensors, then
/// scalars), then saved sizes, each an output without a value that has the symbol's name. A new
/// graph `<name>_backward` of that role takes saved sizes (i64 inputs with the names of symbols),
/// saved values and tangents, and gives one gradient for each input of forward, or none.
void split(ir::Graph& graph, GraphCtx& ctx);

}  // namespace tandem::passes
