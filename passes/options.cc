// Options of passes as people write them, in golden files and in the calls of a binding.
#include <fmt/format.h>

#include "passes/passes.h"

namespace tandem::passes {

Gradients gradients_named(std::string_view name) {
  if (name.empty()) return Gradients::none;
  if (name == "tangents") return Gradients::tangents;
  if (name == "ones") return Gradients::ones;
  throw UserError(fmt::format("gradients start from 'tangents' or 'ones', not from '{}'", name));
}

Partition partition_named(std::string_view name) {
  if (name == "default") return Partition::standard;
  if (name == "min_cut") return Partition::min_cut;
  throw UserError(fmt::format("a partition is 'default' or 'min_cut', not '{}'", name));
}

}  // namespace tandem::passes
