// How long a partition decides about a joint graph of 5,000 nodes: blocks of attention and of a
// gated MLP with norms, the same at every depth, or each of another width.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "passes/partition/budget.h"

namespace tandem {
namespace {

constexpr size_t kNodes = 5000;

/// One block; `width` is that of the MLP inside.
std::string block_text(int number, int64_t width) {
  const std::string before = number == 0 ? "x" : fmt::format("out{}", number - 1);
  return fmt::format(R"(
  %n{0} = aten.layer_norm(%{1}, [64])
  %q{0} = aten.matmul(%n{0}, %w)
  %k{0} = aten.matmul(%n{0}, %v)
  %t{0} = aten.transpose.int(%k{0}, -2, -1)
  %s{0} = aten.matmul(%q{0}, %t{0})
  %p{0} = aten.softmax.int(%s{0}, -1)
  %d{0} = aten.dropout(%p{0}, 0.1, true)
  %a{0} = aten.matmul(%d{0}, %n{0})
  %r{0} = aten.add.Tensor(%a{0}, %{1})
  %m{0} = aten.layer_norm(%r{0}, [64])
  %h{0} = aten.matmul(%m{0}, %u{0})
  %g{0} = aten.gelu(%h{0})
  %e{0} = aten.sigmoid(%h{0})
  %i{0} = aten.mul.Tensor(%g{0}, %e{0})
  %b{0} = aten.full([{2}], 0.5)
  %j{0} = aten.add.Tensor(%i{0}, %b{0})
  %o{0} = aten.matmul(%j{0}, %z{0})
  %out{0} = aten.add.Tensor(%o{0}, %r{0})
)",
                     number, before, width);
}

std::string program_text(int blocks, bool equal) {
  std::string inputs =
      "%x: f32[8, 32, 64] {input grad}, %w: f32[64, 64] {param \"w\" grad}, "
      "%v: f32[64, 64] {param \"v\" grad}";
  std::string body;
  for (int i = 0; i < blocks; ++i) {
    const int64_t width = 256 + (equal ? 0 : 16 * (i % 13));
    inputs += fmt::format(
        ", %u{0}: f32[64, {1}] {{input grad}}, %z{0}: f32[{1}, 64] {{input grad}}", i, width);
    body += block_text(i, width);
  }
  return fmt::format("graph @deep({}) {{{}  return %out{}\n}}\n", inputs, body, blocks - 1);
}

size_t nodes_of(const ir::Graph& graph) {
  size_t nodes = 0;
  for (const ir::Node* node = graph.first(); node != nullptr; node = node->next) ++nodes;
  return nodes;
}

std::unique_ptr<ir::Module> joint_of(int blocks, bool equal) {
  std::unique_ptr<ir::Module> module =
      ir::parse_module(program_text(blocks, equal), ops::op_table());
  driver::GraphCtx ctx;
  for (const std::string_view name : {"functionalize", "decompose_composite", "rng", "cse", "dce",
                                      "joint", "decompose_core", "cse", "dce"})
    driver::run_pass(*module->graphs()[0], *driver::find_pass(name), ctx);
  return module;
}

const ir::Graph& joint_of_5000(bool equal) {
  static const std::unique_ptr<ir::Module> graphs[2] = {
      joint_of(static_cast<int>(kNodes / 100), false),
      joint_of(static_cast<int>(kNodes / 100), true)};
  return *graphs[equal ? 1 : 0]->graphs()[0];
}

void decide(benchmark::State& state, const char* budget, bool equal, const char* cost) {
  ir::Graph& graph = const_cast<ir::Graph&>(joint_of_5000(equal));
  driver::GraphCtx ctx;
  ctx.partition = passes::partition_named(budget);
  ctx.budget = passes::budget_named(budget, "dp", cost);
  for ([[maybe_unused]] const auto& _ : state)
    benchmark::DoNotOptimize(passes::chosen_values(graph, ctx));
  state.counters["nodes"] = static_cast<double>(nodes_of(graph));
}

BENCHMARK_CAPTURE(decide, as_read_equal, "as_read", true, "time")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide, min_cut_equal, "min_cut", true, "time")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide, half_equal, "0.5", true, "time")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide, min_cut_widths, "min_cut", false, "time")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide, half_widths, "0.5", false, "time")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(decide, half_flops, "0.5", false, "flops")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem
