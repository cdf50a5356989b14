// Resampling one dimension, and its transpose: what upsampling ops of any number of dimensions are
// made of.
#pragma once

#include "ops/families.h"

namespace tandem::ops::resample {

/// `aa_` modes widen their filter when they shrink.
enum class Mode : uint8_t { nearest, exact, linear, cubic, aa_linear, aa_cubic };

struct Step {
  Mode mode = Mode::nearest;
  bool align = false;  // the outermost positions of both sides meet
  double factor = 0;   // outputs an input as the caller gave it; 0: the sizes say it
};

/// Dimension `dim` of `x` resampled to `out` positions.
Tensor forward(Tensor x, int64_t dim, const Step& step, Expr out);
/// The transpose: a gradient brought back to `in` positions.
Tensor backward(Tensor grad, int64_t dim, const Step& step, Expr in);

}  // namespace tandem::ops::resample
