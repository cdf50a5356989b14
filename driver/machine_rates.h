// What this machine's memory, lanes and team do in a microsecond.
#pragma once

#include "base/target.h"

namespace tandem::driver {

/// The target's rates with bandwidths, lanes and launches as measured here, by small programs that
/// are compiled for it: in the folder of the cache once a machine, and without one once a process.
/// Takes a fifth of a second; other work on the machine makes it look slower. UserError where the
/// target is not this machine.
Tuning::Rates machine_rates(const Target& target);

/// For notes: "memory 15000, l3 30000, l2 80000 bytes/us, 10000 flops/us a lane, launch 2500 ns".
std::string to_string(const Tuning::Rates& rates);

}  // namespace tandem::driver
