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

/// The function compiled once more for each way to share. Calls may come from several threads.
class SharedCalls {
 public:
  SharedCalls(ModelFunction function, std::vector<AotInput> inputs, AotOptions options,
              std::shared_ptr<std::atomic<int64_t>> seed);

  struct Call {
    AotFunction* function = nullptr;
    std::vector<runtime::Array> arguments;  // inputs with memory of their own, then bases
  };
  /// `written`: numbers of the inputs that the function writes. UserError for what cannot be told
  /// so, and for more ways than kMost.
  Call call(std::span<const runtime::Array> inputs, const std::vector<size_t>& written);
  /// The function whose forward this is; null: none of them.
  AotFunction* owner(const driver::Executable* forward);

  static constexpr size_t kMost = 16;

 private:
  using Key = std::vector<int64_t>;
  struct Layout;
  Layout layout_of(std::span<const runtime::Array> inputs,
                   const std::vector<size_t>& written) const;
  runtime::Array lay_base(std::span<const runtime::Array> inputs, const std::vector<size_t>& group,
                          driver::SharedMemory& memory) const;
  void check_gradients(const std::vector<size_t>& group) const;
  std::unique_ptr<AotFunction> compiled(std::span<const runtime::Array> inputs,
                                        const Layout& layout) const;

  ModelFunction function_;
  std::vector<AotInput> inputs_;
  AotOptions options_;
  std::shared_ptr<std::atomic<int64_t>> seed_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<AotFunction>> known_;
};

}  // namespace tandem
