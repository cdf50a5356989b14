// golden_runner [--only-run] PATH...: checks every .tir file at or below the paths, in name order.
// With --only-run the files may say anything: in which order arguments of a function are computed
// is the compiler's to choose, and with it the order of nodes and buffers. The texts are GCC's.
// TANDEM_BLESS=1 writes what the compiler gives now into the files instead. Exit code 0: all agree;
// 1: some differ; 2: nothing to check.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "test/golden/case.h"
#include "test/golden/diff.h"

namespace tandem::golden {
namespace {

namespace fs = std::filesystem;
enum class Verdict : uint8_t { agrees, blessed, differs };

std::string g_current;  // the file being checked, for a check that aborts

void name_current(int) {
  std::fprintf(stderr, "golden_runner: stopped in %s\n", g_current.c_str());
  std::signal(SIGABRT, SIG_DFL);
}

std::vector<std::string> files_at(const fs::path& path) {
  std::vector<std::string> files;
  if (fs::is_regular_file(path)) files.push_back(path.string());
  if (!fs::is_directory(path)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path))
    if (entry.path().extension() == ".tir") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool is_blessing() {
  const char* bless = std::getenv("TANDEM_BLESS");
  return bless != nullptr && std::string_view(bless) == "1";
}

Verdict check(const std::string& path, const std::string& program, bool only_runs) {
  std::string text = read(path);
  std::string wanted;
  try {
    wanted = expected_text(text);
  } catch (const UserError& error) {
    fmt::print("{}: {}\n", path, error.what());
    return Verdict::differs;
  }
  if (wanted == text || only_runs) return Verdict::agrees;
  fmt::print("{}", unified_diff(text, wanted, path, "what the compiler gives"));
  if (is_blessing()) {
    std::ofstream(path, std::ios::binary) << wanted;
    return Verdict::blessed;
  }
  fmt::print("; TANDEM_BLESS=1 {} {}   rewrites the expectation, if the new one is right\n\n",
             program, path);
  return Verdict::differs;
}

int run(const std::string& program, std::span<const std::string> paths) {
  const bool only_runs = !paths.empty() && paths[0] == "--only-run";
  int counts[3] = {};
  for (const std::string& path : paths.subspan(only_runs ? 1 : 0))
    for (const std::string& file : files_at(path)) {
      g_current = file;
      ++counts[static_cast<int>(check(file, program, only_runs))];
    }
  fmt::print("golden: {} {}, {} blessed, {} differ\n", counts[0], only_runs ? "ran" : "agree",
             counts[1], counts[2]);
  if (counts[0] + counts[1] + counts[2] == 0) return 2;
  return counts[2] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem::golden

int main(int argc, char** argv) {
  std::signal(SIGABRT, tandem::golden::name_current);
  try {
    const tandem::FlagOverride verify(tandem::Flag::verify, "1");  // each kernel, at each step
    return tandem::golden::run(argv[0], std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_runner: in %s: %s\n", tandem::golden::g_current.c_str(),
                 error.what());
    return 1;
  }
}
