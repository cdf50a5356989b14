// Problem: a cache of keys gets a row a call, at a place that data says. What is written over an
// input must not be left half done, and a place out of range is an error: so the scatter would
// write a copy of the whole cache, which goes back at the end. Approach: places are checked by
// themselves, once for all scatters at the same ones, before anything is written; a scatter at
// checked places cannot fail, and where nothing else that can fail comes behind it, it writes the
// input's own memory (schedule/group_storage.cc).
#include <algorithm>

#include "ir/rewrite.h"
#include "ir/writes.h"
#include "ops/asserts.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace tandem::passes {
namespace {

using ir::Builder;
using ir::Match;
using ir::Value;

bool is_result(const Value* value) {
  return std::ranges::any_of(value->uses, [](const ir::Use& use) { return use.node == nullptr; });
}

std::string why_not(const Match& match) {
  const Value* index = match.value("index");
  const Value* scattered = match.root().results[0];
  if (!ir::is_written_back_to(scattered, match.value("x")))
    return "it is not written back to what it starts as";
  if (is_result(scattered)) return "it leaves the graph as well, with memory of its own";
  return index->node != nullptr && ops::is_checked_first(*index->node) ? "its places are checked"
                                                                       : "";
}

/// scatter(x, i, y) = scatter(x, checked(i), y)
Value* at_checked(Builder& builder, const Match& match) {
  const ir::Node& scatter = match.root();
  std::vector<ops::Operand> args(scatter.args.begin(), scatter.args.end());
  const int64_t dim = scatter.call().dim("dim", match.value("x")->type.rank());
  args[2] = ops::call(
      builder, "tandem.checked_places",
      {ir::Arg(match.value("index")), match.value("x")->type.sizes[dim], scatter.call().arg("op")});
  return ops::call(builder, "tandem.scatter", std::move(args)).value();
}

std::vector<ir::Rule> rules() {
  return {{ir::call("tandem::scatter", {ir::keep("x"), ir::anything(), ir::keep("index"),
                                        ir::anything(), ir::anything(), ir::anything()}),
           at_checked, why_not}};
}

}  // namespace

void checked_places(ir::Graph& graph, GraphCtx&) {
  static const ir::Rewriter kRewriter(rules());
  kRewriter.run(graph);
}

}  // namespace tandem::passes
