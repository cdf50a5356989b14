// Object code of kernels on disk, so that a second process need not generate it again.
#pragma once

#include <optional>
#include <string>

#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::codegen {

/// Entries are keyed by the kernel's text, the target, the optimisation level and the binary that
/// holds this compiler (its place, size and time), so another build never reads them. A damaged or
/// unreadable entry is a miss; a folder that cannot be written turns the cache off. Safe for
/// threads and processes: entries appear whole.
class ObjectCache {
 public:
  ObjectCache(std::string folder, const Target& target, int level);
  std::optional<std::string> find(const loop::Kernel& kernel) const;
  void store(const loop::Kernel& kernel, const std::string& object) const;

 private:
  std::string path_of(const std::string& key) const;
  std::string key_of(const loop::Kernel& kernel) const;
  std::string folder_;  // empty: off
  std::string context_;
};

}  // namespace tandem::codegen
