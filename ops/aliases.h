// Names that PyTorch has twice: an alias is its original under another name.
#pragma once

#include <span>
#include <string_view>

#include "ops/opdef.h"

namespace tandem::ops {

/// Which derived forms PyTorch has of an alias; its original may have others.
enum class Forms : uint8_t { none, inplace, out, both };

struct Alias {
  std::string_view name;  // "multiply.Tensor"
  std::string_view of;    // "mul.Tensor": parameters have the same names
  Forms forms = Forms::none;
  std::string_view out_as{};  // where the original's is another
};

std::span<const Alias> aliases();
/// The original's schema under the alias's name.
ir::Schema alias_schema(const ir::OpTable& table, const Alias& alias);
/// An OpDef that decomposes into the original; it lives as long as the process.
const OpDef& definition_of(const ir::OpTable& table, const Alias& alias);

}  // namespace tandem::ops
