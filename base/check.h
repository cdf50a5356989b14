// TD_CHECK: a condition whose failure is a bug of ours; user input never reaches it. It throws: a
// library must not take its host process, and the work in it, down.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tandem {

/// A failed check. What was being made is lost, nothing else: who catches it may go on. Who runs a
/// pass catches it, and throws it again with the IR as context.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& text, std::string context = "")
      : std::logic_error(text), context_(std::move(context)) {}
  /// The IR around the place and a command that repeats it; may be empty.
  const std::string& context() const { return context_; }

 private:
  std::string context_;
};

namespace internal {

/// Collects the streamed message; its destructor throws it with condition and place.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure() noexcept(false);
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace internal
}  // namespace tandem

#define TD_CHECK(condition)   \
  if (condition) [[likely]] { \
  } else                      \
    ::tandem::internal::CheckFailure(#condition, __FILE__, __LINE__).stream()
