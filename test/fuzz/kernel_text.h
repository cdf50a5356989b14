// Damage to the text of kernel graphs.
#pragma once

#include <string>
#include <vector>

#include "test/fuzz/random.h"

namespace tandem::fuzz {

/// One to four changes: numbers, names, words of one kind for others of it, lines that go, come
/// twice, or change places, whole items, groups and kernels of `others`; at times what mutate_text
/// does. The first line stays.
std::string mutate_kernels(const std::string& text, const std::vector<std::string>& others,
                           Random& random);

}  // namespace tandem::fuzz
