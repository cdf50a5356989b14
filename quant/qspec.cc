// Ranges become scales and zero points as PyTorch's observers make them.
#include "quant/qspec.h"

#include <algorithm>
#include <cmath>

namespace tandem::quant {

std::string_view name_of(Per per) {
  switch (per) {
    case Per::tensor: return "tensor";
    case Per::channel: return "channel";
    case Per::group: return "group";
  }
  return "";
}

std::string_view name_of(ObserverKind kind) {
  switch (kind) {
    case ObserverKind::min_max: return "min_max";
    case ObserverKind::moving_average: return "moving_average";
    case ObserverKind::histogram: return "histogram";
    case ObserverKind::percentile: return "percentile";
  }
  return "";
}

namespace {

/// 0 where integers are signed; the middle of the range else, of whole bytes the upper one.
int64_t symmetric_zero_point(const QSpec& spec) {
  if (spec.quant_min < 0) return 0;
  const bool is_byte = spec.quant_min == 0 && spec.quant_max == 255;
  return is_byte ? 128 : (spec.quant_min + spec.quant_max) / 2;
}

}  // namespace

QParams qparams_of(const QSpec& spec, double low, double high) {
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  const double steps = static_cast<double>(spec.quant_max - spec.quant_min);
  if (spec.symmetric) {
    const double scale = std::max(std::max(-low, high) / (steps / 2), spec.epsilon);
    return {scale, symmetric_zero_point(spec)};
  }
  const double scale = std::max((high - low) / steps, spec.epsilon);
  const int64_t zero_point = spec.quant_min - static_cast<int64_t>(std::nearbyint(low / scale));
  return {scale, std::clamp(zero_point, spec.quant_min, spec.quant_max)};
}

}  // namespace tandem::quant
