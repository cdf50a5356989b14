// Dropouts besides the plain one: whole channels at a time, and the kind that keeps mean and
// variance of what SELU gives. In training they are products and sums with a random mask, so their
// gradients are those of the parts.
#include <cmath>

#include "ops/elements.h"
#include "ops/families.h"

namespace tandem::ops {
namespace {

double probability(const Call& c) {
  double p = c.floating("p");
  if (!(p >= 0 && p <= 1)) c.fail("p must be in [0, 1], not " + ir::to_string(p));
  return p;
}
bool draws(const Call& c) { return c.boolean("train") && c.floating("p") != 0; }

template <bool features>
Types dropout_types(const Call& c) {
  double p = probability(c);
  if (draws(c) && features && c.type("input").rank() < 2)
    c.fail(c.describe("input") + " must have at least 2 dimensions");
  if (draws(c) && p < 1) need_float(c, "input");
  return {ir::Type::tensor(c.type("input").dtype, c.type("input").sizes)};
}
/// 1 where an element, or a channel, is kept, of input's dtype.
Tensor kept(Tensor x, bool features, double p) {
  Sizes sizes = x.sizes();
  for (size_t i = 2; features && i < sizes.size(); ++i) sizes[i] = 1;
  Tensor drawn = call(x.builder(), "tandem.random_uniform", {sizes});
  return to(compare("ge", drawn, p), x.dtype());
}

/// Where SELU saturates, negated.
constexpr double kAlpha = 1.7580993408473766;

// x kept / (1 - p)
Tensor plain(Tensor x, Tensor kept, double p) { return x * (kept * (1 / (1 - p))); }
// What is dropped becomes -alpha; a and the offset bring mean and variance back.
Tensor saturating(Tensor x, Tensor kept, double p) {
  double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  Tensor offset = (kept - 1) * (kAlpha * a) + kAlpha * a * p;
  return x * (kept * a) + offset;
}
template <bool features, Tensor (*mix)(Tensor, Tensor, double)>
Tensors dropped(Builder& b, const Call& c) {
  Tensor x{b, c.value("input")};
  double p = c.floating("p");
  if (!draws(c)) return {x};
  if (p == 1) return {call(b, "aten.mul.Scalar", {x, 0})};
  return {mix(x, kept(x, features, p), p)};
}

#define TANDEM_DROPOUT(Name, text, features, mix)                                     \
  const OpDef Name {                                                                  \
    .schema = "aten::" text "(Tensor input, float p, bool train) -> Tensor",          \
    .types = dropout_types<features>, .decompose = dropped<features, mix>,            \
    .samples = {"$[3, 4], 0.5, false", "$[3, 4], 0.0, true", "$[3, 4, 2], 0.5, true", \
                "$[3, 4], 1.0, true",  "$[3], 0.5, false",   "$[3, 4], 1.5, true",    \
                "$[0, 3], 0.5, true"},                                                \
    .inplace = true                                                                   \
  }
TANDEM_DROPOUT(kFeatureDropout, "feature_dropout", true, plain);
TANDEM_DROPOUT(kAlphaDropout, "alpha_dropout", false, saturating);
TANDEM_DROPOUT(kFeatureAlphaDropout, "feature_alpha_dropout", true, saturating);
#undef TANDEM_DROPOUT

const OpDef* const kOps[] = {&kFeatureDropout, &kAlphaDropout, &kFeatureAlphaDropout};

}  // namespace

Family dropout_family() { return kOps; }

}  // namespace tandem::ops
