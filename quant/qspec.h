// How a tensor is quantized: dtype, range of the integers, symmetric or with a zero point, for the
// whole tensor or by channel or group, and how its range is found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace tandem::quant {

/// What has a scale of its own: the tensor, each channel of an axis, or each group of neighbours in
/// a row of a matrix.
enum class Per : uint8_t { tensor, channel, group };
/// How a range follows from the values that were seen (observer.h).
enum class ObserverKind : uint8_t { min_max, moving_average, histogram, percentile };

std::string_view name_of(Per per);
std::string_view name_of(ObserverKind kind);

struct QSpec {
  DType dtype = DType::u8;
  int64_t quant_min = 0;
  int64_t quant_max = 255;
  bool symmetric = false;  // zero point 0, or the middle of an unsigned range
  Per per = Per::tensor;
  int64_t axis = 0;          // of channels
  int64_t group_size = 0;    // of groups
  bool dynamic = false;      // range taken at each call, from the values themselves
  bool constant = false;     // of values that are known before the first call: weights
  double epsilon = 0x1p-12;  // least scale
  ObserverKind observer = ObserverKind::min_max;
  double percentile = 99.99;  // of percentile: this share of the values is inside of the range
  double momentum = 0.01;     // of moving_average: weight of a new batch
  bool operator==(const QSpec&) const = default;
};

/// Scale and zero point: q = clamp(round(x / scale) + zero_point).
struct QParams {
  double scale = 1;
  int64_t zero_point = 0;
};

/// Of values in [low, high]. The range is widened to contain 0, which is then a quantized value:
/// padding and what relu cuts off stay exact.
///   symmetric  scale = max(-low, high) / ((quant_max - quant_min) / 2)
///   else       scale = (high - low) / (quant_max - quant_min)
///              zero_point = clamp(quant_min - round(low / scale))
QParams qparams_of(const QSpec& spec, double low, double high);

}  // namespace tandem::quant
