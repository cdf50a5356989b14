// Problem: between choices that cuts and knapsacks find lie better ones, since bytes of products do
// not add up: what one needs another may have kept already. Approach: let f(T) be the weight of the
// cheapest cut in which the products T are not computed again. f is submodular (its network is), so
//   f(T + p - q) >= f(T + p) + f(T - q) - f(T),
// and from the weights with one product more and with one less it is known which pairs may be worth
// their exchange. Only these are cut. Each weight is a repair of one edge of the flow
// (FlowNetwork), a cut is read only where no choice is as good, and what is found is started from
// in its turn.
#include "passes/partition/exchange.h"

namespace tandem::passes {
namespace {

constexpr double kRounding = 1e-9;  // of the whole cost: the same sums in another order

}  // namespace

void Exchange::run(int64_t most_steps) {
  end_ = network_.steps() + most_steps;
  while (!is_over()) {
    const Choice* next = front_.take();
    if (next == nullptr) return;
    pairs_ += static_cast<int64_t>(front_.size());
    visit(Choice(*next));
  }
}

void Exchange::visit(const Choice& from) {
  stand_on(from);
  const int64_t here = network_.weight();
  rounding_ = std::max(rounding_, kRounding * from.cost);
  offer(here, from.cost);
  add_or_drop_one(here, from.cost);
  for (size_t less = 0; less < items_.size() && !is_over(); ++less)
    if (is_tied_[less] != 0) swap_for(less, here, from.cost);
}

/// All that are not computed again are tied; what else spared one of them, statistics of a norm for
/// one, is not, and goes where it is no longer needed.
void Exchange::stand_on(const Choice& from) {
  DenseMap<ir::Node, char> runs;
  for (const ir::Node* node : from.again) runs[node] = 1;
  is_tied_.assign(items_.size(), 0);
  for (size_t i = 0; i < items_.size(); ++i) {
    is_tied_[i] = runs.at(items_[i].node) == 0;
    network_.set_again(items_[i].node, is_tied_[i] != 0 ? kNever : items_[i].again);
  }
}

void Exchange::add_or_drop_one(int64_t here, double cost) {
  changes_.assign(items_.size(), 0);
  for (size_t i = 0; i < items_.size() && !is_over(); ++i) {
    const double worth = is_tied_[i] != 0 ? -items_[i].worth : items_[i].worth;
    changes_[i] = with_flipped({i}, cost - worth) - here;
  }
}

void Exchange::swap_for(size_t less, int64_t here, double cost) {
  pairs_ += static_cast<int64_t>(items_.size());
  for (size_t more = 0; more < items_.size() && !is_over(); ++more) {
    if (is_tied_[more] != 0) continue;
    const double costs = items_[less].worth - items_[more].worth;
    const int64_t takes = changes_[less] + changes_[more];
    const bool is_better = costs < 0 || takes < 0;  // than where it stands
    if (is_better && !is_beaten(here + takes, cost + costs))
      with_flipped({less, more}, cost + costs);
  }
}

/// The weight where these are what they are not; the network is left as it was.
int64_t Exchange::with_flipped(const std::vector<size_t>& items, double cost) {
  network_.remember();
  for (const size_t i : items)
    network_.set_again(items_[i].node, is_tied_[i] != 0 ? items_[i].again : kNever);
  const int64_t weight = network_.weight();
  offer(weight, cost);
  network_.recall();
  return weight;
}

/// Kept bytes are at most the weight, in which prices of computing again are small.
bool Exchange::is_beaten(int64_t weight, double cost) const {
  return front_.beats(weight / kPartsOfByte, cost + rounding_);
}

void Exchange::offer(int64_t weight, double cost) {
  if (!is_beaten(weight, cost)) add_(network_.read());
}

}  // namespace tandem::passes
