// The whole of what a partition promises, on one random joint graph after the other:
//   forward and backward apart give what the joint program gives;
//   without policies, no choice saves more bytes than all that backward reads, and a larger
//   fraction never saves less;
//   by operations the same holds beside arguments;
//   the cut costs what another algorithm says on a network written down another way, also where one
//   price after the other changes;
//   the same graph is cut the same way twice.
// PARTITION_COUNT graphs (400) from number PARTITION_FIRST (0) on: a night's run takes 10,000.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "ir/text.h"
#include "ir/writes.h"
#include "passes/partition/bans.h"
#include "passes/partition/cut.h"
#include "passes/partition/recompute_cost.h"
#include "test/passes/halves.h"
#include "test/passes/programs.h"

namespace tandem {
namespace {

using ir::Node;
using ir::Value;

uint32_t number_of(const char* variable, uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::stoul(text));
}

/// What a policy wants computed again may be made of more bytes than it has.
bool has_policies(uint32_t number) { return number % 2 == 0; }

test::Program program_of(uint32_t number) {
  return [number] { return test::random_program(number, has_policies(number)); };
}

/// Shortest augmenting paths, one after the other, over a matrix of capacities: nothing is shared
/// with the solver that is tested.
class PathFlow {
 public:
  explicit PathFlow(size_t vertices)
      : vertices_(vertices), left_(vertices * vertices, 0), next_(vertices) {}

  void connect(size_t from, size_t to, int64_t capacity) {
    left_[from * vertices_ + to] += capacity;
    next_[from].push_back(to);
    next_[to].push_back(from);
  }

  int64_t flow(size_t source, size_t sink) {
    int64_t total = 0;
    while (const int64_t more = augment(source, sink)) total += more;
    return total;
  }

 private:
  int64_t augment(size_t source, size_t sink) {
    std::vector<size_t> from(vertices_, vertices_);
    std::vector<size_t> open{source};
    from[source] = source;
    for (size_t i = 0; i < open.size() && from[sink] == vertices_; ++i)
      for (const size_t to : next_[open[i]]) {
        if (from[to] != vertices_ || left_[open[i] * vertices_ + to] == 0) continue;
        from[to] = open[i];
        open.push_back(to);
      }
    if (from[sink] == vertices_) return 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t at = sink; at != source; at = from[at])
      least = std::min(least, left_[from[at] * vertices_ + at]);
    for (size_t at = sink; at != source; at = from[at]) {
      left_[from[at] * vertices_ + at] -= least;
      left_[at * vertices_ + from[at]] += least;
    }
    return least;
  }

  size_t vertices_;
  std::vector<int64_t> left_;
  std::vector<std::vector<size_t>> next_;
};

/// By the definition: a vertex for each node and two for each value, and edges as the text of the
/// problem has them.
class OtherSolver {
 public:
  OtherSolver(const ir::Graph& graph, const passes::Halves& halves, const passes::Prices& prices)
      : network_(2 + 2 * graph.value_ids() + graph.node_ids()) {
    const size_t nodes = 2 + 2 * graph.value_ids();
    for (const Value* input : graph.inputs()) {
      if (input->role == ir::Role::tangent) continue;
      network_.connect(0, begin(input), passes::kNever);
      add(graph, halves, *input, prices, nodes);
    }
    for (const Node* node = graph.first(); node != nullptr; node = node->next) {
      if (halves.needs_tangent(node) || node->op->mutates()) continue;
      network_.connect(0, nodes + node->id, prices.again(node));
      for (const Value* result : node->results) {
        network_.connect(nodes + node->id, begin(result), passes::kNever);
        add(graph, halves, *result, prices, nodes);
      }
    }
  }

  int64_t cost() { return network_.flow(0, 1); }

 private:
  static size_t begin(const Value* value) { return 2 + 2 * size_t{value->id}; }

  void add(const ir::Graph& graph, const passes::Halves& halves, const Value& value,
           const passes::Prices& prices, size_t nodes) {
    const size_t end = begin(&value) + 1;
    network_.connect(begin(&value), end, prices.keeping(&value));
    for (const ir::Use& use : value.uses) {
      if (use.node == nullptr) {
        if (graph.outputs()[use.arg].kind == ir::OutputKind::gradient)
          network_.connect(end, 1, passes::kNever);
      } else if (halves.needs_tangent(use.node)) {
        network_.connect(end, 1, passes::kNever);
      } else if (!use.node->op->mutates()) {
        network_.connect(end, nodes + use.node->id, passes::kNever);
      }
    }
  }

  PathFlow network_;
};

struct Bytes {
  int64_t all = 0;
  int64_t made = 0;  // beside arguments, but for copies of what is overwritten
};

Bytes bytes_of(const ir::Values& saved) {
  ir::Values made;
  for (ir::Value* value : saved)
    if (value->node != nullptr || ir::is_written(value)) made.push_back(value);
  return {passes::typical_bytes(saved), passes::typical_bytes(made)};
}

Bytes bytes_saved(const ir::Graph& graph) {
  ir::Values saved;
  for (const ir::Output& output : graph.outputs())
    if (output.kind == ir::OutputKind::saved) saved.push_back(output.value);
  return bytes_of(saved);
}

/// Forward and backward as text, and the bytes between them.
std::pair<std::string, Bytes> cut(const test::Program& program, std::string_view partition) {
  const std::unique_ptr<ir::Module> module = program();
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx = test::context_of(partition);
  test::make_joint(graph, ctx);
  test::run(graph, {"choose"}, ctx);
  const Bytes bytes = bytes_saved(graph);
  test::run(graph, {"remat", "split"}, ctx);
  return {ir::to_string(*module), bytes};
}

/// One node after the other is tied down, and half of them are let go again.
void expect_changed_prices(const ir::Graph& graph, const passes::Halves& halves,
                           const passes::Prices& prices, passes::CutNetwork& network) {
  constexpr int64_t kTied = int64_t{1} << 40;
  DenseMap<Node, char> tied;
  passes::Prices changed = prices;
  changed.again = [&](const Node* node) { return tied.at(node) != 0 ? kTied : prices.again(node); };
  for (const Node* node = graph.first(); node != nullptr; node = node->next) {
    if (!network.has(node)) continue;
    tied[node] = 1;
    if (node->id % 2 != 0) network.remember();
    network.set_again(node, kTied);
    EXPECT_EQ(network.weight(), OtherSolver(graph, halves, changed).cost());
    EXPECT_EQ(network.read().saved, passes::cheapest_cut(graph, halves, changed));
    if (node->id % 2 == 0) continue;
    tied[node] = 0;
    network.recall();
    EXPECT_EQ(network.weight(), OtherSolver(graph, halves, changed).cost());
  }
}

/// Prices as a budget has them, at three rates.
void expect_the_cheapest_cut(const test::Program& program) {
  const std::unique_ptr<ir::Module> module = program();
  ir::Graph& graph = *module->graphs()[0];
  driver::GraphCtx ctx;
  test::make_joint(graph, ctx);
  const passes::Halves halves(graph);
  const DenseMap<Node, passes::Ban> bans = passes::bans_of(graph, halves, ctx.target.tuning.chains);
  int64_t bytes_for_microsecond = 0;
  passes::Prices prices;
  prices.keeping = [](const Value* value) {
    return passes::lives_anyway(value) ? int64_t{0} : 64 * passes::typical_bytes(value);
  };
  prices.again = [&](const Node* node) {
    if (bans.at(node).kind == passes::Ban::Kind::never) return passes::kNever;
    const double price = passes::microseconds_again(*node, ctx.target);
    return halves.is_forward(node)
               ? static_cast<int64_t>(price * static_cast<double>(bytes_for_microsecond))
               : int64_t{0};
  };
  passes::CutNetwork network(graph, halves, prices.keeping);
  for (const int64_t rate : {1, 300, 100'000}) {
    bytes_for_microsecond = rate;
    const passes::Cut found = network.cheapest(prices.again);
    int64_t cost = 0;
    for (const Value* value : found.saved) cost += prices.keeping(value);
    for (const Node* node : found.again) cost += prices.again(node);
    EXPECT_EQ(cost, OtherSolver(graph, halves, prices).cost()) << ir::to_string(graph);
    EXPECT_EQ(found.again, passes::computed_again(graph, halves, found.saved));
    EXPECT_EQ(found.saved, passes::cheapest_cut(graph, halves, prices)) << "asked twice";
    expect_changed_prices(graph, halves, prices, network);
  }
}

Bytes bytes_of_all(const test::Program& program) {
  const std::unique_ptr<ir::Module> module = program();
  driver::GraphCtx ctx;
  test::make_joint(*module->graphs()[0], ctx);
  return bytes_of(passes::all_that_is_read(*module->graphs()[0]));
}

/// By time, not by bytes alone.
bool is_priced(std::string_view partition) { return partition == "default"; }

void expect_by_operations(const test::Program& program, int64_t all, bool has_policies) {
  int64_t before = all;
  test::Arguments arguments;
  const test::Outcome joint = test::run_joint(program, arguments);
  for (const char* partition : {"1 flops", "0.5 flops", "0.2 flops", "min_memory flops"}) {
    SCOPED_TRACE(partition);
    const auto [text, bytes] = cut(program, partition);
    if (!has_policies) EXPECT_LE(bytes.made, before);
    before = bytes.made;
    EXPECT_EQ(text, cut(program, partition).first);
    test::expect_equal(joint.results, test::run_apart(program, partition, arguments).results);
  }
}

void expect_all_of(uint32_t number) {
  const test::Program program = program_of(number);
  test::Arguments arguments;
  const test::Outcome joint = test::run_joint(program, arguments);
  const Bytes all = bytes_of_all(program);
  int64_t before = all.all;
  for (const char* partition :
       {"as_read", "default", "min_cut", "1", "0.7", "0.5", "0.3", "0.1", "min_memory"}) {
    SCOPED_TRACE(partition);
    const auto [text, bytes] = cut(program, partition);
    if (!has_policies(number)) EXPECT_LE(bytes.all, is_priced(partition) ? all.all : before);
    if (!is_priced(partition)) before = bytes.all;
    EXPECT_EQ(text, cut(program, partition).first);
    const test::Outcome apart = test::run_apart(program, partition, arguments);
    test::expect_equal(joint.results, apart.results);
    for (size_t i = 0; i < joint.inputs.size(); ++i)
      if (const runtime::Array* array = std::get_if<runtime::Array>(&joint.inputs[i]))
        EXPECT_LE(test::difference(*array, std::get<runtime::Array>(apart.inputs[i])), 1e-5);
  }
  if (!has_policies(number)) EXPECT_LE(cut(program, "min_time").second.all, all.all);
  expect_by_operations(program, all.made, has_policies(number));
  expect_the_cheapest_cut(program);
}

/// A test for each eighth of the numbers: CTest deals tests out to shards.
constexpr uint32_t kEighths = 8;
class PartitionProperty : public testing::TestWithParam<uint32_t> {};

TEST_P(PartitionProperty, HoldsOfRandomJointGraphs) {
  const uint32_t first = number_of("PARTITION_FIRST", 0);
  const uint32_t count = number_of("PARTITION_COUNT", 400);
  for (uint32_t number = first + GetParam(); number < first + count; number += kEighths) {
    SCOPED_TRACE(fmt::format("random {}", number));
    expect_all_of(number);
    if (testing::Test::HasFailure()) return;  // the first one is enough to look at
  }
}

INSTANTIATE_TEST_SUITE_P(Eighth, PartitionProperty, testing::Range(0U, kEighths));

}  // namespace
}  // namespace tandem
