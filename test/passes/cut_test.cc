// The cheapest cut against all choices of what is computed again, on small joint graphs.
#include "passes/partition/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/check.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/passes/programs.h"

namespace tandem::passes {
namespace {

using ir::Node;
using ir::Value;

std::unique_ptr<ir::Module> joint_program(uint32_t number) {
  std::unique_ptr<ir::Module> module = test::random_program(number, false);
  driver::GraphCtx ctx;
  for (std::string_view name : {"functionalize", "decompose_composite", "rng", "cse", "dce",
                                "joint", "decompose_core", "cse", "dce"})
    driver::run_pass(*module->graphs()[0], *driver::find_pass(name), ctx);
  return module;
}

/// Prices that do not depend on what a thing is, so that any choice may be the cheapest.
struct RandomPrices {
  explicit RandomPrices(uint32_t number) : seed(number) {}
  int64_t of(uint32_t id, uint32_t kind) const {
    std::mt19937 random(seed * 7919 + id * 2 + kind);
    return static_cast<int64_t>(random() % 50);
  }
  Prices prices(const Halves& halves) const {
    return {[this](const Value* value) { return of(value->id, 0); },
            [this, &halves](const Node* node) {
              return halves.is_forward(node) ? of(node->id, 1) : int64_t{0};
            }};
  }
  uint32_t seed;
};

class AllChoices {
 public:
  AllChoices(const ir::Graph& graph, const Halves& halves, const Prices& prices)
      : graph_(graph), halves_(halves), prices_(prices) {
    for (const Node* node = graph.first(); node != nullptr; node = node->next)
      if (!halves.needs_tangent(node) && !node->op->mutates()) nodes_.push_back(node);
  }

  size_t nodes() const { return nodes_.size(); }

  int64_t cheapest() const {
    int64_t best = kNever;
    for (size_t choice = 0; choice < (size_t{1} << nodes_.size()); ++choice)
      best = std::min(best, cost(choice));
    return best;
  }

 private:
  /// Nodes of the choice run in backward: all else that these and backward read is kept.
  int64_t cost(size_t choice) const {
    DenseMap<Node, char> runs;
    int64_t total = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if ((choice >> i & 1) == 0) continue;
      runs[nodes_[i]] = true;
      total += prices_.again(nodes_[i]);
    }
    DenseMap<Value, char> kept;
    const auto read = [&](const Value* value) {
      const bool is_made = value->node != nullptr &&
                           (runs.at(value->node) != 0 || halves_.needs_tangent(value->node));
      const bool is_tangent = value->node == nullptr && value->role == ir::Role::tangent;
      if (is_made || is_tangent || kept.at(value) != 0) return;
      kept[value] = true;
      total += prices_.keeping(value);
    };
    for (const Node* node = graph_.first(); node != nullptr; node = node->next)
      if (runs.at(node) != 0 || halves_.needs_tangent(node)) ir::for_each_operand(node->args, read);
    for (const ir::Output& output : graph_.outputs())
      if (output.kind == ir::OutputKind::gradient && output.value != nullptr) read(output.value);
    return total;
  }

  const ir::Graph& graph_;
  const Halves& halves_;
  const Prices& prices_;
  std::vector<const Node*> nodes_;
};

TEST(Cut, IsTheCheapestOfAllChoices) {
  int compared = 0;
  for (uint32_t number = 0; number < 1000; ++number) {
    const std::unique_ptr<ir::Module> module = joint_program(number);
    const ir::Graph& graph = *module->graphs()[0];
    const Halves halves(graph);
    const RandomPrices random(number);
    const Prices prices = random.prices(halves);
    const AllChoices all(graph, halves, prices);
    if (all.nodes() > 9) continue;
    const ir::Values saved = cheapest_cut(graph, halves, prices);
    int64_t cost = 0;
    for (const Value* value : saved) cost += prices.keeping(value);
    for (const Node* node : computed_again(graph, halves, saved)) cost += prices.again(node);
    EXPECT_EQ(cost, all.cheapest()) << "program " << number << "\n" << ir::to_string(graph);
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(Cut, OfEqualOnesIsTheOneNearestToTheInputs) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[3] {input grad}) {\n  %a = aten.exp(%x)\n  %b = aten.cos(%a)\n"
      "  %c = aten.cos(%b)\n  return %c\n}\n",
      ops::op_table());
  driver::GraphCtx ctx;
  ir::Graph& graph = *module->graphs()[0];
  driver::run_pass(graph, *driver::find_pass("joint"), ctx);
  const Halves halves(graph);
  const auto saved_at = [&](int64_t again) {
    return cheapest_cut(
        graph, halves,
        {[](const Value*) { return int64_t{1}; },
         [&halves, again](const Node* node) { return halves.is_forward(node) ? again : 0; }});
  };
  // Backward reads %a and %b: two values, or one and a node for each that is made again.
  EXPECT_EQ(saved_at(0), ir::Values{graph.inputs()[0]});
  const Node* exp = graph.first();
  EXPECT_EQ(saved_at(1), (ir::Values{exp->results[0]}))
      << "one value and one node, or two values: a node again is nearer to the inputs";
  EXPECT_EQ(saved_at(2), (ir::Values{exp->results[0], exp->next->results[0]}));
}

TEST(Cut, SaysWhatCanBeNeitherSavedNorComputedAgain) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(
      "graph @f(%x: f32[3] {input grad}) {\n  %a = aten.exp(%x)\n  %b = aten.cos(%a)\n"
      "  %c = aten.sin(%b)\n  return %c\n}\n",
      ops::op_table());
  driver::GraphCtx ctx;
  ir::Graph& graph = *module->graphs()[0];
  driver::run_pass(graph, *driver::find_pass("joint"), ctx);
  const Node* exp = graph.first();
  const Prices prices{
      [](const Value* value) { return value->node == nullptr ? int64_t{1} : kNever; },
      [exp](const Node* node) { return node == exp ? kNever : int64_t{1}; }};
  EXPECT_THAT(
      [&] { cheapest_cut(graph, Halves(graph), prices); },
      testing::ThrowsMessage<InternalError>(testing::HasSubstr(
          "backward reads %a, which must not be saved, and %a must not be computed again")));
}

}  // namespace
}  // namespace tandem::passes
