// What is kept of a batch does not depend on threads: one observer sees its batches in order, and
// different observers share nothing.
#include "quant/observer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/diagnostic.h"

namespace tandem::quant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Minimum and maximum of each part over all batches.
class MinMax : public Observer {
 public:
  explicit MinMax(int64_t parts) : Observer(parts), range_(unseen(parts)) {}

  void merge(const Observer& other) override {
    const MinMax* theirs = dynamic_cast<const MinMax*>(&other);
    TD_CHECK(theirs != nullptr && theirs->parts() == parts()) << "observers of two kinds";
    if (theirs->seen() == 0) return;
    join(theirs->range_);
    add_seen(other);
  }

  Range range() const override { return range_; }

 protected:
  static Range unseen(int64_t parts) {
    const size_t count = static_cast<size_t>(parts);
    return {std::vector<float>(count, kInfinity), std::vector<float>(count, -kInfinity)};
  }

  void observe_finite(std::span<const float> values, int64_t inner) override {
    Range batch = unseen(parts());
    for (size_t begin = 0, part = 0; begin < values.size();
         begin += static_cast<size_t>(inner), part = (part + 1) % batch.low.size()) {
      const std::span<const float> run = values.subspan(begin, static_cast<size_t>(inner));
      const auto ends = std::ranges::minmax(run);
      batch.low[part] = std::min(batch.low[part], ends.min);
      batch.high[part] = std::max(batch.high[part], ends.max);
    }
    take(batch);
  }

  virtual void take(const Range& batch) { join(batch); }

  void join(const Range& batch) {
    for (size_t part = 0; part < range_.low.size(); ++part) {
      range_.low[part] = std::min(range_.low[part], batch.low[part]);
      range_.high[part] = std::max(range_.high[part], batch.high[part]);
    }
  }

  Range range_;
};

/// range = range + momentum * (batch - range), from the first batch on. Two observers that saw
/// batches apart are merged by what they saw.
class MovingAverage : public MinMax {
 public:
  MovingAverage(int64_t parts, double momentum)
      : MinMax(parts), momentum_(static_cast<float>(momentum)) {}

  void merge(const Observer& other) override {
    const MovingAverage* theirs = dynamic_cast<const MovingAverage*>(&other);
    TD_CHECK(theirs != nullptr && theirs->parts() == parts()) << "observers of two kinds";
    if (theirs->seen() == 0) return;
    const double all = static_cast<double>(seen() + theirs->seen());
    const float share = static_cast<float>(static_cast<double>(theirs->seen()) / all);
    if (seen() == 0)
      range_ = theirs->range_;
    else
      move_to(theirs->range_, share);
    add_seen(other);
  }

 protected:
  void take(const Range& batch) override {
    if (range_.low[0] > range_.high[0])
      range_ = batch;
    else
      move_to(batch, momentum_);
  }

 private:
  void move_to(const Range& batch, float share) {
    for (size_t part = 0; part < range_.low.size(); ++part) {
      range_.low[part] += share * (batch.low[part] - range_.low[part]);
      range_.high[part] += share * (batch.high[part] - range_.high[part]);
    }
  }

  float momentum_;
};

/// A histogram, and the range chosen from it: of least loss, or that holds a share of the values.
class HistogramRange : public Observer {
 public:
  explicit HistogramRange(const QSpec& spec) : Observer(1), spec_(spec) {}

  void merge(const Observer& other) override {
    const HistogramRange* theirs = dynamic_cast<const HistogramRange*>(&other);
    TD_CHECK(theirs != nullptr) << "observers of two kinds";
    histogram_.merge(theirs->histogram_);
    add_seen(other);
  }

  Range range() const override {
    const std::pair<double, double> chosen = chosen_range();
    return {{static_cast<float>(chosen.first)}, {static_cast<float>(chosen.second)}};
  }

 protected:
  void observe_finite(std::span<const float> values, int64_t) override { histogram_.add(values); }

 private:
  std::pair<double, double> chosen_range() const {
    if (spec_.observer == ObserverKind::percentile)
      return {histogram_.quantile(1 - spec_.percentile / 100),
              histogram_.quantile(spec_.percentile / 100)};
    return histogram_.least_loss(spec_.quant_max - spec_.quant_min + 1);
  }

  QSpec spec_;
  Histogram histogram_;
};

}  // namespace

void Observer::observe(std::span<const float> values, int64_t inner) {
  if (values.empty()) return;
  const bool is_finite =
      std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  if (is_finite) {
    observe_finite(values, parts_ == 1 ? static_cast<int64_t>(values.size()) : inner);
    seen_ += static_cast<int64_t>(values.size());
    return;
  }
  if (std::ranges::any_of(values, [](float value) { return std::isnan(value); }))
    throw UserError("a value is NaN");
  if (parts_ > 1) throw UserError("a value of a channel is infinite");
  std::vector<float> finite;
  std::ranges::copy_if(values, std::back_inserter(finite),
                       [](float value) { return std::isfinite(value); });
  if (finite.empty()) return;
  observe_finite(finite, static_cast<int64_t>(finite.size()));
  seen_ += static_cast<int64_t>(finite.size());
}

std::unique_ptr<Observer> make_observer(const QSpec& spec, int64_t parts) {
  switch (spec.observer) {
    case ObserverKind::min_max: return std::make_unique<MinMax>(parts);
    case ObserverKind::moving_average: return std::make_unique<MovingAverage>(parts, spec.momentum);
    case ObserverKind::histogram:
    case ObserverKind::percentile: return std::make_unique<HistogramRange>(spec);
  }
  return nullptr;
}

}  // namespace tandem::quant
