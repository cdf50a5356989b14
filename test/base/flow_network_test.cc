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

}  // namespace
}  // namespace tandem
