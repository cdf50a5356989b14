// What a room says about its decisions, when TANDEM_LOG asks for it.
#pragma once

#include <string_view>

namespace tandem {

/// Levels: 1 decisions, 2 reasons for what was declined, 3 details. Cheap: no text need be made
/// when false. A malformed TANDEM_LOG throws UserError at the first question.
bool log_enabled(std::string_view room, int level);

/// One line (or block) to stderr, each line prefixed `[room] `. Nothing is written unless
/// log_enabled. Lines of several threads do not mix.
void log(std::string_view room, int level, std::string_view text);

}  // namespace tandem
