// How the values that forward saves for backward are kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::passes {

struct SavedStorage {
  enum class Kind : uint8_t {
    whole,       // as they are
    bf16,        // rounded
    int8,        // by one scale
    int8_row,    // by a scale for each row of the last dimension
    int8_block,  // by a scale for each 64 elements of a row
  };
  Kind kind = Kind::whole;
  int64_t least_bytes = 65536;  // smaller values stay whole; unknown sizes count as typical ones
};
/// "none", "bf16", "int8", "int8_row", "int8_block"; UserError for others and for bytes below 0.
SavedStorage storage_named(std::string_view name, int64_t least_bytes);
/// Says all of it: "int8_row from 65536".
std::string to_string(const SavedStorage& storage);

}  // namespace tandem::passes
