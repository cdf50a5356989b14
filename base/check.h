// TD_CHECK: a condition whose failure is a bug of ours. It prints and aborts; user input never
// reaches it.
#pragma once

#include <sstream>
#include <string>

namespace tandem {

/// Text that a failing check prints after its own line: the pass runner sets it to the IR around
/// the current node and a command that reproduces the failure. Returns the previous provider.
using CheckContext = std::string (*)();
CheckContext set_check_context(CheckContext provider);

namespace internal {

/// Collects the streamed message; its destructor prints condition, place and context, then aborts.
class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
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
