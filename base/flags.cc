// Environment variables are an interface: each has a grammar, one help line, and an answer to the
// question whether it changes generated code. All three stand in one table, so help, error texts
// and the cache key cannot drift apart. Values are parsed at each use: a compile reads a handful,
// and tests can override them without a cache to clear.
#include "base/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

#include "base/diagnostic.h"

namespace tandem {
namespace {

constexpr std::array<FlagInfo, kFlagCount> kFlags = {{
    {"TANDEM_DUMP", "changed | after:<pass> | before:schedule | all:<dir> | pareto | joint",
     "print the program after passes that changed it, after one, or every stage into numbered "
     "files; pareto: bytes saved against time computed again, of partitions; joint: forward beside "
     "backward, what is saved marked",
     false},
    {"TANDEM_LOG", "<room>:<level>[,...]; room or `all`, level 0..9",
     "say what a room does and why: decisions (1), reasons for what was declined (2), details (3)",
     false},
    {"TANDEM_VERIFY", "0 | 1", "check every invariant of the program after every pass", false},
    {"TANDEM_CACHE_DIR", "<dir>, or empty for no cache",
     "where compiled kernels are kept between processes", false},
    {"TANDEM_STOP_AFTER", "<pass>", "end the pipeline after this pass and print the program", true},
    {"TANDEM_DISABLE", "<pass>[,<pass>...]", "leave out passes that are not needed for correctness",
     true},
    {"TANDEM_BISECT", "<N> | schedule:<N>, 0 or more",
     "apply only the first N passes, or of schedule's steps the first N optional ones, to find a "
     "bad one",
     true},
    {"TANDEM_TIME", "0 | 1", "print what each pass and each kernel's compilation took", false},
    {"TANDEM_THREADS", "<N>, 1 to 1024",
     "threads that run a program (default: as many as OpenMP gives)", false},
    {"TANDEM_ISA", "avx2 | avx512",
     "the instruction set of generated code, and of the library if set before its first call "
     "(default: "
     "this machine's)",
     true},
    {"TANDEM_BLESS", "0 | 1", "golden tests rewrite their expectation", false},
    {"TANDEM_FUSION", "0 | 1", "0: one kernel per op, to tell a fusion bug from others", true},
    {"TANDEM_LIBRARY", "0 | 1", "0: no library calls, every op from its definition", true},
    {"TANDEM_OPT", "0 | 1 | 2 | 3", "optimisation level of the code generator (default: 2)", true},
    {"TANDEM_OPENMP", "0 | 1", "0: threads that OpenMP keeps are left spinning beside a call",
     false},
}};

struct Override {
  bool active = false;
  std::optional<std::string> value;
};

struct State {
  std::mutex mutex;
  std::array<Override, kFlagCount> overrides;
  std::atomic<uint64_t> epoch{0};
};

State& state() {
  static State the_state;
  return the_state;
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

std::string known_names() {
  std::string names;
  for (const FlagInfo& flag : kFlags) names += (names.empty() ? "" : ", ") + std::string(flag.name);
  return names;
}

void warn_of_unknown() {
  const std::vector<std::string> unknown = internal::unknown_flags(whole_environment());
  if (unknown.empty()) return;
  std::string names;
  for (const std::string& name : unknown) names += (names.empty() ? "" : ", ") + name;
  fmt::print(stderr, "tandem: warning: unknown {} (known: {})\n", names, known_names());
}

/// The text of a flag, nullopt when unset.
std::optional<std::string> text_of(Flag flag) {
  static std::once_flag warned;
  std::call_once(warned, warn_of_unknown);
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    const Override& over = s.overrides[static_cast<size_t>(flag)];
    if (over.active) return over.value;
  }
  const char* text = std::getenv(std::string(info_of(flag).name).c_str());
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

[[noreturn]] void reject(Flag flag, std::string_view value) {
  throw UserError(fmt::format("[{}] value \"{}\": expected {}", info_of(flag).name, value,
                              info_of(flag).grammar));
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value < low || value > high ? std::nullopt : std::optional<int64_t>(value);
}

std::optional<int64_t> integer_of(Flag flag, int64_t low, int64_t high) {
  const std::optional<std::string> text = text_of(flag);
  if (!text) return std::nullopt;
  const std::optional<int64_t> value = parse_integer(*text, low, high);
  if (!value) reject(flag, *text);
  return value;
}

constexpr std::string_view kOfSteps = "schedule:";

/// The number of TANDEM_BISECT where it is for those, or for passes; nothing where it is not.
std::optional<int64_t> bisect_of(bool steps) {
  const std::optional<std::string> text = text_of(Flag::bisect);
  if (!text || text->starts_with(kOfSteps) != steps) return std::nullopt;
  const std::string_view digits = std::string_view(*text).substr(steps ? kOfSteps.size() : 0);
  const std::optional<int64_t> number =
      parse_integer(digits, 0, std::numeric_limits<int64_t>::max());
  if (!number) reject(Flag::bisect, *text);
  return number;
}

bool bool_of(Flag flag, bool fallback) {
  const std::optional<int64_t> value = integer_of(flag, 0, 1);
  return value ? *value == 1 : fallback;
}

/// Parts of a comma list; an empty part is the user's mistake, an empty text is an empty list.
std::vector<std::string> list_of(Flag flag) {
  const std::string text = text_of(flag).value_or("");
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (parts.back().empty()) reject(flag, text);
  }
  return parts;
}

LogLevel parse_log_level(const std::string& part) {
  const size_t colon = part.find(':');
  if (colon == std::string::npos || colon == 0) reject(Flag::log, part);
  const std::optional<int64_t> level =
      parse_integer(std::string_view(part).substr(colon + 1), 0, 9);
  if (!level) reject(Flag::log, part);
  return {part.substr(0, colon), static_cast<int>(*level)};
}

/// Runs every getter; the order is the table's.
void read_flag(Flag flag) {
  switch (flag) {
    case Flag::dump: flag_dump(); return;
    case Flag::log: flag_log(); return;
    case Flag::verify: flag_verify(); return;
    case Flag::cache_dir: flag_cache_dir(); return;
    case Flag::stop_after: flag_stop_after(); return;
    case Flag::disable: flag_disable(); return;
    case Flag::bisect:
      flag_bisect();
      flag_bisect_steps();
      return;
    case Flag::time: flag_time(); return;
    case Flag::threads: flag_threads(); return;
    case Flag::isa: flag_isa(); return;
    case Flag::bless: flag_bless(); return;
    case Flag::fusion: flag_fusion(); return;
    case Flag::library: flag_library(); return;
    case Flag::opt: flag_opt(); return;
    case Flag::openmp: flag_openmp(); return;
  }
}

}  // namespace

namespace internal {

std::vector<std::string> unknown_flags(std::span<const std::string> environment) {
  std::vector<std::string> unknown;
  for (const std::string& variable : environment) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    if (!name.starts_with("TANDEM_") || name == "TANDEM_VENV")
      continue;  // that one is the scripts' own
    bool known = false;
    for (const FlagInfo& flag : kFlags) known = known || flag.name == name;
    if (!known) unknown.emplace_back(name);
  }
  return unknown;
}

}  // namespace internal

const FlagInfo& info_of(Flag flag) { return kFlags[static_cast<size_t>(flag)]; }

std::string flags_help() {
  std::string text =
      "Environment variables (* changes generated code, and is part of the cache key):\n";
  for (const FlagInfo& flag : kFlags)
    text += fmt::format("{} {:<18} {}\n{:21}{}\n", flag.changes_code ? '*' : ' ', flag.name,
                        flag.grammar, "", flag.help);
  return text;
}

std::string flags_cache_key() {
  std::string key;
  for (int i = 0; i < kFlagCount; ++i) {
    const std::optional<std::string> text = text_of(static_cast<Flag>(i));
    if (kFlags[static_cast<size_t>(i)].changes_code && text)
      key += fmt::format("{}={}\n", kFlags[static_cast<size_t>(i)].name, *text);
  }
  return key;
}

void check_flags() {
  Diagnostics problems;
  for (int i = 0; i < kFlagCount; ++i) {
    try {
      read_flag(static_cast<Flag>(i));
    } catch (const UserError& error) {
      problems.add(error);
    }
  }
  problems.finish();
}

DumpFlag flag_dump() {
  const std::optional<std::string> text = text_of(Flag::dump);
  if (!text || text->empty()) return {};
  if (*text == "pareto") return {DumpFlag::When::pareto, ""};
  if (*text == "joint") return {DumpFlag::When::joint, ""};
  if (*text == "changed") return {DumpFlag::When::changed, ""};
  if (text->starts_with("after:") && text->size() > 6)
    return {DumpFlag::When::after, text->substr(6)};
  if (*text == "before:schedule") return {DumpFlag::When::before, "schedule"};
  if (text->starts_with("all:") && text->size() > 4) return {DumpFlag::When::all, text->substr(4)};
  reject(Flag::dump, *text);
}

std::vector<LogLevel> flag_log() {
  std::vector<LogLevel> levels;
  for (const std::string& part : list_of(Flag::log)) levels.push_back(parse_log_level(part));
  return levels;
}

std::string flag_cache_dir() {
  if (std::optional<std::string> text = text_of(Flag::cache_dir)) return *std::move(text);
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && *xdg != '\0') return std::string(xdg) + "/tandem";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + "/.cache/tandem";
}

std::optional<std::string> flag_isa() {
  std::optional<std::string> text = text_of(Flag::isa);
  if (text && *text != "avx2" && *text != "avx512") reject(Flag::isa, *text);
  return text;
}

bool flag_verify() { return bool_of(Flag::verify, false); }
std::string flag_stop_after() { return text_of(Flag::stop_after).value_or(""); }
std::vector<std::string> flag_disable() { return list_of(Flag::disable); }
std::optional<int64_t> flag_bisect() { return bisect_of(false); }
std::optional<int64_t> flag_bisect_steps() { return bisect_of(true); }
bool flag_time() { return bool_of(Flag::time, false); }
int flag_threads() { return static_cast<int>(integer_of(Flag::threads, 1, 1024).value_or(0)); }
bool flag_bless() { return bool_of(Flag::bless, false); }
bool flag_fusion() { return bool_of(Flag::fusion, true); }
bool flag_library() { return bool_of(Flag::library, true); }
bool flag_openmp() { return bool_of(Flag::openmp, true); }
int flag_opt() { return static_cast<int>(integer_of(Flag::opt, 0, 3).value_or(2)); }

FlagOverride::FlagOverride(Flag flag, std::optional<std::string> value) : flag_(flag) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  Override& over = s.overrides[static_cast<size_t>(flag)];
  had_override_ = std::exchange(over.active, true);
  previous_ = std::exchange(over.value, std::move(value));
  ++s.epoch;
}

FlagOverride::~FlagOverride() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.overrides[static_cast<size_t>(flag_)] = {had_override_, std::move(previous_)};
  ++s.epoch;
}

uint64_t flags_epoch() { return state().epoch.load(); }

}  // namespace tandem
