// Ranges from values: what each observer keeps, that it keeps little, and that what was seen apart
// can be put together.
#include "quant/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/diagnostic.h"

namespace tandem::quant {
namespace {

using ::testing::ElementsAre;

QSpec spec_of(ObserverKind kind) {
  QSpec spec;
  spec.observer = kind;
  return spec;
}

std::vector<float> normal(size_t count, uint64_t seed, float scale = 1) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    // the sum of twelve uniform numbers, the same on every standard library
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    value = scale * static_cast<float>(sum);
  }
  return values;
}

TEST(QParams, AffineRangesContainZero) {
  QSpec spec;
  QParams params = qparams_of(spec, 10, 11);
  EXPECT_DOUBLE_EQ(params.scale, 11.0 / 255);
  EXPECT_EQ(params.zero_point, 0);
  params = qparams_of(spec, -5, -4);
  EXPECT_DOUBLE_EQ(params.scale, 5.0 / 255);
  EXPECT_EQ(params.zero_point, 255);
  params = qparams_of(spec, -1, 3);
  EXPECT_EQ(params.zero_point, 64);  // round(63.75)
}

TEST(QParams, SymmetricOnesHaveTheirZeroInTheMiddle) {
  QSpec spec{.dtype = DType::i8, .quant_min = -128, .quant_max = 127, .symmetric = true};
  EXPECT_DOUBLE_EQ(qparams_of(spec, -2, 1).scale, 2 / 127.5);
  EXPECT_EQ(qparams_of(spec, -2, 1).zero_point, 0);
  spec = {.symmetric = true};
  EXPECT_EQ(qparams_of(spec, -2, 1).zero_point, 128);
  spec.quant_max = 127;
  EXPECT_EQ(qparams_of(spec, -2, 1).zero_point, 63);
}

TEST(QParams, ScalesHaveALeast) {
  EXPECT_EQ(qparams_of(QSpec(), 0, 0).scale, 0x1p-12);
  EXPECT_EQ(qparams_of(QSpec(), 0, 0).zero_point, 0);
}

TEST(Observer, MinMaxKeepsEachPart) {
  const std::unique_ptr<Observer> observer = make_observer(spec_of(ObserverKind::min_max), 2);
  observer->observe(std::vector<float>{1, 2, 3, 4, -1, 5, 0, 0}, 2);  // [2, 2 parts, 2]
  EXPECT_THAT(observer->range().low, ElementsAre(-1, 0));
  EXPECT_THAT(observer->range().high, ElementsAre(5, 4));
  observer->observe(std::vector<float>{9, 9, -9, -9}, 2);
  EXPECT_THAT(observer->range().low, ElementsAre(-1, -9));
  EXPECT_THAT(observer->range().high, ElementsAre(9, 4));
  EXPECT_EQ(observer->seen(), 12);
}

TEST(Observer, MovingAverageMovesByItsMomentum) {
  QSpec spec = spec_of(ObserverKind::moving_average);
  spec.momentum = 0.25;
  const std::unique_ptr<Observer> observer = make_observer(spec, 1);
  observer->observe(std::vector<float>{0, 4}, 1);
  observer->observe(std::vector<float>{-4, 8}, 1);
  EXPECT_THAT(observer->range().low, ElementsAre(-1));
  EXPECT_THAT(observer->range().high, ElementsAre(5));
}

TEST(Observer, InfiniteValuesAreLeftOutAndNaNIsAnError) {
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::histogram}) {
    const std::unique_ptr<Observer> observer = make_observer(spec_of(kind), 1);
    const float infinity = std::numeric_limits<float>::infinity();
    observer->observe(std::vector<float>{infinity, -infinity}, 1);
    EXPECT_EQ(observer->seen(), 0);
    observer->observe(std::vector<float>{1, infinity, -2}, 1);
    EXPECT_EQ(observer->seen(), 2);
    EXPECT_THROW(observer->observe(std::vector<float>{1, std::nanf("")}, 1), UserError);
    observer->observe({}, 1);
    EXPECT_EQ(observer->seen(), 2);
  }
}

TEST(Observer, ConstantValuesHaveARange) {
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::moving_average,
                                  ObserverKind::histogram, ObserverKind::percentile}) {
    const std::unique_ptr<Observer> observer = make_observer(spec_of(kind), 1);
    observer->observe(std::vector<float>(100, 3.0F), 1);
    EXPECT_THAT(observer->range().low, ElementsAre(3)) << name_of(kind);
    EXPECT_THAT(observer->range().high, ElementsAre(3)) << name_of(kind);
  }
}

TEST(Observer, PercentileLeavesTheEndsOut) {
  QSpec spec = spec_of(ObserverKind::percentile);
  spec.percentile = 99;
  const std::unique_ptr<Observer> observer = make_observer(spec, 1);
  std::vector<float> values;
  for (int i = 0; i <= 10000; ++i) values.push_back(static_cast<float>(i));
  observer->observe(values, 1);
  EXPECT_NEAR(observer->range().low[0], 100, 10);
  EXPECT_NEAR(observer->range().high[0], 9900, 10);
}

/// Mean square of what quantization moves values by.
double loss_of(const std::vector<float>& values, const Range& range) {
  const QSpec spec;
  const QParams params = qparams_of(spec, range.low[0], range.high[0]);
  double sum = 0;
  for (const float value : values) {
    const double q = std::clamp(
        std::nearbyint(value / params.scale) + static_cast<double>(params.zero_point), 0.0, 255.0);
    const double back = (q - static_cast<double>(params.zero_point)) * params.scale;
    sum += (value - back) * (value - back);
  }
  return sum / static_cast<double>(values.size());
}

TEST(Observer, AHistogramLosesLessThanTheEndsDo) {
  std::vector<float> values = normal(100000, 1);
  values.push_back(25);  // one outlier takes most of the steps
  const std::unique_ptr<Observer> ends = make_observer(spec_of(ObserverKind::min_max), 1);
  const std::unique_ptr<Observer> chosen = make_observer(spec_of(ObserverKind::histogram), 1);
  ends->observe(values, 1);
  chosen->observe(values, 1);
  EXPECT_LE(chosen->range().high[0], 25);
  EXPECT_LE(loss_of(values, chosen->range()), loss_of(values, ends->range()));
}

double total_of(const Histogram& histogram) { return histogram.count(); }

TEST(Histogram, WideningKeepsCountsAndSize) {
  Histogram histogram;
  double values = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    const std::vector<float> batch = normal(1000, i, std::pow(1.7F, static_cast<float>(i)));
    histogram.add(batch);
    values += 1000;
    EXPECT_EQ(histogram.counts().size(), static_cast<size_t>(Histogram::kBins));
    EXPECT_NEAR(total_of(histogram), values, 1e-6);
  }
}

TEST(Histogram, QuantilesSurviveWidening) {
  Histogram histogram;
  histogram.add(normal(200000, 3));
  const double before = histogram.quantile(0.9);
  histogram.add(std::vector<float>{-40, 40});
  EXPECT_NEAR(histogram.quantile(0.9), before, 80.0 / Histogram::kBins);
}

TEST(Histogram, MergingIsAboutWhatSeeingBothIs) {
  const std::vector<float> a = normal(50000, 5), b = normal(50000, 6, 3);
  Histogram both, one, other;
  both.add(a);
  both.add(b);
  one.add(a);
  other.add(b);
  one.merge(other);
  EXPECT_EQ(one.low(), both.low());
  EXPECT_EQ(one.high(), both.high());
  EXPECT_NEAR(total_of(one), total_of(both), 1e-6);
  const double width = (both.high() - both.low()) / Histogram::kBins;
  for (const double share : {0.01, 0.25, 0.5, 0.9, 0.999})
    EXPECT_NEAR(one.quantile(share), both.quantile(share), 2 * width) << share;
  Histogram empty;
  empty.merge(both);
  EXPECT_EQ(empty.quantile(0.3), both.quantile(0.3));
}

TEST(Observer, MergingMinMaxIsSeeingBoth) {
  const std::unique_ptr<Observer> one = make_observer(spec_of(ObserverKind::min_max), 2);
  const std::unique_ptr<Observer> other = make_observer(spec_of(ObserverKind::min_max), 2);
  one->merge(*other);
  EXPECT_EQ(one->seen(), 0);
  one->observe(std::vector<float>{1, 2}, 1);
  other->observe(std::vector<float>{-3, 7}, 1);
  one->merge(*other);
  EXPECT_THAT(one->range().low, ElementsAre(-3, 2));
  EXPECT_THAT(one->range().high, ElementsAre(1, 7));
  EXPECT_EQ(one->seen(), 4);
}

}  // namespace
}  // namespace tandem::quant
