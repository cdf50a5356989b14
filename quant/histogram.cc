// Batches may widen the range, so bins are cut finer and their parts counted where their middles
// lie then: what a bin held is spread evenly over it. Counts are numbers with fractions for this
// reason; their sum stays.
//
// The range that is chosen from a histogram need not hold every value. With a step of d = range /
// levels between values, what lies within moves by at most d / 2, and what lies outside by its
// distance to the end. Of a bin of density p that lies from a to b around the value that it moves
// to, the loss is
//   p * (b^3 - a^3) / 3
// Ends are moved inwards, always the one that leaves fewer values out, as long as the loss falls.
#include <algorithm>
#include <cmath>

#include "quant/observer.h"

namespace tandem::quant {
namespace {

constexpr int kParts = 16;      // of a bin, when bins are dealt out again
constexpr double kStep = 1e-5;  // share of the values that a step of the search leaves out

double cube(double x) { return x * x * x; }

}  // namespace

double Histogram::width() const {
  return (static_cast<double>(high_) - static_cast<double>(low_)) / kBins;
}

double Histogram::count() const {
  double sum = 0;
  for (const double count : counts_) sum += count;
  return sum;
}

void Histogram::widen(float low, float high) {
  const float new_low = std::min(low, low_), new_high = std::max(high, high_);
  if (new_low == low_ && new_high == high_) return;
  Histogram wider;
  wider.low_ = new_low;
  wider.high_ = new_high;
  wider.counts_.assign(kBins, 0);
  for (int bin = 0; bin < kBins; ++bin) {
    const double count = counts_[static_cast<size_t>(bin)] / kParts;
    if (count == 0) continue;
    for (int part = 0; part < kParts; ++part) {
      const double middle =
          static_cast<double>(low_) + (bin + (part + 0.5) / kParts) * width() - new_low;
      const int to = std::clamp(static_cast<int>(middle / wider.width()), 0, kBins - 1);
      wider.counts_[static_cast<size_t>(to)] += count;
    }
  }
  *this = std::move(wider);
}

void Histogram::add(std::span<const float> values) {
  if (values.empty()) return;
  const auto ends = std::ranges::minmax(values);
  if (counts_.empty()) {
    counts_.assign(kBins, 0);
    low_ = ends.min;
    high_ = ends.max;
  } else {
    widen(ends.min, ends.max);
  }
  const double bins_per_unit = high_ > low_ ? 1 / width() : 0;
  for (const float value : values) {
    const double place = (static_cast<double>(value) - static_cast<double>(low_)) * bins_per_unit;
    counts_[static_cast<size_t>(std::clamp(static_cast<int>(place), 0, kBins - 1))] += 1;
  }
}

void Histogram::merge(const Histogram& other) {
  if (other.is_empty()) return;
  if (is_empty()) {
    *this = other;
    return;
  }
  Histogram theirs = other;
  theirs.widen(low_, high_);
  widen(theirs.low_, theirs.high_);
  for (size_t bin = 0; bin < kBins; ++bin) counts_[bin] += theirs.counts_[bin];
}

double Histogram::quantile(double share) const {
  const double wanted = share * count();
  double below = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    const double here = counts_[static_cast<size_t>(bin)];
    if (here > 0 && below + here >= wanted)
      return static_cast<double>(low_) + (bin + (wanted - below) / here) * width();
    below += here;
  }
  return high_;
}

double Histogram::loss(int first, int last, int64_t levels) const {
  const double step = width() * (last - first + 1) / static_cast<double>(levels);
  double sum = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    const double density = counts_[static_cast<size_t>(bin)] / width();
    if (density == 0) continue;
    const double begin = (bin - first) * width(), end = begin + width();
    auto level_at = [&](double x) {
      return std::clamp(std::floor(x / step), 0.0, static_cast<double>(levels - 1));
    };
    const double low_level = level_at(begin), high_level = level_at(end);
    const double a = begin - (low_level + 0.5) * step, b = end - (high_level + 0.5) * step;
    const double half = cube(step / 2);
    const double whole = high_level - low_level;  // steps between the two values
    sum += density * (cube(b) - cube(a) + 2 * half * whole) / 3;
  }
  return sum;
}

std::pair<double, double> Histogram::least_loss(int64_t levels) const {
  if (!(high_ > low_)) return {low_, high_};
  std::vector<double> below(kBins + 1, 0);  // values in bins before
  for (size_t bin = 0; bin < kBins; ++bin) below[bin + 1] = below[bin] + counts_[bin];
  const double total = below[kBins];
  int first = 0, last = kBins - 1;
  double low_share = 0, high_share = 1;
  double least = loss(first, last, levels);
  while (low_share < high_share) {
    int next_first = first, next_last = last;
    while (next_first < last &&
           below[static_cast<size_t>(next_first) + 1] < (low_share + kStep) * total)
      ++next_first;
    while (next_last > first &&
           below[static_cast<size_t>(next_last) + 1] > (high_share - kStep) * total)
      --next_last;
    if (next_first - first > last - next_last) {
      low_share += kStep;
      next_last = last;
    } else {
      high_share -= kStep;
      next_first = first;
    }
    if (next_first == first && next_last == last) continue;
    const double now = loss(next_first, next_last, levels);
    if (now > least) break;
    least = now;
    first = next_first;
    last = next_last;
  }
  const double low = static_cast<double>(low_);
  return {low + first * width(), low + (last + 1) * width()};
}

}  // namespace tandem::quant
