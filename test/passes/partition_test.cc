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
#include "passes/partition/partition.h"
#include "passes/passes.h"
#include "test/passes/programs.h"

namespace tandem {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;
using Program = std::function<std::unique_ptr<ir::Module>()>;

constexpr std::string_view kPartitions[] = {"default", "min_cut"};

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

Outcome run_joint(const Program& program, Arguments& arguments) {
  std::unique_ptr<ir::Module> module = program();
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx;
  make_joint(graph, ctx);
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
  driver::GraphCtx ctx;
  make_joint(graph, ctx);
  ctx.partition = passes::partition_named(partition);
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

/// What keeping every value that backward reads takes; a view keeps its base.
int64_t bytes_of_all(const ir::Graph& graph) {
  ir::Values bases;
  for (ir::Value* value : passes::crossing(graph, passes::Halves(graph))) {
    ir::Value* base = passes::base_of(value);
    if (std::find(bases.begin(), bases.end(), base) == bases.end()) bases.push_back(base);
  }
  return passes::typical_bytes(bases);
}

ir::Values saved_by(const ir::Graph& graph) {
  ir::Values saved;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::saved) saved.push_back(output.value);
  return saved;
}

TEST(Partition, SavesNoMoreThanAll) {
  for (uint32_t number = 0; number < 400; ++number) {
    int64_t chosen[2];
    for (int i = 0; i < 2; ++i) {
      std::unique_ptr<ir::Module> module = test::random_program(number, false);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx;
      make_joint(graph, ctx);
      ctx.partition = passes::partition_named(kPartitions[i]);
      int64_t all = bytes_of_all(graph);
      run(graph, {"choose"}, ctx);
      chosen[i] = passes::typical_bytes(saved_by(graph));
      EXPECT_LE(chosen[i], all) << kPartitions[i] << " of random " << number << "\n"
                                << ir::to_string(graph);
    }
    EXPECT_LE(chosen[1], chosen[0]) << "random " << number;
  }
}

TEST(Partition, BackwardReadsNothingOfForwardButWhatIsSaved) {
  for (uint32_t number = 0; number < 400; ++number)
    for (std::string_view partition : kPartitions) {
      std::unique_ptr<ir::Module> module = test::random_program(number, true);
      ir::Graph& graph = *module->graphs()[0];
      driver::GraphCtx ctx;
      make_joint(graph, ctx);
      ctx.partition = passes::partition_named(partition);
      run(graph, {"choose", "remat"}, ctx);
      std::vector<Diagnostic> problems = passes::check_facts(graph, passes::kSeparate);
      EXPECT_TRUE(problems.empty())
          << "random " << number << ": " << problems[0].render() << ir::to_string(graph);
    }
}

TEST(Partition, UnknownNameIsAnError) {
  EXPECT_THROW(passes::partition_named("best"), UserError);
  EXPECT_THROW(passes::gradients_named("twos"), UserError);
}

}  // namespace
}  // namespace tandem
