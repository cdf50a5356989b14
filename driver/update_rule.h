// An optimizer as the rule that passes::updates asks for.
#pragma once

#include "driver/state.h"
#include "nn/optimizer.h"
#include "passes/passes.h"

namespace tandem::driver {

/// Clips gradients and updates parameters. What the optimizer keeps for a parameter is an input
/// that the program overwrites, "<parameter>:exp_avg", with zeros in `state` where it has none yet;
/// the learning rate is an input of that name. The rule reads both arguments when it is called.
passes::UpdateRule update_rule(State& state, const nn::Optimizer& optimizer);

}  // namespace tandem::driver
