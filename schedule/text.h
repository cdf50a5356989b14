// The text form of kernel graphs. What prints parses back; README.md has the grammar.
#pragma once

#include <string>
#include <string_view>

#include "schedule/kernel_graph.h"

namespace tandem::schedule {

/// At any step: what is not there yet is not printed. Decisions and notes are not part of it.
std::string to_string(const KernelGraph& graph);

/// Reads what stands behind the tensor graph's text into a new kernel graph of that graph.
/// UserError with the line that is wrong. What is read obeys `verify`.
void parse_kernel_graph(KernelGraph& graph, std::string_view text);

/// Violated invariants, empty where there are none: every value that is read has a place, each item
/// is in one group, groups need earlier ones only, kernels obey loop::verify.
std::vector<std::string> verify(const KernelGraph& graph);

}  // namespace tandem::schedule
