// Problems are collected per stage and thrown together, so that a user sees all of them at once.
#include "base/diagnostic.h"

#include <utility>

namespace tandem {
namespace {

std::string render_all(const std::vector<Diagnostic>& problems) {
  std::string text;
  for (const Diagnostic& problem : problems) {
    if (!text.empty()) text += "\n";
    text += problem.render();
  }
  return text;
}

}  // namespace

UserError::UserError(std::vector<Diagnostic> problems)
    : std::runtime_error(render_all(problems)), problems_(std::move(problems)) {}

UserError::UserError(std::string text, std::string place)
    : UserError(std::vector<Diagnostic>{{std::move(text), std::move(place)}}) {}

void Diagnostics::add(std::string text, std::string place) {
  problems_.push_back({std::move(text), std::move(place)});
}

void Diagnostics::add(const UserError& error) {
  problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
}

void Diagnostics::finish() {
  if (!problems_.empty()) throw UserError(std::exchange(problems_, {}));
}

}  // namespace tandem
