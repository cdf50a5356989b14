// The road of the data, top to bottom. Each line says why it stands where it stands.
#include "driver/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "driver/machine_rates.h"
#include "driver/step_memory.h"
#include "ops/bodies.h"
#include "passes/known.h"
#include "passes/passes.h"
#include "quant/quant.h"

namespace tandem::driver {
namespace {

using passes::kChosen;
using passes::kCore;
using passes::kDifferentiable;
using passes::kFunctional;
using passes::kJoint;
using passes::kPure;
using passes::kSeparate;

// Views and in-place ops first: everything later may take a value for its elements.
// Behind functionalize nothing shares memory any more.
constexpr GraphPass kShareOutputs{"share_outputs", passes::share_outputs, 0, 0, 0};
// Before functionalize, too, which follows writes through views; behind share_outputs, which speaks
// of the caller's inputs.
constexpr GraphPass kSyntheticBases{"synthetic_bases", passes::synthetic_bases, 0, 0, 0};
// Before functionalize as well, for which it is an input like others: it writes nothing forward.
constexpr GraphPass kLaterInputs{"later_inputs", passes::later_inputs, 0, 0, 0};
// Of one program for both halves.
constexpr GraphPass kJoinLaterInputs{"join_later_inputs", passes::join_later_inputs,
                                     kFunctional | kJoint, 0, 0};
constexpr GraphPass kFunctionalize{"functionalize", passes::functionalize, 0, kFunctional, 0};
// Beyond this point nothing mutates but write-backs at the end.

// Behind functionalize, which follows writes through views of complex numbers, and before anything
// that has loops or gradients.
constexpr GraphPass kComplexParts{"complex_parts", passes::complex_parts, kFunctional, 0, 0};

// Bodies have no constants and no factors but their operands, so where weights are constant there
// are no calls. Behind functionalize, for which a result that is an operand would be one memory.
constexpr GraphPass kInlineCalls{"inline_calls", passes::inline_calls, kFunctional, 0, 0};

// Rows of what a body computes, before gradients are asked for of either.
constexpr GraphPass kVmap{"vmap", passes::vmap, kFunctional, 0, 0};

// Composites go before reverse mode, which needs a rule for every op. Dropout becomes a random
// primitive here.
constexpr GraphPass kDecomposeComposite{"decompose_composite", passes::decompose_composite,
                                        kFunctional, kDifferentiable, 0};
// Streams are numbered before anything copies or removes a random op.
constexpr GraphPass kRng{"rng", passes::rng, kFunctional, kPure, 0};
constexpr GraphPass kCse{"cse", passes::cse, kFunctional | kPure, 0, 0};
constexpr GraphPass kDce{"dce", passes::dce, kFunctional, 0, 0};
// Needs what joint needs, and stands before it: joint sees what the program asked for itself.
constexpr GraphPass kInnerGradients{"inner_gradients", passes::inner_gradients,
                                    kFunctional | kPure | kDifferentiable, 0, 0};
// Before joint, which asks for the gradients of loops and branches by the graphs that it names, and
// behind what makes bodies differentiable.
constexpr GraphPass kBodyGradients{"body_gradients", passes::body_gradients,
                                   kFunctional | kPure | kDifferentiable, 0, 0};
constexpr GraphPass kJointPass{"joint", passes::joint, kFunctional | kPure | kDifferentiable,
                               kJoint, 0};
// Derivatives the other way: the joint graph is differentiated by what its gradients start from.
constexpr GraphPass kLinearize{"linearize", passes::linearize, kFunctional | kJoint, 0,
                               kJoint | kDifferentiable};
constexpr GraphPass kJvp{"jvp", passes::jvp, kFunctional | kDifferentiable, 0, 0};
// Of the caller: it sees both halves, by operators that a model is written in.
constexpr GraphPass kCallerPasses{"caller_passes", passes::caller_passes, kFunctional | kPure, 0,
                                  0};
// What it leaves is a graph before reverse mode again, but for composites: gradient rules may use
// ops that have no rule of their own.
constexpr GraphPass kDifferentiableBackward{"differentiable_backward",
                                            passes::differentiable_backward, kFunctional | kJoint,
                                            0, kJoint | kDifferentiable};
// Reads the gradients before anything else may, and writes ops that decompose_core sees.
constexpr GraphPass kUpdates{"updates", passes::updates, kFunctional | kJoint, 0, kJoint};
// Gradient rules may use ops that have no loops of their own, so this comes after them.
constexpr GraphPass kDecomposeCore{"decompose_core", passes::decompose_core, kFunctional, kCore, 0};
// Definitions say what values are, so it looks at core ops; what it leaves unread is for dce.
constexpr GraphPass kPositional{"positional", passes::positional, kFunctional | kCore, 0, 0};
// Rules look through decompositions, and what they leave equal is for cse and dce, which follow.
constexpr GraphPass kConstantFold{"constant_fold", passes::constant_fold, kFunctional, 0, 0};
// Core ops show what is scattered; in front of cse and dce, which take the zeros away.
constexpr GraphPass kAccumulate{"accumulate", passes::accumulate, kFunctional | kCore, 0, 0};
// Core ops show what is scattered; in front of cse, which makes one check of equal ones.
constexpr GraphPass kCheckedPlaces{"checked_places", passes::checked_places, kFunctional | kCore, 0,
                                   0};
// Last of a body: what its nodes read of sizes is known.
constexpr GraphPass kSizeInputs{"size_inputs", passes::size_inputs, kFunctional, 0, 0};
// A weight that something writes is no constant, and functionalize shows what is written.
constexpr GraphPass kFreeze{"freeze", passes::freeze, kFunctional, 0, 0};
// The last place where a batch norm is one node.
constexpr GraphPass kFoldBatchNorm{"fold_batch_norm", passes::fold_batch_norm, kFunctional, 0, 0};
// Where a bias, an activation and the next quantization are nodes of their own still, and after
// norms have gone into weights, whose integers are constants. Without quantized factors it changes
// nothing.
constexpr GraphPass kIntegerProducts{"integer_products", quant::integer_products, kFunctional, 0,
                                     0};
// Before integer_products, which would say of them that they stay in floats.
constexpr GraphPass kWeightOnlyProducts{"weight_only_products", quant::weight_only_products,
                                        kFunctional, 0, 0};
// Between the two: it takes what the first has found, of one row, and what the second would say
// stays in floats.
constexpr GraphPass kOneRowProducts{"one_row_products", quant::one_row_products, kFunctional, 0, 0};
// Looks at convolutions as they are computed; the products may get panels. Not where gradients are
// asked for: a training step was no faster (docs/measured.md).
constexpr GraphPass kWinograd{"winograd", passes::winograd, kFunctional | kPure | kCore, 0, 0};
// Core ops have their factors as arguments of one node; cse and dce follow.
constexpr GraphPass kWeightPanels{"weight_panels", passes::weight_panels,
                                  kFunctional | kPure | kCore, 0, 0};
// Looks at core ops, where constant and other work of one composite are apart, and after cse, so
// that nothing is kept twice.
constexpr GraphPass kSetup{"setup", passes::setup, kFunctional | kPure | kCore, 0, 0};
// Last of what adds to the forward part: cse would merge the copies again.
constexpr GraphPass kOwnOutputs{"own_outputs", passes::own_outputs, kFunctional, 0, 0};
// Looks at what the partition will, and says it in policies, which that heeds.
constexpr GraphPass kRegionBudgets{"region_budgets", passes::region_budgets,
                                   kFunctional | kPure | kCore, 0, 0};
// The partition weighs single kernels' work, so it looks at core ops; cse before it, because what
// both halves compute is one value to it.
constexpr GraphPass kChoose{"choose", passes::choose, kJoint | kCore, kChosen, 0};
// No cse from here to split: it would merge the copies with what they are copies of.
constexpr GraphPass kRemat{"remat", passes::remat, kChosen, kSeparate, 0};
// Reads the mark of each node's half, which remat makes.
constexpr GraphPass kStoreSaved{"store_saved", passes::store_saved, kChosen | kSeparate, 0, kCore};
// The same for policies alone, where nothing is saved.
constexpr GraphPass kRecompute{"recompute", passes::recompute, kFunctional | kPure | kCore, 0, 0};
constexpr GraphPass kSplit{"split", passes::split, kSeparate, 0, kJoint | kChosen | kSeparate};

constexpr std::array kAllPasses = {kShareOutputs,
                                   kLaterInputs,
                                   kSyntheticBases,
                                   kFunctionalize,
                                   kComplexParts,
                                   kInlineCalls,
                                   kVmap,
                                   kFreeze,
                                   kDecomposeComposite,
                                   kRng,
                                   kCse,
                                   kDce,
                                   kInnerGradients,
                                   kBodyGradients,
                                   kJointPass,
                                   kJoinLaterInputs,
                                   kCallerPasses,
                                   kLinearize,
                                   kJvp,
                                   kDifferentiableBackward,
                                   kUpdates,
                                   kFoldBatchNorm,
                                   kWeightOnlyProducts,
                                   kOneRowProducts,
                                   kIntegerProducts,
                                   kDecomposeCore,
                                   kPositional,
                                   kConstantFold,
                                   kAccumulate,
                                   kCheckedPlaces,
                                   kWinograd,
                                   kWeightPanels,
                                   kSizeInputs,
                                   kSetup,
                                   kOwnOutputs,
                                   kRegionBudgets,
                                   kChoose,
                                   kRemat,
                                   kStoreSaved,
                                   kRecompute,
                                   kSplit};

}  // namespace

const GraphPass* find_pass(std::string_view name) {
  const GraphPass* found = std::find_if(kAllPasses.begin(), kAllPasses.end(),
                                        [&](const GraphPass& pass) { return pass.name == name; });
  return found == kAllPasses.end() ? nullptr : found;
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const GraphPass& pass : kAllPasses) names.push_back(pass.name);
  return names;
}

namespace {

/// Graphs that nodes name as their `body`, those of bodies included; other graphs of the module are
/// programs of their own.
std::vector<ir::Graph*> bodies_of(ir::Graph& graph) {
  std::vector<ir::Graph*> found{&graph};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const ir::Node* node = found[i]->first(); node != nullptr; node = node->next) {
      if (node->op->schema.find("body") < 0 || !ops::def_of(*node).runs.empty()) continue;
      ir::Graph* body = graph.module().find(node->call().string("body"));
      if (body != nullptr && std::find(found.begin(), found.end(), body) == found.end())
        found.push_back(body);
    }
  }
  found.erase(found.begin());
  return found;
}

/// Backward of a custom function: reverse mode writes its nodes into the joint graph.
void prepare_body(ir::Graph& body, GraphCtx& ctx) {
  run_pass(body, kFunctionalize, ctx);
  run_pass(body, kComplexParts, ctx);
  run_pass(body, kDecomposeComposite, ctx);
  run_pass(body, kInnerGradients, ctx);
}

void functionalize_with_bodies(ir::Graph& graph, bool inlines, GraphCtx& ctx) {
  std::vector<ir::Graph*> graphs = ops::bodies_of(graph);
  graphs.push_back(&graph);
  for (ir::Graph* each : graphs) {
    run_pass(*each, kFunctionalize, ctx);
    run_pass(*each, kComplexParts, ctx);
    ops::check_bodies(*each);
    if (inlines) run_pass(*each, kInlineCalls, ctx);
  }
}

/// What is left to a loop over rows is a body that comes late.
void batch_rows(ir::Graph& graph, GraphCtx& ctx) {
  const uint64_t before = graph.epoch();
  run_pass(graph, kVmap, ctx);
  if (graph.epoch() == before) return;
  for (ir::Graph* body : ops::bodies_of(graph)) run_pass(*body, kDecomposeComposite, ctx);
}

/// The body of a loop, branch or call, which becomes a program of its own; those that it runs are
/// done.
void prepare_called(ir::Graph& body, GraphCtx& ctx) {
  batch_rows(body, ctx);
  run_pass(body, kDecomposeComposite, ctx);
  run_pass(body, kRng, ctx);
  run_pass(body, kCse, ctx);
  run_pass(body, kDce, ctx);
  run_pass(body, kInnerGradients, ctx);
}

/// All that the graph runs is ready for the schedule; gradients are bodies by now as well.
void finish_called(const ir::Graph& graph, bool differentiates, GraphCtx& ctx) {
  for (ir::Graph* body : ops::bodies_of(graph)) {
    if (!differentiates) run_pass(*body, kWeightOnlyProducts, ctx);
    if (!differentiates) run_pass(*body, kIntegerProducts, ctx);
    run_pass(*body, kDecomposeCore, ctx);
    run_pass(*body, kPositional, ctx);
    run_pass(*body, kConstantFold, ctx);
    run_pass(*body, kCse, ctx);
    run_pass(*body, kDce, ctx);
    run_pass(*body, kSizeInputs, ctx);
  }
}

/// Operators that they bring may be composite and may draw; those that are there stay as they are.
void run_caller_passes(ir::Graph& graph, GraphCtx& ctx) {
  const std::vector<std::string> kept = ctx.kept;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    ctx.kept.push_back(node->op->name());
  run_pass(graph, kCallerPasses, ctx);
  run_pass(graph, kDecomposeComposite, ctx);
  run_pass(graph, kRng, ctx);
  ctx.kept = kept;
}

void differentiate_forward(ir::Graph& graph, GraphCtx& ctx) {
  run_pass(graph, kLinearize, ctx);
  run_pass(graph, kDecomposeComposite, ctx);
  run_pass(graph, kBodyGradients, ctx);
  run_pass(graph, kJvp, ctx);
  run_pass(graph, kDce, ctx);
}

/// One program that owns the whole step needs no cut: its memory plan sees both halves.
bool is_cut(const Options& options) {
  return options.partition != Partition::none && !options.updates &&
         options.gradients != Gradients::forward;
}

/// Derivatives forward are made of gradients of which none is asked for.
bool runs_backward(const Options& options) {
  return options.gradients != Gradients::none && options.gradients != Gradients::forward;
}

void run_until_joint(ir::Graph& graph, const Options& options, GraphCtx& ctx) {
  for (ir::Graph* body : bodies_of(graph)) prepare_body(*body, ctx);
  if (options.share_outputs) run_pass(graph, kShareOutputs, ctx);
  if (runs_backward(options)) run_pass(graph, kLaterInputs, ctx);
  if (passes::has_bases(graph)) run_pass(graph, kSyntheticBases, ctx);
  functionalize_with_bodies(graph, options.freeze || passes::has_constants(graph), ctx);
  for (ir::Graph* body : ops::bodies_of(graph)) prepare_called(*body, ctx);
  batch_rows(graph, ctx);
  if (options.freeze) run_pass(graph, kFreeze, ctx);
  run_pass(graph, kDecomposeComposite, ctx);
  run_pass(graph, kRng, ctx);
  run_pass(graph, kCse, ctx);
  run_pass(graph, kDce, ctx);
  run_pass(graph, kInnerGradients, ctx);
}

/// The joint graph of the backward, from the joint graph of a program.
void differentiate_again(ir::Graph& graph, GraphCtx& ctx) {
  run_pass(graph, kDifferentiableBackward, ctx);
  run_pass(graph, kDecomposeComposite, ctx);
  run_pass(graph, kCse, ctx);
  run_pass(graph, kDce, ctx);
  run_pass(graph, kBodyGradients, ctx);
  run_pass(graph, kJointPass, ctx);
}

}  // namespace

void run_until_joint(ir::Graph& graph, Gradients gradients, GraphCtx& ctx) {
  Options options;
  options.gradients = gradients;
  run_until_joint(graph, options, ctx);
}

void run_signature_passes(ir::Graph& signature) {
  GraphCtx ctx;
  run_pass(signature, kFunctionalize, ctx);  // as_strided counts in row-major order from here on
  run_pass(signature, kComplexParts, ctx);
  run_pass(signature, kDecomposeCore, ctx);
  run_pass(signature, kConstantFold, ctx);
  run_pass(signature, kDce, ctx);
}

namespace {

bool has_region_budgets(const ir::Graph& graph) {
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next)
    if (node->memory_budget) return true;
  return false;
}

/// Of the target that a partition compares by; kernels are made by the table's.
void take_rates(GraphCtx& ctx) {
  if (ctx.partition != Partition::budget || ctx.budget.cost != Budget::Cost::measured) return;
  ctx.target.tuning.rates = machine_rates(ctx.target);
  ctx.notes.push_back("budget: measured " + to_string(ctx.target.tuning.rates));
}

}  // namespace

void run_passes(ir::Graph& graph, const Options& options, GraphCtx& ctx) {
  const bool differentiates = options.gradients != Gradients::none;
  if (options.freeze && differentiates)
    throw UserError("a program with frozen weights has no gradients: freeze is for inference");
  ctx.gradients = options.gradients;
  ctx.partition = options.partition;
  ctx.budget = options.budget;
  ctx.caller_partition = options.caller_partition;
  ctx.storage = options.storage;
  ctx.describes_cut = options.report;
  ctx.step_bytes = [&options](const ir::Graph& joint, const ir::Values& saved) {
    return bytes_of_step(joint, saved, options);
  };
  ctx.target = target_of(options);
  take_rates(ctx);
  ctx.multiplies_bytes = target_of(options).multiplies_bytes();
  ctx.updates = options.updates;
  ctx.caller_passes = options.joint_passes;
  run_until_joint(graph, options, ctx);
  if (differentiates) run_pass(graph, kBodyGradients, ctx);
  if (differentiates) run_pass(graph, kJointPass, ctx);
  if (runs_backward(options) && !is_cut(options) && options.derivative == 1)
    run_pass(graph, kJoinLaterInputs, ctx);
  if (!options.joint_passes.empty()) run_caller_passes(graph, ctx);
  for (int done = 1; done < options.derivative; ++done) differentiate_again(graph, ctx);
  const bool is_forward = options.gradients == Gradients::forward;
  if (is_forward) differentiate_forward(graph, ctx);
  if (differentiates && !is_forward) ctx.gradient_inputs = passes::inputs_of_gradients(graph);
  if (differentiates && options.updates) run_pass(graph, kUpdates, ctx);
  const bool has_constants = passes::has_constants(graph);
  if (has_constants && !differentiates) run_pass(graph, kFoldBatchNorm, ctx);
  if (!differentiates) run_pass(graph, kWeightOnlyProducts, ctx);
  if (has_constants && !differentiates) run_pass(graph, kOneRowProducts, ctx);
  if (!differentiates) run_pass(graph, kIntegerProducts, ctx);
  run_pass(graph, kDecomposeCore, ctx);
  run_pass(graph, kPositional, ctx);
  run_pass(graph, kConstantFold, ctx);
  run_pass(graph, kAccumulate, ctx);
  run_pass(graph, kCheckedPlaces, ctx);
  if (!differentiates) run_pass(graph, kWinograd, ctx);
  if (has_constants && !differentiates) run_pass(graph, kWeightPanels, ctx);
  run_pass(graph, kCse, ctx);
  run_pass(graph, kDce, ctx);
  finish_called(graph, differentiates,
                ctx);  // before a budget in bytes schedules what it chooses among
  if (has_constants) run_pass(graph, kSetup, ctx);
  if (options.own_outputs || passes::has_order(graph)) run_pass(graph, kOwnOutputs, ctx);
  if (differentiates && has_region_budgets(graph)) run_pass(graph, kRegionBudgets, ctx);
  if (!is_cut(options)) return run_pass(graph, kRecompute, ctx);
  if (options.report) ctx.joint = ops::text_with_bodies(graph);
  run_pass(graph, kChoose, ctx);
  run_pass(graph, kRemat, ctx);
  if (options.storage.kind != passes::SavedStorage::Kind::whole) {
    run_pass(graph, kStoreSaved, ctx);
    run_pass(graph, kDecomposeCore, ctx);
  }
  run_pass(graph, kSplit, ctx);
}

}  // namespace tandem::driver
