// Forward and backward apart give what the joint program gives, whatever was chosen, and no choice
// saves more than all that backward reads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/opdef.h"
#include "passes/partition/budget.h"
#include "passes/partition/partition.h"
#include "passes/passes.h"
#include "test/passes/programs.h"

namespace tandem {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;
using Program = std::function<std::unique_ptr<ir::Module>()>;

constexpr std::string_view kPartitions[] = {"default", "min_cut",    "1",       "0.5",
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

void run(ir::Graph& graph, std::initializer_list<std::string_view> names, driver::GraphCtx& ctx) {
  for (std::string_view name : names) driver::run_pass(graph, *driver::find_pass(name), ctx);
}

void make_joint(ir::Graph& graph, driver::GraphCtx& ctx) {
  run(graph,
      {"functionalize", "decompose_composite", "rng", "cse", "dce", "joint", "decompose_core",
       "cse", "dce"},
      ctx);
}

driver::GraphCtx context_of(std::string_view partition) {
  driver::GraphCtx ctx;
  ctx.partition = passes::partition_named(partition);
  ctx.budget = passes::budget_named(partition);
  return ctx;
}

/// Every run starts from the same arguments, since some are overwritten.
std::vector<Argument> copies(const std::vector<Argument>& arguments) {
  std::vector<Argument> result;
  for (const Argument& argument : arguments) {
    result.push_back(argument);
    if (!std::holds_alternative<Array>(argument)) continue;
    Array copy = Array::empty(std::get<Array>(argument).dtype(), std::get<Array>(argument).sizes());
    copy.copy_from(std::get<Array>(argument));
    result.back() = copy;
  }
  return result;
}

struct Arguments {
  std::vector<Argument> forward;
  std::vector<Argument> tangents;
};

Arguments arguments_for(const ir::Graph& joint) {
  std::mt19937 random(1);
  Arguments arguments;
  for (const ir::Value* input : joint.inputs())
    (input->role == ir::Role::tangent ? arguments.tangents : arguments.forward)
        .push_back(test::random_argument(*input, random, 4));
  return arguments;
}

struct Outcome {
  std::vector<Result> results;   // outputs, then gradients
  std::vector<Argument> inputs;  // after write-backs
};

driver::Options interpreted() {
  driver::Options options;
  options.interpret = true;
  return options;
}

Outcome run_joint(const Program& program, Arguments& arguments,
                  std::initializer_list<std::string_view> passes = {}) {
  std::unique_ptr<ir::Module> module = program();
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx;
  make_joint(graph, ctx);
  run(graph, passes, ctx);
  EXPECT_TRUE(ir::verify(graph).empty());
  arguments = arguments_for(graph);
  Outcome outcome;
  outcome.inputs = copies(arguments.forward);
  std::vector<Argument> all = outcome.inputs;
  all.insert(all.end(), arguments.tangents.begin(), arguments.tangents.end());
  outcome.results = driver::finish(graph, interpreted())->run(all);
  return outcome;
}

Outcome run_apart(const Program& program, std::string_view partition, const Arguments& arguments) {
  std::unique_ptr<ir::Module> module = program();
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx = context_of(partition);
  make_joint(graph, ctx);
  run(graph, {"choose", "remat", "split"}, ctx);
  const ir::Graph& backward = *module->graphs()[1];
  EXPECT_TRUE(ir::verify(graph).empty());
  EXPECT_TRUE(ir::verify(backward).empty());
  size_t outputs = 0;
  size_t sizes = 0;
  for (const ir::Output& output : graph.outputs()) {
    outputs += output.kind == ir::OutputKind::output;
    sizes += output.kind == ir::OutputKind::saved_size;
  }
  Outcome outcome;
  outcome.inputs = copies(arguments.forward);
  std::vector<Result> results = driver::finish(graph, interpreted())->run(outcome.inputs);
  std::vector<Argument> saved(results.end() - static_cast<std::ptrdiff_t>(sizes), results.end());
  saved.insert(saved.end(), results.begin() + static_cast<std::ptrdiff_t>(outputs),
               results.end() - static_cast<std::ptrdiff_t>(sizes));
  saved.insert(saved.end(), arguments.tangents.begin(), arguments.tangents.end());
  results.resize(outputs);
  std::unique_ptr<driver::Executable> program_backward = driver::finish(backward, interpreted());
  for (Result& gradient : program_backward->run(saved)) results.push_back(gradient);
  outcome.results = std::move(results);
  return outcome;
}

void expect_equal(const std::vector<Result>& a, const std::vector<Result>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::holds_alternative<Array>(a[i])) continue;
    EXPECT_LE(test::difference(std::get<Array>(a[i]), std::get<Array>(b[i])), 1e-5)
        << "value " << i;
  }
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
    for (const char* solver : {"dp", "greedy", "exact"}) {
      std::unique_ptr<ir::Module> module = test::random_program(number, true);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx;
      make_joint(graph, ctx);
      const passes::Frontier frontier =
          passes::frontier_of(graph, Target(), passes::knapsack_solver_named(solver), ctx.notes);
      ASSERT_FALSE(frontier.choices.empty());
      for (size_t i = 1; i < frontier.choices.size(); ++i) {
        EXPECT_GT(frontier.choices[i].bytes, frontier.choices[i - 1].bytes);
        EXPECT_LT(frontier.choices[i].cost, frontier.choices[i - 1].cost);
      }
      EXPECT_LE(frontier.choices.front().bytes, frontier.cut_bytes);
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
  EXPECT_THROW(passes::gradients_named("twos"), UserError);
}

}  // namespace
}  // namespace tandem
