// What a page about a training step tells: the cut and the memory of it.
#pragma once

#include <string>

#include "driver/step_memory.h"
#include "passes/partition/cut_table.h"

namespace tandem::driver {

/// Of the partition, where options asked for a report: made when a function is compiled.
struct CutDecisions {
  std::string text;
  passes::CutTable table;
  std::string joint;  // the graph that was cut, as text
};

struct StepReport {
  CutDecisions decisions;
  StepTimeline step;
  std::optional<Target> target;  // as driver::Options
};

/// One HTML file that needs no other: the table of decisions, memory over time beside that of the
/// step which saves all, a picture of the cut. page/page.cc
std::string step_page(const std::vector<StepReport>& reports);

}  // namespace tandem::driver
