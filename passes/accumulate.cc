// Problem: a table that is read in two ways has a gradient that is a sum of two, and that of
// looking rows up is nearly all zeros: GPT-2's tied embedding fills 154 MB with them for 128 rows,
// and adds all to the gradient of the logits' product. Approach: what is scattered is added to the
// other summand, where it lies. Sums have another order, so bits may differ.
#include "ir/rewrite.h"
#include "ops/opdef.h"
#include "passes/known.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Builder;
using ir::Match;
using ir::Value;

bool is_zero(const ir::Arg& arg) { return is_number(arg, 0); }

/// Of integers too: a sum is a sum.
std::string why_not(const Match& match) {
  const ir::Type& sum = match.root().results[0]->type;
  const ir::Type& x = match.value("x")->type;
  return x.sizes == sum.sizes && x.dtype == sum.dtype
             ? ""
             : "the other summand is repeated or of another type";
}

/// x + scatter(0, at i add y) = scatter(x, at i add y)
Value* scattered_into(Builder& builder, const Match& match) {
  const ir::Node& scatter = match.node("scatter");
  std::vector<ops::Operand> args(scatter.args.begin(), scatter.args.end());
  args[0] = ir::Arg(match.value("x"));
  return ops::call(builder, "tandem.scatter", std::move(args)).value();
}

std::vector<ir::Rule> rules() {
  const ir::Pattern scatter =
      ir::call("tandem::scatter", {ir::arg_that(is_zero), ir::anything(), ir::anything(),
                                   ir::anything(), ir::equal_to(true), ir::anything()})
          .named("scatter")
          .read_once("what is scattered is read by others as well");
  return {{ir::call("aten::add", {ir::keep("x"), scatter}).commutes(), scattered_into, why_not}};
}

}  // namespace

void accumulate(ir::Graph& graph, GraphCtx&) {
  static const ir::Rewriter kRewriter(rules());
  kRewriter.run(graph);
}

}  // namespace tandem::passes
