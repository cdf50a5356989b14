// Words of the command line, for the sub-commands of `tandem`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/target.h"
#include "ir/graph.h"

namespace tandem::driver::command {

using Words = std::vector<std::string>;

/// The word behind an option, `what`, which are taken out; empty where the option is not there.
std::string taken_word(Words& args, std::string_view option, std::string_view what);
/// Of an option that may be there several times.
std::vector<std::string> taken_words(Words& args, std::string_view option, std::string_view what);
/// The word behind an option, or `otherwise`.
std::string word_or(Words& args, std::string_view option, std::string_view otherwise);
/// The same of a number of at least 1.
int count_or(Words& args, const std::string& option, int otherwise);
/// Whether the option is there; it is taken out.
bool taken(Words& args, std::string_view option);
/// The number after an option.
int count_of(const std::string& option, const std::string& text);
/// Of `--target`.
std::optional<Target> taken_target(Words& args);
/// The parts between commas.
std::vector<std::string> parts_of(const std::string& list);
/// The one word that is left, a path; UserError where there is none, another, or an option.
std::string only_path(const Words& args, std::string_view what);
/// The same, or "-", standard input, where no word is left.
std::string path_or_input(const Words& args);

/// Those of the text: passes may add others.
std::vector<ir::Graph*> graphs_of(const ir::Module& module);
/// Without those that others run as bodies.
std::vector<ir::Graph*> programs_of(const ir::Module& module);

}  // namespace tandem::driver::command
