// Forward and backward apart give what the joint program gives, whatever was chosen, and no choice
// saves more than all that backward reads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/opdef.h"
#include "passes/partition/budget.h"
#include "passes/partition/partition.h"
#include "passes/partition/recompute_cost.h"
#include "passes/passes.h"
#include "test/passes/halves.h"
#include "test/passes/programs.h"

namespace tandem {
namespace {

using test::Arguments;
using test::context_of;
using test::expect_equal;
using test::make_joint;
using test::Outcome;
using test::Program;
using test::run;
using test::run_apart;
using test::run_joint;

constexpr std::string_view kPartitions[] = {"as_read", "min_cut",    "1",       "0.5",
                                            "0.1",     "min_memory", "min_time"};

struct Named {
  std::string name;
  Program make;
};

std::vector<Named> programs(uint32_t random) {
  std::vector<Named> all;
  for (std::string_view text : test::hand_written())
    all.push_back({std::string(text.substr(0, text.find('('))),
                   [text] { return ir::parse_module(text, ops::op_table()); }});
  for (uint32_t number = 0; number < random; ++number)
    all.push_back({fmt::format("random {}", number),
                   [number] { return test::random_program(number, number % 2 == 0); }});
  return all;
}

TEST(Partition, ForwardAndBackwardGiveWhatTheJointProgramGives) {
  for (const Named& program : programs(60)) {
    Arguments arguments;
    Outcome joint = run_joint(program.make, arguments);
    for (std::string_view partition : kPartitions) {
      SCOPED_TRACE(fmt::format("{}, {}", program.name, partition));
      Outcome apart = run_apart(program.make, partition, arguments);
      expect_equal(joint.results, apart.results);
      expect_equal(joint.inputs, apart.inputs);
    }
  }
}

TEST(Partition, RecomputeChangesNoValue) {
  for (const Named& program : programs(100)) {
    SCOPED_TRACE(program.name);
    Arguments arguments;
    const Outcome joint = run_joint(program.make, arguments);
    const Outcome again = run_joint(program.make, arguments, {"recompute"});
    expect_equal(joint.results, again.results);
    expect_equal(joint.inputs, again.inputs);
  }
}

ir::Values saved_by(const ir::Graph& graph) {
  ir::Values saved;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::saved) saved.push_back(output.value);
  return saved;
}

TEST(Partition, SavesNoMoreThanAll) {
  for (uint32_t number = 0; number < 400; ++number) {
    std::vector<int64_t> chosen;
    for (std::string_view partition : kPartitions) {
      std::unique_ptr<ir::Module> module = test::random_program(number, false);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx = context_of(partition);
      make_joint(graph, ctx);
      int64_t all = passes::typical_bytes(passes::all_that_is_read(graph));
      run(graph, {"choose"}, ctx);
      chosen.push_back(passes::typical_bytes(saved_by(graph)));
      EXPECT_LE(chosen.back(), all) << partition << " of random " << number << "\n"
                                    << ir::to_string(graph);
    }
    for (size_t i = 1; i < 6; ++i) EXPECT_LE(chosen[i], chosen[i - 1]) << "random " << number;
  }
}

/// Without times and bytes of its own: what the passes make of it.
std::string text_of(uint32_t number, std::string_view partition) {
  std::unique_ptr<ir::Module> module = test::random_program(number, true);
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx = context_of(partition);
  make_joint(graph, ctx);
  run(graph, {"choose", "remat", "split"}, ctx);
  return ir::to_string(*module);
}

TEST(Partition, GivesTheSameTwice) {
  for (uint32_t number = 0; number < 60; ++number)
    for (std::string_view partition : kPartitions)
      EXPECT_EQ(text_of(number, partition), text_of(number, partition)) << partition;
}

TEST(Partition, MoreOfABudgetSavesMoreAndComputesLess) {
  for (uint32_t number = 0; number < 200; ++number)
    for (const auto& [solver, cost] : std::vector<std::pair<const char*, const char*>>{
             {"dp", "time"}, {"greedy", "time"}, {"exact", "time"}, {"dp", "flops"}}) {
      std::unique_ptr<ir::Module> module = test::random_program(number, true);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx;
      make_joint(graph, ctx);
      const passes::Frontier frontier = passes::frontier_of(
          graph, Target(), passes::budget_named("0.5", solver, cost), {}, ctx.notes);
      ASSERT_FALSE(frontier.choices.empty());
      for (size_t i = 1; i < frontier.choices.size(); ++i) {
        EXPECT_GT(frontier.choices[i].bytes, frontier.choices[i - 1].bytes);
        EXPECT_LT(frontier.choices[i].cost, frontier.choices[i - 1].cost);
      }
      EXPECT_LE(frontier.choices.front().bytes, frontier.cut_bytes);
    }
}

/// Products of uneven widths side by side, so that sums of some of them lie close together.
std::string uneven_products() {
  std::string inputs = "%x: f32[64, 64] {input grad}";
  std::string body;
  std::string total;
  for (const int width : {11, 3, 4, 2, 17, 5, 14, 7, 9, 13}) {
    inputs += fmt::format(", %w{0}: f32[64, {1}] {{input grad}}", width, 64 * width);
    body += fmt::format("  %m{0} = aten.mm(%x, %w{0})\n  %c{0} = aten.cos(%m{0})\n", width);
    body += fmt::format("  %s{0} = aten.sum(%c{0})\n", width);
    if (!total.empty())
      body += fmt::format("  %t{0} = aten.add.Tensor(%{1}, %s{0})\n", width, total);
    total = (total.empty() ? "s" : "t") + std::to_string(width);
  }
  return fmt::format("graph @f({}) {{\n{}  return %{}\n}}\n", inputs, body, total);
}

double products_again(const passes::Choice& choice) {
  double flops = 0;
  for (const ir::Node* node : choice.again) flops += passes::product_flops(*node);
  return flops;
}

/// Of the choices of no more bytes.
double fewest_products(const passes::Frontier& frontier, int64_t bytes) {
  double fewest = products_again(frontier.choices.front());
  for (const passes::Choice& choice : frontier.choices)
    if (choice.bytes <= bytes) fewest = std::min(fewest, products_again(choice));
  return fewest;
}

TEST(Partition, NoChoiceIsBetteredByOneProductMore) {
  for (const char* solver : {"dp", "greedy"}) {
    const std::unique_ptr<ir::Module> module = ir::parse_module(uneven_products(), ops::op_table());
    ir::Graph& graph = *module->graphs()[0];
    driver::GraphCtx ctx;
    make_joint(graph, ctx);
    const passes::Frontier frontier = passes::frontier_of(
        graph, Target(), passes::budget_named("0.5", solver, "flops"), {}, ctx.notes);
    const double gain = 0.001 * products_again(frontier.choices.front());
    for (const passes::Choice& choice : frontier.choices)
      for (const ir::Node* node : choice.again) {
        const int64_t bytes = choice.bytes + passes::typical_bytes(node->results[0]);
        const double spared = passes::product_flops(*node);
        if (spared == 0) continue;
        EXPECT_LE(fewest_products(frontier, bytes), products_again(choice) - spared + gain)
            << solver << ", beside " << choice.bytes << " bytes";
      }
  }
}

/// A chain of light nodes behind the input, whose end backward reads.
std::string sines(int count) {
  std::string text = "graph @f(%x: f32[8] {input grad}) {\n  %0 = aten.sin(%x)\n";
  for (int i = 1; i < count; ++i) text += fmt::format("  %{} = aten.sin(%{})\n", i, i - 1);
  return text + fmt::format("  return %{}\n}}\n", count - 1);
}

TEST(Partition, ALongChainIsBroken) {
  for (const int length : {90, 120}) {
    const std::unique_ptr<ir::Module> module = ir::parse_module(sines(length), ops::op_table());
    driver::GraphCtx ctx = context_of("min_cut");
    make_joint(*module->graphs()[0], ctx);
    run(*module->graphs()[0], {"choose"}, ctx);
    const bool is_broken = std::ranges::any_of(ctx.notes, [](const std::string& note) {
      return note.ends_with(": the chain before it is long");
    });
    EXPECT_EQ(is_broken, length > 100) << length;
  }
}

TEST(Partition, AGraphWithoutNodesHasAFrontier) {
  const std::unique_ptr<ir::Module> module =
      ir::parse_module("graph @f(%x: f32[2] {input grad}) {\n  return %x\n}\n", ops::op_table());
  for (const char* cost : {"time", "flops"}) {
    driver::GraphCtx ctx;
    const passes::Budget budget = passes::budget_named("0.5", "dp", cost);
    const passes::Frontier frontier =
        passes::frontier_of(*module->graphs()[0], Target(), budget, {}, ctx.notes);
    EXPECT_EQ(frontier.choices.size(), 1U) << cost;
  }
}

TEST(Partition, BackwardReadsNothingOfForwardButWhatIsSaved) {
  for (uint32_t number = 0; number < 400; ++number)
    for (std::string_view partition : kPartitions) {
      std::unique_ptr<ir::Module> module = test::random_program(number, true);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx = context_of(partition);
      make_joint(graph, ctx);
      run(graph, {"choose", "remat"}, ctx);
      std::vector<Diagnostic> problems = passes::check_facts(graph, passes::kSeparate);
      EXPECT_TRUE(problems.empty())
          << "random " << number << ": " << problems[0].render() << ir::to_string(graph);
    }
}

TEST(Partition, UnknownNameIsAnError) {
  for (const char* name :
       {"best", "", "-0.1", "1.5", "nan", "0.5x", "inf", "MiB", "-1B", "1e300GB"})
    EXPECT_THROW(passes::partition_named(name), UserError) << name;
  EXPECT_THROW(passes::budget_named("0.5", "ilp"), UserError);
  EXPECT_THROW(passes::budget_named("0.5", "dp", "bytes"), UserError);
  EXPECT_THROW(passes::gradients_named("twos"), UserError);
}

}  // namespace
}  // namespace tandem
