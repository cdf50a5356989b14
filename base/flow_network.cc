// Boost's graph and its Boykov-Kolmogorov flow, kept out of the header: they take seconds to
// compile.
#include "base/flow_network.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

namespace tandem {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using FlowGraph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<boost::vertex_color_t, boost::default_color_type,
                    boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor,
                                    boost::property<boost::vertex_distance_t, long>>>,
    boost::property<
        boost::edge_capacity_t, int64_t,
        boost::property<boost::edge_residual_capacity_t, int64_t,
                        boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

}  // namespace

struct FlowNetwork::Impl {
  explicit Impl(size_t vertices) : graph(vertices) {}
  FlowGraph graph;
};

FlowNetwork::FlowNetwork(size_t vertices) : impl_(std::make_unique<Impl>(vertices)) {}
FlowNetwork::~FlowNetwork() = default;
FlowNetwork::FlowNetwork(FlowNetwork&&) noexcept = default;

void FlowNetwork::connect(size_t from, size_t to, int64_t capacity) {
  if (from == to) return;
  FlowGraph& graph = impl_->graph;
  Traits::edge_descriptor edge = boost::add_edge(from, to, graph).first;
  Traits::edge_descriptor reverse = boost::add_edge(to, from, graph).first;
  boost::put(boost::edge_capacity, graph, edge, capacity);
  boost::put(boost::edge_capacity, graph, reverse, 0);
  boost::put(boost::edge_reverse, graph, edge, reverse);
  boost::put(boost::edge_reverse, graph, reverse, edge);
}

int64_t FlowNetwork::flow(size_t source, size_t sink) {
  return boost::boykov_kolmogorov_max_flow(impl_->graph, source, sink);
}

std::vector<char> FlowNetwork::source_side(size_t source) const {
  const FlowGraph& graph = impl_->graph;
  std::vector<char> reached(boost::num_vertices(graph), 0);
  std::vector<size_t> open{source};
  reached[source] = 1;
  while (!open.empty()) {
    size_t at = open.back();
    open.pop_back();
    for (auto [edge, end] = boost::out_edges(at, graph); edge != end; ++edge) {
      size_t to = boost::target(*edge, graph);
      if (reached[to] || boost::get(boost::edge_residual_capacity, graph, *edge) <= 0) continue;
      reached[to] = 1;
      open.push_back(to);
    }
  }
  return reached;
}

}  // namespace tandem
