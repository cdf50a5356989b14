// What a failed check leaves behind: a file that repeats it.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"

namespace tandem::driver {

/// Throws `error` again, with the path of a new file in the folder for temporary files that holds
/// its text, its context and `program`; without one where none can be written.
[[noreturn]] void throw_with_reproducer(const InternalError& error, std::string_view program);

/// What `f` gives. A check that fails in it leaves a reproducer with the text `program`.
template <class F>
auto with_reproducer(std::string_view program, F f) {
  try {
    return f();
  } catch (const InternalError& error) {
    throw_with_reproducer(error, program);
  }
}

}  // namespace tandem::driver
