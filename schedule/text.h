// The text form of kernel graphs. What prints parses back; README.md has the grammar.
#pragma once

#include <string>
#include <string_view>

#include "schedule/problem.h"

namespace tandem::schedule {

/// At any step: what is not there yet is not printed. Decisions and notes are not part of it.
std::string to_string(const KernelGraph& graph);

/// Reads what stands behind the tensor graph's text into a new kernel graph of that graph.
/// UserError with the line that is wrong, or where its item or group begins. What is read obeys
/// `verify` and has items such as its tensor graph has (check_items.h).
void parse_kernel_graph(KernelGraph& graph, std::string_view text);

/// UserError with each of them, and the line of the text where its item or group begins.
void throw_if_any(const Problems& problems, std::string_view text);

/// Violated invariants, empty where there are none: every value that is read has a place, each item
/// is in one group, groups need earlier ones only and obey check_groups.h, kernels obey
/// loop::verify.
Problems verify(const KernelGraph& graph);

}  // namespace tandem::schedule
