// A function that is an argument of a template, called.
#pragma once

#include <utility>

namespace tandem {

/// F(arguments...). A copy of F is called: Clang (19) gives an object that is such an argument one
/// section for all files whose unnamed namespaces have one of its name, and what was not optimised
/// refers to the one that the linker drops.
template <auto F, class... Arguments>
decltype(auto) called(Arguments&&... arguments) {
  constexpr auto function = F;
  return function(std::forward<Arguments>(arguments)...);
}

}  // namespace tandem
