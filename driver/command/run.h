// `tandem run`.
#pragma once

#include "driver/command/arguments.h"

namespace tandem::driver::command {

/// Compiles and runs the graphs of a text, on weights and data of files, or generated ones.
int run(Words args);

}  // namespace tandem::driver::command
