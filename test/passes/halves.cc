// Kernels run in the loop interpreter, which takes a program of [4, 4] tensors in a millisecond.
#include "test/passes/halves.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/verify.h"
#include "test/passes/programs.h"

namespace tandem::test {

using runtime::Argument;
using runtime::Array;
using runtime::Result;

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
  const size_t space = partition.find(' ');
  const std::string_view budget = partition.substr(0, space);
  driver::GraphCtx ctx;
  ctx.partition = passes::partition_named(budget);
  ctx.budget = passes::budget_named(
      budget, "dp", space == std::string_view::npos ? "time" : partition.substr(space + 1));
  return ctx;
}

namespace {

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

Arguments arguments_for(const ir::Graph& joint) {
  std::mt19937 random(1);
  Arguments arguments;
  for (const ir::Value* input : joint.inputs())
    (input->role == ir::Role::tangent ? arguments.tangents : arguments.forward)
        .push_back(random_argument(*input, random, 4));
  return arguments;
}

driver::Options interpreted() {
  driver::Options options;
  options.interpret = true;
  return options;
}

}  // namespace

Outcome run_joint(const Program& program, Arguments& arguments,
                  std::initializer_list<std::string_view> passes) {
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
    EXPECT_LE(difference(std::get<Array>(a[i]), std::get<Array>(b[i])), 1e-5) << "value " << i;
  }
}

}  // namespace tandem::test
