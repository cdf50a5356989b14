// A failed check is a bug: say where, what, and how to see it again, then stop before a wrong
// number escapes.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tandem {
namespace {
CheckContext g_context = nullptr;
}

CheckContext set_check_context(CheckContext provider) {
  CheckContext old = g_context;
  g_context = provider;
  return old;
}

namespace internal {

CheckFailure::CheckFailure(const char* condition, const char* file, int line) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::string text = message_.str();
  if (g_context != nullptr) text += "\n" + g_context();
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}

}  // namespace internal
}  // namespace tandem
