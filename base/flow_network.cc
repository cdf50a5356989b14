// Boost's Boykov-Kolmogorov flow over its compressed rows of edges, kept out of the header: they
// take seconds to compile. Edges stand in plain arrays, sorted by where they start, so that a
// network of which only capacities change is laid out once. Where few of them change, the flow that
// is there is repaired, which Boost does not know: an edge that takes more opens ways to the sink,
// and what an edge no longer takes comes another way, or is taken back from where it went.
#include "base/flow_network.h"

#include <algorithm>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>

#include "base/check.h"

namespace tandem {
namespace {

using Rows =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, uint32_t, uint32_t>;
using Edge = boost::graph_traits<Rows>::edge_descriptor;

/// From where to where more is to flow. It is looked for from `start`, along edges or against them,
/// until `goal`; no way leads through `avoided`.
struct Way {
  uint32_t start;
  uint32_t goal;
  uint32_t avoided;
  bool is_forward;
};

}  // namespace

struct FlowNetwork::Impl {
  Impl(size_t count, int64_t least_edges)
      : vertices(count), edges_of_repair(static_cast<size_t>(least_edges)) {}

  void lay_out();
  int64_t flow(size_t source, size_t sink);
  int64_t solved(size_t source, size_t sink);
  bool is_repairable(size_t source, size_t sink) const;
  int64_t repaired(uint32_t edge);
  void put(uint32_t at, int64_t left);
  void remember();
  void recall();
  int64_t carried(const Way& way, int64_t most);
  bool find(const Way& way);
  int64_t carry_along(const Way& way, int64_t most);
  bool is_seen(uint32_t vertex) const { return seen[vertex] == searches; }

  size_t vertices;
  size_t edges_of_repair;
  std::vector<std::pair<uint32_t, uint32_t>> ends;  // an edge and its reverse in turn
  std::vector<int64_t> capacities;                  // of the former
  std::vector<uint32_t> changed;                    // edges, since the last flow
  // From the first flow on.
  std::unique_ptr<Rows> rows;
  std::vector<uint32_t> place;  // in rows, of each of `ends`
  std::vector<Edge> reverse;    // by place, as the rest
  std::vector<int64_t> capacity;
  std::vector<int64_t> residual;
  std::vector<uint32_t> head;   // where it ends
  std::vector<uint32_t> back;   // the place of the reverse
  std::vector<uint32_t> first;  // by vertex: places from its own to the next one's
  bool is_solved = false;
  size_t source = 0;
  size_t sink = 0;
  int64_t weight = 0;
  mutable int64_t steps = 0;
  // What is remembered: none, or what it was before each change, and the weight.
  bool remembers = false;
  std::vector<std::pair<uint32_t, int64_t>> capacities_before;  // by edge
  std::vector<std::pair<uint32_t, int64_t>> residuals_before;   // by place
  int64_t weight_before = 0;
  // Of a search for a way.
  uint32_t searches = 0;
  std::vector<uint32_t> seen;     // by vertex: the last search that came there
  std::vector<uint32_t> came_by;  // the place of the edge
  std::vector<uint32_t> open;
};

// Counting sort: equal starts keep their order.
void FlowNetwork::Impl::lay_out() {
  first.assign(vertices + 1, 0);
  for (const auto& [from, to] : ends) ++first[from + 1];
  for (size_t i = 0; i < vertices; ++i) first[i + 1] += first[i];
  std::vector<uint32_t> next = first;
  place.resize(ends.size());
  std::vector<std::pair<uint32_t, uint32_t>> sorted(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    place[i] = next[ends[i].first]++;
    sorted[place[i]] = ends[i];
  }
  rows = std::make_unique<Rows>(boost::edges_are_sorted, sorted.begin(), sorted.end(), vertices);
  reverse.resize(ends.size());
  head.resize(ends.size());
  back.resize(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    reverse[place[i]] = Edge(ends[i ^ 1].first, place[i ^ 1]);
    head[place[i]] = ends[i].second;
    back[place[i]] = place[i ^ 1];
  }
  capacity.assign(ends.size(), 0);
  residual.assign(ends.size(), 0);
  seen.assign(vertices, 0);
  came_by.assign(vertices, 0);
}

int64_t FlowNetwork::Impl::flow(size_t from, size_t to) {
  if (rows == nullptr) lay_out();
  if (is_repairable(from, to)) {
    for (const uint32_t edge : changed) weight += repaired(edge);
  } else {
    weight = solved(from, to);
  }
  changed.clear();
  source = from;
  sink = to;
  return weight;
}

int64_t FlowNetwork::Impl::solved(size_t from, size_t to) {
  for (size_t i = 0; i < capacities.size(); ++i) capacity[place[2 * i]] = capacities[i];
  steps += static_cast<int64_t>(ends.size());
  is_solved = !remembers;  // a flow that is not a repair of what is remembered is forgotten with it
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
  const int64_t found = boost::boykov_kolmogorov_max_flow(
      *rows, by_edge(capacity), by_edge(residual), by_edge(reverse), by_vertex(predecessor),
      by_vertex(color), by_vertex(distance), boost::get(boost::vertex_index, *rows),
      static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  // Boost leaves out what flows back to the source and from the sink, where no way of its own
  // leads.
  for (size_t i = 0; i < capacities.size(); ++i)
    residual[place[2 * i + 1]] = capacities[i] - residual[place[2 * i]];
  return found;
}

/// A repair looks at the surroundings of an edge, a solution at all of them several times.
bool FlowNetwork::Impl::is_repairable(size_t from, size_t to) const {
  const bool is_same = is_solved && from == source && to == sink;
  return is_same && changed.size() * edges_of_repair <= ends.size() &&
         std::ranges::all_of(changed, [&](uint32_t edge) { return ends[2 * edge].first == from; });
}

/// By how much that changes the flow. It is at its most before and after: nothing that the source
/// still reaches lies on a way that what is taken back came by.
int64_t FlowNetwork::Impl::repaired(uint32_t edge) {
  const uint32_t at = place[2 * edge];
  const uint32_t from = static_cast<uint32_t>(source);
  const uint32_t to = static_cast<uint32_t>(sink);
  const int64_t flows = residual[back[at]];
  const int64_t excess = flows - capacities[edge];
  const bool was_full = residual[at] == 0;
  put(at, std::max<int64_t>(0, -excess));
  put(back[at], std::min(flows, capacities[edge]));
  if (excess > 0) {
    const int64_t otherwise = carried({head[at], from, to, false}, excess);
    const int64_t taken = carried({head[at], to, from, false}, excess - otherwise);
    TD_CHECK(taken == excess - otherwise) << "flow that goes nowhere";
    return -taken;
  }
  if (!was_full || residual[at] == 0 || head[at] == from) return 0;
  const int64_t more = carried({head[at], to, from, true}, residual[at]);
  put(at, residual[at] - more);
  put(back[at], residual[back[at]] + more);
  return more;
}

void FlowNetwork::Impl::put(uint32_t at, int64_t left) {
  if (remembers) residuals_before.emplace_back(at, residual[at]);
  residual[at] = left;
}

void FlowNetwork::Impl::remember() {
  TD_CHECK(!remembers && is_solved && changed.empty()) << "no flow to remember";
  remembers = true;
  weight_before = weight;
}

/// Where it was solved afresh since then, it is once more.
void FlowNetwork::Impl::recall() {
  TD_CHECK(remembers) << "nothing to recall";
  remembers = false;
  while (!residuals_before.empty()) {
    residual[residuals_before.back().first] = residuals_before.back().second;
    residuals_before.pop_back();
  }
  while (!capacities_before.empty()) {
    capacities[capacities_before.back().first] = capacities_before.back().second;
    capacities_before.pop_back();
  }
  changed.clear();
  weight = weight_before;
}

int64_t FlowNetwork::Impl::carried(const Way& way, int64_t most) {
  if (way.start == way.goal) return most;
  int64_t sum = 0;
  while (sum < most && find(way)) sum += carry_along(way, most - sum);
  return sum;
}

/// Shortest first.
bool FlowNetwork::Impl::find(const Way& way) {
  ++searches;
  seen[way.start] = searches;
  open.assign(1, way.start);
  for (size_t next = 0; next < open.size(); ++next) {
    const uint32_t vertex = open[next];
    steps += first[vertex + 1] - first[vertex];
    for (uint32_t at = first[vertex]; at < first[vertex + 1]; ++at) {
      const uint32_t other = head[at];
      const uint32_t by = way.is_forward ? at : back[at];
      if (residual[by] <= 0 || is_seen(other) || other == way.avoided) continue;
      seen[other] = searches;
      came_by[other] = by;
      if (other == way.goal) return true;
      open.push_back(other);
    }
  }
  return false;
}

int64_t FlowNetwork::Impl::carry_along(const Way& way, int64_t most) {
  const auto before = [&](uint32_t vertex) {
    return way.is_forward ? head[back[came_by[vertex]]] : head[came_by[vertex]];
  };
  for (uint32_t at = way.goal; at != way.start; at = before(at))
    most = std::min(most, residual[came_by[at]]);
  for (uint32_t at = way.goal; at != way.start; at = before(at)) {
    put(came_by[at], residual[came_by[at]] - most);
    put(back[came_by[at]], residual[back[came_by[at]]] + most);
  }
  return most;
}

FlowNetwork::FlowNetwork(size_t vertices, int64_t edges_of_repair)
    : impl_(std::make_unique<Impl>(vertices, edges_of_repair)) {}
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
  int64_t& known = impl_->capacities.at(edge);
  const auto [from, to] = impl_->ends[2 * edge];
  if (known == capacity || from == to) return;
  if (impl_->remembers) impl_->capacities_before.emplace_back(edge, known);
  known = capacity;
  impl_->changed.push_back(static_cast<uint32_t>(edge));
}

int64_t FlowNetwork::flow(size_t source, size_t sink) { return impl_->flow(source, sink); }

void FlowNetwork::remember() { impl_->remember(); }

void FlowNetwork::recall() { impl_->recall(); }

int64_t FlowNetwork::steps() const { return impl_->steps; }

std::vector<char> FlowNetwork::source_side(size_t source) const {
  const Impl& network = *impl_;
  std::vector<char> reached(network.vertices, 0);
  std::vector<uint32_t> open{static_cast<uint32_t>(source)};
  reached[source] = 1;
  while (!open.empty()) {
    const uint32_t vertex = open.back();
    open.pop_back();
    for (uint32_t at = network.first[vertex]; at < network.first[vertex + 1]; ++at) {
      const uint32_t to = network.head[at];
      if (reached[to] != 0 || network.residual[at] <= 0) continue;
      reached[to] = 1;
      open.push_back(to);
    }
  }
  network.steps += static_cast<int64_t>(network.ends.size());
  return reached;
}

}  // namespace tandem
