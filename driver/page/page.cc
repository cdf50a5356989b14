// Problem: who asks where memory goes wants to look, send the answer on, and open it next year.
// Approach: one file of markup, style, script and data; no part of it is fetched.
#include <fmt/format.h>

#include "driver/page/markup.h"
#include "driver/page/parts.h"
#include "driver/step_report.h"

namespace tandem::driver {
namespace {

std::string section_of(const StepReport& report) {
  Options options;
  options.target = report.target;
  const passes::CutTable& table = report.decisions.table;
  StepTimeline saving_all;
  if (report.step.is_known()) saving_all = timeline_saving_all(report.decisions.joint, options);
  return fmt::format("<section><h2>@{}</h2>\n<h3>Memory over the step</h3>\n{}",
                     page::escaped(table.graph), page::memory_chart(report.step, saving_all)) +
         "<h3>What crosses from forward to backward</h3>\n"
         "<p><input class=\"find\" placeholder=\"a name or an operator\"></p>\n" +
         page::cut_tables(table) + "<h3>The cut</h3>\n" + page::cut_picture(table) + "</section>\n";
}

}  // namespace

std::string step_page(const std::vector<StepReport>& reports) {
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Training "
      "step</title>\n<style>{}</style></head><body>\n<h1>Training step</h1>\n",
      page::style());
  if (reports.empty())
    text += "<p>No graph with a backward was compiled with the option report.</p>\n";
  for (const StepReport& report : reports) text += section_of(report);
  return text + fmt::format("<script>{}</script></body></html>\n", page::script());
}

}  // namespace tandem::driver
