// What goes wrong by the user's doing (UserError) and what we cannot do yet (Unsupported).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// One problem: text in the form `[aten::mm] self f32[3,4] and mat2 f32[5,6]: inner sizes 4 and 5
/// differ`, and the place it came from (`model.py:41, %17`), empty when unknown.
struct Diagnostic {
  std::string text;
  std::string place;
  /// Names of sizes and numbers that come with a call: the problem is that they are not known yet.
  std::vector<std::string> unknown = {};
  std::string render() const { return place.empty() ? text : text + " (" + place + ")"; }
};

/// Thrown once at the end of a stage with everything that the stage found.
class UserError : public std::runtime_error {
 public:
  explicit UserError(std::vector<Diagnostic> problems);
  explicit UserError(std::string text, std::string place = "");
  explicit UserError(Diagnostic problem) : UserError(std::vector<Diagnostic>{std::move(problem)}) {}
  const std::vector<Diagnostic>& problems() const { return problems_; }

 private:
  std::vector<Diagnostic> problems_;
};

/// A known gap of ours: names op, dtype, room and what would be accepted.
class Unsupported : public UserError {
 public:
  using UserError::UserError;
};

/// Values of a tensor for which an operator has no result: an index out of range, an integer
/// divided by 0.
class DataError : public UserError {
 public:
  using UserError::UserError;
};

/// Collects problems of one stage; `finish` throws them all at once.
class Diagnostics {
 public:
  void add(std::string text, std::string place = "");
  void add(Diagnostic problem) { problems_.push_back(std::move(problem)); }
  void add(const UserError& error);
  bool empty() const { return problems_.empty(); }
  /// Throws UserError when anything was collected.
  void finish();

 private:
  std::vector<Diagnostic> problems_;
};

}  // namespace tandem
