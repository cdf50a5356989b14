// `tandem calibrate` and `tandem quantize`.
#pragma once

#include "driver/command/arguments.h"

namespace tandem::driver::command {

/// Runs a model of floats over batches and writes what it saw: the ranges.
int calibrate(Words args);
/// Writes a model that computes with integers, and its weights.
int quantize(Words args);

}  // namespace tandem::driver::command
