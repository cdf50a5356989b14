// A failed check is a bug: say where and what, and leave before a wrong number escapes. Inside a
// destructor or another noexcept function that ends the process.
#include "base/check.h"

namespace tandem {
namespace internal {

CheckFailure::CheckFailure(const char* condition, const char* file, int line) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() noexcept(false) { throw InternalError(message_.str()); }

}  // namespace internal
}  // namespace tandem
