// How the values that forward saves for backward are kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace tandem::passes {

struct SavedStorage {
  enum class Kind : uint8_t {
    whole,       // as they are
    bf16,        // rounded
    int8,        // by one scale
    int8_row,    // by a scale for each row of the last dimension
    int8_block,  // by a scale for each 64 elements of a row
    f8e4m3fn,    // 8-bit floats, by a scale for each row
    f8e5m2,
    f8e4m3fn_unscaled,  // as they are, what is beyond the type's largest number becomes it
    f8e5m2_unscaled,
  };
  Kind kind = Kind::whole;
  int64_t least_bytes = 65536;  // smaller values stay whole; unknown sizes count as typical ones
  /// What stays whole, in the words of the report of a cut: results of an operator ("aten.gelu",
  /// all its overloads, or "aten.add.Tensor"), a value ("%12"), what a source line makes
  /// ("model.py:31"), values of an element type ("f32"), those whose sizes vary ("symbolic").
  std::vector<std::string> except;
};
/// "none", or a kind by its name above; UserError for others, for bytes below 0, and for an
/// exception that is none of those.
SavedStorage storage_named(std::string_view name, int64_t least_bytes,
                           std::vector<std::string> except = {});
/// Says all of it: "int8_row from 65536".
std::string to_string(const SavedStorage& storage);

std::string_view name_of(SavedStorage::Kind kind);
/// Of an element, without scales.
int64_t element_bytes(SavedStorage::Kind kind);
/// Elements of a row that share a scale, where they divide it.
inline constexpr int64_t kSavedBlock = 64;
bool is_in_blocks(const ir::Type& type, SavedStorage::Kind kind);

}  // namespace tandem::passes
