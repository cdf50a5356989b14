// Boost's Boykov-Kolmogorov flow over its compressed rows of edges, kept out of the header: they
// take seconds to compile. Edges stand in plain arrays, sorted by where they start, so that a
// network of which only capacities change is laid out once.
#include "base/flow_network.h"

#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>

#include "base/check.h"

namespace tandem {
namespace {

using Rows =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, uint32_t, uint32_t>;
using Edge = boost::graph_traits<Rows>::edge_descriptor;

}  // namespace

struct FlowNetwork::Impl {
  explicit Impl(size_t count) : vertices(count) {}

  void lay_out();
  int64_t flow(size_t source, size_t sink);

  size_t vertices;
  std::vector<std::pair<uint32_t, uint32_t>> ends;  // an edge and its reverse in turn
  std::vector<int64_t> capacities;                  // of the former
  // From the first flow on.
  std::unique_ptr<Rows> rows;
  std::vector<uint32_t> place;  // in rows, of each of `ends`
  std::vector<Edge> reverse;    // by place, as the rest
  std::vector<int64_t> capacity;
  std::vector<int64_t> residual;
};

// Counting sort: equal starts keep their order.
void FlowNetwork::Impl::lay_out() {
  std::vector<uint32_t> next(vertices + 1, 0);
  for (const auto& [from, to] : ends) ++next[from + 1];
  for (size_t i = 0; i < vertices; ++i) next[i + 1] += next[i];
  place.resize(ends.size());
  std::vector<std::pair<uint32_t, uint32_t>> sorted(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    place[i] = next[ends[i].first]++;
    sorted[place[i]] = ends[i];
  }
  rows = std::make_unique<Rows>(boost::edges_are_sorted, sorted.begin(), sorted.end(), vertices);
  reverse.resize(ends.size());
  for (size_t i = 0; i < ends.size(); ++i)
    reverse[place[i]] = Edge(ends[i ^ 1].first, place[i ^ 1]);
  capacity.assign(ends.size(), 0);
  residual.assign(ends.size(), 0);
}

int64_t FlowNetwork::Impl::flow(size_t source, size_t sink) {
  const auto by_edge = [&](auto& values) {
    return boost::make_iterator_property_map(values.begin(), boost::get(boost::edge_index, *rows));
  };
  const auto by_vertex = [&](auto& values) {
    return boost::make_iterator_property_map(values.begin(),
                                             boost::get(boost::vertex_index, *rows));
  };
  std::vector<Edge> predecessor(vertices);
  std::vector<boost::default_color_type> color(vertices);
  std::vector<long> distance(vertices);
  return boost::boykov_kolmogorov_max_flow(
      *rows, by_edge(capacity), by_edge(residual), by_edge(reverse), by_vertex(predecessor),
      by_vertex(color), by_vertex(distance), boost::get(boost::vertex_index, *rows),
      static_cast<uint32_t>(source), static_cast<uint32_t>(sink));
}

FlowNetwork::FlowNetwork(size_t vertices) : impl_(std::make_unique<Impl>(vertices)) {}
FlowNetwork::~FlowNetwork() = default;
FlowNetwork::FlowNetwork(FlowNetwork&&) noexcept = default;

size_t FlowNetwork::connect(size_t from, size_t to, int64_t capacity) {
  TD_CHECK(impl_->rows == nullptr) << "an edge is added to a network that was asked";
  const uint32_t start = static_cast<uint32_t>(from);
  const uint32_t end = static_cast<uint32_t>(to);
  impl_->ends.emplace_back(start, end);
  impl_->ends.emplace_back(end, start);
  impl_->capacities.push_back(from == to ? 0 : capacity);
  return impl_->capacities.size() - 1;
}

void FlowNetwork::set_capacity(size_t edge, int64_t capacity) {
  impl_->capacities.at(edge) = capacity;
}

int64_t FlowNetwork::flow(size_t source, size_t sink) {
  if (impl_->rows == nullptr) impl_->lay_out();
  for (size_t i = 0; i < impl_->capacities.size(); ++i)
    impl_->capacity[impl_->place[2 * i]] = impl_->capacities[i];
  return impl_->flow(source, sink);
}

std::vector<char> FlowNetwork::source_side(size_t source) const {
  const Rows& rows = *impl_->rows;
  std::vector<char> reached(impl_->vertices, 0);
  std::vector<size_t> open{source};
  reached[source] = 1;
  while (!open.empty()) {
    const uint32_t at = static_cast<uint32_t>(open.back());
    open.pop_back();
    for (auto [edge, end] = boost::out_edges(at, rows); edge != end; ++edge) {
      const size_t to = boost::target(*edge, rows);
      if (reached[to] || impl_->residual[boost::get(boost::edge_index, rows, *edge)] <= 0) continue;
      reached[to] = 1;
      open.push_back(to);
    }
  }
  return reached;
}

}  // namespace tandem
