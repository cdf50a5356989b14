// A pass is a named function over one IR. The runner (driver/pass_runner.cc) checks facts, dumps
// and times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace tandem {

/// Bits of what holds of an IR; each room names its own and has one checking function for each.
using Facts = uint32_t;

/// What a pass may see beside the IR: problems of the user's, and notes for the report. A room's
/// own context may be more: what its passes are told.
struct PassCtx {
  Diagnostics diagnostics;
  /// What holds of the IR, as the passes run so far established it.
  Facts facts = 0;
  /// Pass applications so far, and whether TANDEM_STOP_AFTER or TANDEM_BISECT ended the run.
  int64_t applications = 0;
  bool stopped = false;
  /// Reasons for declined rewrites and other decisions, in order: "min_cut: saved %3 (f32[8, 8])".
  std::vector<std::string> notes;
};

template <class Ir, class Ctx = PassCtx>
struct Pass {
  std::string_view name;  // = file = function = golden folder = dump name
  void (*run)(Ir&, Ctx&) = nullptr;
  Facts needs = 0;
  Facts gives = 0;
  Facts breaks = 0;
};

}  // namespace tandem
