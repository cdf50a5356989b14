// Times to standard error, what a pass left to standard error or to numbered files.
#include "base/pass_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/flags.h"
#include "base/log.h"

namespace tandem {
namespace {

/// Behind the number of a file that a pass left in the folder; 0 for other files.
int number_behind(const std::string& name) {
  int number = 0;
  const std::from_chars_result read =
      std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_ours = read.ec == std::errc() && *read.ptr == '_' && number < INT_MAX;
  return is_ours ? number + 1 : 0;
}

/// Numbers go on from what the folder holds, so that nothing counts passes but the folder, and no
/// compile writes over another one's files, of this process or not. Null where none can be made.
std::FILE* new_file(const std::string& folder, std::string_view pass) {
  int number = 0;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    number = std::max(number, number_behind(at->path().filename().string()));
  for (;; ++number) {  // "x": another thread may take the name first
    std::FILE* file =
        std::fopen(fmt::format("{}/{:03}_{}.tir", folder, number, pass).c_str(), "wx");
    if (file != nullptr || errno != EEXIST) return file;
  }
}

void dump(const PassRun& run, const std::function<std::string()>& text) {
  const DumpFlag flag = flag_dump();
  const bool wanted = (flag.when == DumpFlag::When::changed && run.changed) ||
                      (flag.when == DumpFlag::When::after && flag.argument == run.name);
  if (wanted)
    std::fprintf(stderr, "; after %s\n%s\n", std::string(run.name).c_str(), text().c_str());
  if (flag.when != DumpFlag::When::all) return;
  if (std::FILE* file = new_file(flag.argument, run.name)) {
    std::fputs(text().c_str(), file);
    std::fclose(file);
  }
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
