// The parts of a page about training steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "driver/step_memory.h"
#include "passes/partition/cut_table.h"

namespace tandem::driver::page {

std::string_view style();
/// What moves: the table under the pointer, and the search for a name.
std::string_view script();

/// What is saved and what is computed again, by bytes and by time.
std::string cut_tables(const passes::CutTable& table);

/// Memory over the step: as planned, as measured where it was, and if all were saved.
std::string memory_chart(const StepTimeline& step, const StepTimeline& saving_all);

/// Forward's nodes, the values that cross, backward's nodes that read them. Of many those that
/// matter most.
std::string cut_picture(const passes::CutTable& table);

}  // namespace tandem::driver::page
