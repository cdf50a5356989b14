// What it takes to keep a value for backward, as it is stored then.
#pragma once

#include <string>

#include "base/dense_map.h"
#include "ir/graph.h"
#include "passes/partition/storage.h"

namespace tandem::passes {

/// Stored in fewer bits: a float, or a mask that can be packed, of enough bytes that a forward node
/// makes, that is no result of the program, and that nothing excludes. `name`: under which the
/// report lists it.
bool is_kept_small(const ir::Graph& graph, const ir::Value& value, const std::string& name,
                   const SavedStorage& storage);

/// By value of a joint graph. A symbolic size counts as a typical one.
class KeptBytes {
 public:
  /// Arguments are the caller's, who may keep them anyway or not.
  enum class Arguments : uint8_t { counted, free };

  KeptBytes(const ir::Graph& graph, const SavedStorage& storage,
            Arguments arguments = Arguments::counted);

  /// Of what lives anyway nothing; scales are counted, and copies of arguments that are
  /// overwritten.
  int64_t of(const ir::Value* value) const { return bytes_.at(value); }
  int64_t of(const ir::Values& values) const;

 private:
  DenseMap<ir::Value, int64_t> bytes_;
};

}  // namespace tandem::passes
