// Sizes of this machine's caches. Internal to this room.
#pragma once

#include <string>

#include "base/target.h"

namespace tandem::codegen {

/// Where Linux describes the caches of the first processor.
inline constexpr const char* kCacheFolder = "/sys/devices/system/cpu/cpu0/cache";

/// Sets the bytes of the caches that the folder describes, of data; of a level that it says nothing
/// of, or nothing that can be true, what the target had stays.
void take_cache_sizes(const std::string& folder, Target& target);

}  // namespace tandem::codegen
