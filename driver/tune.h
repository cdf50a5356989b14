// Mappings chosen by time on this machine.
#pragma once

#include "driver/compiler.h"

namespace tandem::driver {

/// Compiles the candidates and runs each on one thread, on made-up data; takes the fastest where it
/// is clearly so. What was chosen is kept in the folder of the cache, by machine and kernels, and
/// used without timing from then on. What is too large to time keeps the model's choice. UserError
/// where the target is not this machine.
schedule::Chooser tuner(const Target& target);

}  // namespace tandem::driver
