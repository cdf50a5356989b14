// Every environment variable of Tandem, in one table. Nothing else in the repository calls getenv
// for one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Flag : uint8_t {
  dump,
  log,
  verify,
  cache_dir,
  stop_after,
  disable,
  bisect,
  time,
  threads,
  isa,
  bless,
  fusion,
  library,
  opt,
  openmp
};
inline constexpr int kFlagCount = 15;

struct FlagInfo {
  std::string_view name;     // TANDEM_DUMP
  std::string_view grammar;  // what a value looks like, as errors and help print it
  std::string_view help;     // one line
  bool changes_code;         // the value is part of every compile cache key
};

const FlagInfo& info_of(Flag flag);
/// The table, as `tandem help flags` prints it.
std::string flags_help();
/// `name=value` lines of the set flags that change generated code, in table order: part of the
/// cache key.
std::string flags_cache_key();
/// Reads every set flag once, so that a malformed value is reported at the start, all of them
/// together.
void check_flags();

/// TANDEM_DUMP: `changed`, `after:<pass>`, `before:schedule`, `all:<dir>`, `pareto` or `joint`.
struct DumpFlag {
  enum class When : uint8_t { never, changed, after, before, all, pareto, joint };
  When when = When::never;
  std::string argument;  // the pass of `after` and `before`, the folder of `all`
};

/// One entry of TANDEM_LOG.
struct LogLevel {
  std::string room;  // "all" stands for every room
  int level = 0;
};

// Typed values. Each is read from the environment at the call; a malformed one throws UserError.
DumpFlag flag_dump();
std::vector<LogLevel> flag_log();
bool flag_verify();  // default: false
std::string
flag_cache_dir();  // default: $XDG_CACHE_HOME/tandem, then $HOME/.cache/tandem; "" = no cache
std::string flag_stop_after();               // pass name; "" = run all
std::vector<std::string> flag_disable();     // pass names
std::optional<int64_t> flag_bisect();        // run the first N pass applications only
std::optional<int64_t> flag_bisect_steps();  // of schedule's optional steps: the same
bool flag_time();
int flag_threads();                     // 0 = as many as OpenMP gives
std::optional<std::string> flag_isa();  // avx2 | avx512; unset = what the machine has
bool flag_bless();
bool flag_fusion();   // default: true
bool flag_library();  // default: true
bool flag_openmp();   // default: true
int flag_opt();       // 0..3, default 2

/// Sets a flag for the life of the object, for tests: wins over the environment; nullopt means
/// unset. Overrides nest; they are process-wide, so a test that compiles on several threads sets
/// them before.
class FlagOverride {
 public:
  FlagOverride(Flag flag, std::optional<std::string> value);
  FlagOverride(const FlagOverride&) = delete;
  FlagOverride& operator=(const FlagOverride&) = delete;
  ~FlagOverride();

 private:
  Flag flag_;
  bool had_override_;
  std::optional<std::string> previous_;
};

/// A number that grows with every FlagOverride made or ended: what is derived from flags is valid
/// for one epoch.
uint64_t flags_epoch();

namespace internal {
/// The TANDEM_* names among `environment` ("NAME=value") that no flag has: typing errors, mostly.
std::vector<std::string> unknown_flags(std::span<const std::string> environment);
}  // namespace internal

}  // namespace tandem
