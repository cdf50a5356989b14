// Joint programs for the partition tests: written by hand, and made at random.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "runtime/executor.h"

namespace tandem::test {

/// Graphs in text form; every first input requires a gradient.
const std::vector<std::string_view>& hand_written();

/// Products, pointwise chains, views, casts, masks, dropout, reductions and writes over [4, 4]
/// tensors, with checkpoint policies if asked for. The same number gives the same program.
std::unique_ptr<ir::Module> random_program(uint32_t number, bool policies);

/// An argument that fits the input: values in [-1, 1), small indices, sizes by `symbol_size`,
/// seed 7.
runtime::Argument random_argument(const ir::Value& input, std::mt19937& random,
                                  int64_t symbol_size);

/// Largest difference, relative to the largest element; infinity where types differ.
double difference(const runtime::Array& a, const runtime::Array& b);

}  // namespace tandem::test
