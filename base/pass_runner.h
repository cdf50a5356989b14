// What every runner of passes does around one: driver's for tensor graphs, schedule's for kernel
// graphs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tandem {

/// TANDEM_DISABLE names it.
bool is_pass_disabled(std::string_view name);

/// A pass that has run.
struct PassRun {
  std::string_view room;  // for TANDEM_LOG
  std::string_view name;
  double milliseconds = 0;
  bool changed = true;
};
/// TANDEM_TIME, TANDEM_LOG and TANDEM_DUMP; `text` is what it left, asked for only where it is
/// shown.
void report_pass(const PassRun& run, const std::function<std::string()>& text);

}  // namespace tandem
