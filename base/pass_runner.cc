// Times to standard error, what a pass left to standard error or to numbered files.
#include "base/pass_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/flags.h"
#include "base/log.h"

namespace tandem {
namespace {

void dump(const PassRun& run, const std::function<std::string()>& text) {
  static std::atomic<int> number = 0;  // of files of this process
  const DumpFlag flag = flag_dump();
  const bool wanted = (flag.when == DumpFlag::When::changed && run.changed) ||
                      (flag.when == DumpFlag::When::after && flag.argument == run.name);
  if (wanted)
    std::fprintf(stderr, "; after %s\n%s\n", std::string(run.name).c_str(), text().c_str());
  if (flag.when != DumpFlag::When::all) return;
  std::ofstream file(fmt::format("{}/{:03}_{}.tir", flag.argument, number++, run.name));
  file << text();
}

}  // namespace

bool is_pass_disabled(std::string_view name) {
  const std::vector<std::string> disabled = flag_disable();
  return std::find(disabled.begin(), disabled.end(), name) != disabled.end();
}

void report_pass(const PassRun& run, const std::function<std::string()>& text) {
  if (flag_time())
    std::fprintf(stderr, "%-22s %8.3f ms\n", std::string(run.name).c_str(), run.milliseconds);
  log(run.room, 1, fmt::format("{}: {:.3f} ms", run.name, run.milliseconds));
  dump(run, text);
}

}  // namespace tandem
