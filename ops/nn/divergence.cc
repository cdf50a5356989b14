// Losses of distributions against distributions: divergences, by decomposition, computed in f32 and
// rounded once.
#include <numbers>

#include "ops/nn/loss.h"

namespace tandem::ops {

using namespace loss;  // NOLINT(google-build-using-namespace): what the losses' files share

namespace {

/// x log x, which is 0 at 0.
Tensor x_log_x(Tensor x) {
  Tensor zero = compare("eq", x, 0);
  return where(zero, 0.0, x * log(where(zero, 1.0, x)));
}
// target (log target - self), where target may be given as its logarithm
const OpDef kKlDiv{
    .schema =
        "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) "
        "-> Tensor",
    .types =
        [](const Call& c) {
          need_float(c, "self");
          need_float(c, "target");
          return broadcast_types(c, {"self", "target"});
        },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "self");
      Tensor y = wide(b, c, "target");
      if (c.boolean("log_target")) return {reduced(c, exp(y) * (y - x))};
      return {reduced(c, x_log_x(y) - y * x)};
    },
    .samples = {"$[3, 4], $[3, 4]:unit", "$[3, 4], $[3, 4], 0, log_target=true",
                "$[3, 4], $[4]:unit, 2", "$[0, 4], $[0, 4], 2", "$[], $[]:unit", "$[8], bool[8]"}};

// exp(x) - y x, or x - y log(x + eps); `full` adds Stirling's approximation of log y! where y > 1
const OpDef kPoisson{
    .schema =
        "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, "
        "float eps, int reduction) -> Tensor",
    .types = [](const Call& c) { return broadcast_types(c, {"input", "target"}); },
    .decompose = [](Builder& b, const Call& c) -> Tensors {
      Tensor x = wide(b, c, "input");
      Tensor y = wide(b, c, "target");
      Tensor loss = c.boolean("log_input") ? exp(x) - y * x : x - y * log(x + c.floating("eps"));
      if (c.boolean("full")) {
        Tensor small = compare("le", y, 1);
        Tensor safe = where(small, 2.0, y);
        Tensor stirling = safe * log(safe) - safe + log(safe * (2 * std::numbers::pi)) * 0.5;
        loss = loss + where(small, 0.0, stirling);
      }
      return {reduced(c, loss)};
    },
    .samples = {"$[3, 4], $[3, 4]:positive, true, false, 1e-8, 1",
                "$[3, 4]:positive, $[3, 4]:positive, false, true, 1e-8, 0",
                "$[3, 4], $[3, 4]:positive, true, true, 1e-8, 2",
                "i64[3, 4]:positive, i64[3, 4]:positive, true, false, 1e-8, 1"}};

const OpDef* const kOps[] = {&kKlDiv, &kPoisson};

}  // namespace

Family divergence_family() { return kOps; }

}  // namespace tandem::ops
