// Calls of a compiled function whose inputs share memory with one that it writes. Internal to this
// room.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "driver/api.h"
#include "driver/shared_memory.h"

namespace tandem {

/// The function compiled once more for each way to share. The kMost used last are kept; another one
/// takes the place of the one used longest ago, which lives on with what its forwards saved. Calls
/// may come from several threads.
class SharedCalls {
 public:
  SharedCalls(ModelFunction function, std::vector<AotInput> inputs, AotOptions options,
              std::shared_ptr<std::atomic<int64_t>> seed);

  struct Call {
    std::shared_ptr<AotFunction> function;
    std::vector<runtime::Array> arguments;  // inputs with memory of their own, then bases
  };
  /// `written`: numbers of the inputs that the function writes. UserError for what cannot be told
  /// so.
  Call call(std::span<const runtime::Array> inputs, const std::vector<size_t>& written);
  SharedCallCounts counts() const;

  static constexpr size_t kMost = 16;

 private:
  using Key = std::vector<int64_t>;
  struct Layout;
  struct Known {
    std::shared_ptr<AotFunction> function;
    int64_t last_call = 0;
  };
  void drop_longest_unused();
  Layout layout_of(std::span<const runtime::Array> inputs,
                   const std::vector<size_t>& written) const;
  runtime::Array lay_base(std::span<const runtime::Array> inputs, const std::vector<size_t>& group,
                          driver::SharedMemory& memory) const;
  void check_gradients(const std::vector<size_t>& group) const;
  std::shared_ptr<AotFunction> compiled(std::span<const runtime::Array> inputs,
                                        const Layout& layout) const;

  ModelFunction function_;
  std::vector<AotInput> inputs_;
  AotOptions options_;
  std::shared_ptr<std::atomic<int64_t>> seed_;
  mutable std::mutex mutex_;
  std::map<Key, Known> known_;
  SharedCallCounts counts_;
};

}  // namespace tandem
