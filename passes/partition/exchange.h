// Choices one product away from those that are known.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "passes/partition/cut.h"
#include "passes/partition/front.h"

namespace tandem::passes {

/// A product that may be tied down: its result is kept, or not read by backward.
struct ExchangeItem {
  const ir::Node* node = nullptr;
  double worth = 0;   // what not computing it again spares
  int64_t again = 0;  // the price of computing it again in the network
};

class Exchange {
 public:
  /// The network's prices are those with which bytes decide; `add` takes a cut into the front.
  Exchange(CutNetwork& network, Front& front, std::vector<ExchangeItem> items,
           std::function<void(Cut)> add)
      : network_(network), front_(front), items_(std::move(items)), add_(std::move(add)) {}

  /// Until no choice is bettered by keeping one item more, one less, or one for another; or so many
  /// edges were looked at.
  void run(int64_t most_steps);

 private:
  void visit(const Choice& from);
  void stand_on(const Choice& from);
  void add_or_drop_one(int64_t here, double cost);
  void swap_for(size_t less, int64_t here, double cost);
  int64_t with_flipped(const std::vector<size_t>& items, double cost);
  void offer(int64_t weight, double cost);
  bool is_beaten(int64_t weight, double cost) const;
  bool is_over() const { return network_.steps() + pairs_ >= end_; }

  CutNetwork& network_;
  Front& front_;
  std::vector<ExchangeItem> items_;
  std::function<void(Cut)> add_;
  std::vector<char> is_tied_;     // by item
  std::vector<int64_t> changes_;  // by item: of the weight, when it alone is flipped
  double rounding_ = 0;
  int64_t pairs_ = 0;  // that were looked at, as so many edges
  int64_t end_ = 0;
};

}  // namespace tandem::passes
