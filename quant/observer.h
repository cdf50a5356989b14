// Finding ranges: observers see batches of values and keep little of them: a minimum and a maximum
// for each part that has a scale of its own, or a histogram.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "quant/qspec.h"

namespace tandem::quant {

/// Low and high end for each part.
struct Range {
  std::vector<float> low;
  std::vector<float> high;
};

/// Counts of values between two ends, in bins of one width. Its size never changes: where values
/// lie outside, the ends move and the counts are dealt out again.
class Histogram {
 public:
  static constexpr int kBins = 2048;

  bool is_empty() const { return counts_.empty(); }
  float low() const { return low_; }
  float high() const { return high_; }
  double count() const;
  std::span<const double> counts() const { return counts_; }

  /// All values must be finite.
  void add(std::span<const float> values);
  void merge(const Histogram& other);

  /// The value that this share of the values, in [0, 1], does not exceed.
  double quantile(double share) const;
  /// The part of the range that loses least, in squares, when it is cut into `levels` values and
  /// what lies outside moves to its ends.
  std::pair<double, double> least_loss(int64_t levels) const;

 private:
  double width() const;
  void widen(float low, float high);
  double loss(int first, int last, int64_t levels) const;

  float low_ = 0;
  float high_ = 0;
  std::vector<double> counts_;
};

/// Values that belong to one scale: `values` lie as [outer, parts, inner].
class Observer {
 public:
  virtual ~Observer() = default;
  /// Infinite values are left out: no range holds them. UserError at a NaN.
  void observe(std::span<const float> values, int64_t inner);
  /// As if this one had seen what the other one saw, afterwards.
  virtual void merge(const Observer& other) = 0;
  /// Of what was seen; needs `seen() > 0`.
  virtual Range range() const = 0;
  /// Finite values so far.
  int64_t seen() const { return seen_; }

 protected:
  explicit Observer(int64_t parts) : parts_(parts) {}
  int64_t parts() const { return parts_; }
  virtual void observe_finite(std::span<const float> values, int64_t inner) = 0;
  void add_seen(const Observer& other) { seen_ += other.seen_; }

 private:
  int64_t parts_;
  int64_t seen_ = 0;
};

/// `parts` are 1 for a whole tensor, else the number of channels or groups.
std::unique_ptr<Observer> make_observer(const QSpec& spec, int64_t parts);

}  // namespace tandem::quant
