// Minimum cuts against another algorithm's (push and relabel), on random networks: the same weight,
// and the side of the source is closed by edges of that weight.
#include "base/flow_network.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <random>

namespace tandem {
namespace {

struct Edge {
  size_t from, to;
  int64_t capacity;
};

std::vector<Edge> random_edges(std::mt19937& random, size_t vertices) {
  std::vector<Edge> edges;
  const size_t count = vertices + random() % (4 * vertices);
  for (size_t i = 0; i < count; ++i)
    edges.push_back({random() % vertices, random() % vertices,
                     random() % 8 == 0 ? int64_t{1} << 50 : static_cast<int64_t>(random() % 100)});
  std::erase_if(edges, [](const Edge& e) { return e.from == e.to; });
  return edges;
}

int64_t by_push_relabel(const std::vector<Edge>& edges, size_t vertices) {
  using namespace boost;  // NOLINT: its property tags
  using Traits = adjacency_list_traits<vecS, vecS, directedS>;
  using Network =
      adjacency_list<vecS, vecS, directedS, no_property,
                     property<edge_capacity_t, int64_t,
                              property<edge_residual_capacity_t, int64_t,
                                       property<edge_reverse_t, Traits::edge_descriptor>>>>;
  Network network(vertices);
  for (const Edge& edge : edges) {
    const Traits::edge_descriptor forth = add_edge(edge.from, edge.to, network).first;
    const Traits::edge_descriptor back = add_edge(edge.to, edge.from, network).first;
    put(edge_capacity, network, forth, edge.capacity);
    put(edge_capacity, network, back, 0);
    put(edge_reverse, network, forth, back);
    put(edge_reverse, network, back, forth);
  }
  return push_relabel_max_flow(network, 0, 1);
}

TEST(FlowNetwork, AgreesWithPushRelabelAndItsOwnCut) {
  std::mt19937 random(1);
  for (int number = 0; number < 3000; ++number) {
    const size_t vertices = 2 + random() % 20;
    const std::vector<Edge> edges = random_edges(random, vertices);
    FlowNetwork network(vertices);
    for (const Edge& edge : edges) network.connect(edge.from, edge.to, edge.capacity);
    const int64_t flow = network.flow(0, 1);
    ASSERT_EQ(flow, by_push_relabel(edges, vertices)) << "network " << number;
    const std::vector<char> above = network.source_side(0);
    int64_t cut = 0;
    for (const Edge& edge : edges)
      if (above[edge.from] && !above[edge.to]) cut += edge.capacity;
    EXPECT_EQ(flow, cut) << "network " << number;
  }
}

FlowNetwork network_of(const std::vector<Edge>& edges, size_t vertices) {
  FlowNetwork network(vertices);
  for (const Edge& edge : edges) network.connect(edge.from, edge.to, edge.capacity);
  return network;
}

/// Of a few edges from the source, up and down, to nothing and to more than anything.
void change(std::vector<Edge>& edges, FlowNetwork& network, std::mt19937& random) {
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].from != 0 || random() % 3 != 0) continue;
    const int64_t capacities[] = {0, int64_t{1} << 50, static_cast<int64_t>(random() % 100)};
    edges[i].capacity = capacities[random() % 3];
    network.set_capacity(i, edges[i].capacity);
  }
}

TEST(FlowNetwork, IsRepairedToWhatItWouldBeAfresh) {
  std::mt19937 random(2);
  for (int number = 0; number < 1000; ++number) {
    const size_t vertices = 2 + random() % 60;
    std::vector<Edge> edges = random_edges(random, vertices);
    FlowNetwork network = network_of(edges, vertices);
    network.flow(0, 1);
    for (int changes = 0; changes < 20; ++changes) {
      const std::vector<Edge> before = edges;
      const bool is_tried = random() % 2 == 0;
      if (is_tried) network.remember();
      change(edges, network, random);
      FlowNetwork afresh = network_of(edges, vertices);
      ASSERT_EQ(network.flow(0, 1), afresh.flow(0, 1)) << "network " << number;
      ASSERT_EQ(network.source_side(0), afresh.source_side(0)) << "network " << number;
      if (!is_tried) continue;
      network.recall();
      edges = before;
      FlowNetwork as_before = network_of(edges, vertices);
      ASSERT_EQ(network.flow(0, 1), as_before.flow(0, 1)) << "network " << number;
      ASSERT_EQ(network.source_side(0), as_before.source_side(0)) << "network " << number;
    }
  }
}

TEST(FlowNetwork, ARepairLooksAtWhatTheChangeReaches) {
  constexpr size_t kChains = 1000;
  FlowNetwork network(2 + kChains);
  std::vector<size_t> sources;
  for (size_t i = 0; i < kChains; ++i) {
    sources.push_back(network.connect(0, 2 + i, 3));
    network.connect(2 + i, 1, 5);
  }
  EXPECT_EQ(network.flow(0, 1), 3 * kChains);
  const int64_t before = network.steps();
  network.set_capacity(sources[7], 9);
  EXPECT_EQ(network.flow(0, 1), 3 * kChains + 2);
  network.set_capacity(sources[7], 1);
  EXPECT_EQ(network.flow(0, 1), 3 * kChains - 2);
  EXPECT_LT(network.steps() - before, 50);
}

}  // namespace
}  // namespace tandem
