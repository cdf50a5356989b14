// Problem: a mapped kernel has scratch for everything that one stage leaves for another, and all of
// it at once is more than the cache holds. Approach: scratch lives from the stage that first stores
// it to the last one that loads it. What begins to live where other scratch of its type has ended
// takes over that buffer; in one stage too, where each element is read before it is written (at the
// same index). In a kernel of one task's stages that is all there is to know.
#include <algorithm>
#include <array>

#include "loop/threads.h"
#include "schedule/axes.h"
#include "schedule/steps.h"

namespace tandem::schedule {
namespace {

using loop::Kernel;
using loop::Stage;
using loop::Store;
using loop::Val;
using sym::Expr;

constexpr size_t kNever = SIZE_MAX;

/// First and last stage that touches a buffer; the first one stores. What loops around the stages
/// carry on, which some stage loads before any has stored, lives all the time.
struct Life {
  size_t first = kNever;
  size_t last = 0;
};

class Sharer {
 public:
  explicit Sharer(Group& group) : group_(group), kernel_(group.kernel) {}

  void run() {
    for (size_t i = 0; i < kernel_.buffers.size();) {
      std::optional<size_t> host = is_scratch(i) ? host_of(i) : std::nullopt;
      if (host)
        move_into(i, *host);
      else
        ++i;
    }
  }

 private:
  bool is_scratch(size_t number) const {
    return kernel_.buffers[number].access == loop::Access::scratch;
  }

  Life life_of(size_t number) {
    int32_t slot = static_cast<int32_t>(number);
    Life life;
    bool is_carried = false;
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      bool touches = false;
      for (Val value : loop::scalars_of(kernel_.stages[i]))
        touches |= value->opcode == loop::Opcode::load && value->slot == slot;
      is_carried |= touches && life.first == kNever;
      loop::for_each_store(kernel_.stages[i],
                           [&](Store& store) { touches |= store.buffer == slot; });
      if (!touches) continue;
      life.first = std::min(life.first, i);
      life.last = i;
    }
    return is_carried ? Life{0, kernel_.stages.size()} : life;
  }

  /// Scratch that ends when the buffer begins.
  std::optional<size_t> host_of(size_t number) {
    Life life = life_of(number);
    for (size_t host = 0; host < kernel_.buffers.size(); ++host) {
      const loop::Buffer& other = kernel_.buffers[host];
      const loop::Buffer& own = kernel_.buffers[number];
      if (host == number || !is_scratch(host) || other.dtype != own.dtype ||
          other.space != own.space)
        continue;
      Life before = life_of(host);
      bool ends = before.last < life.first;
      bool passes_on = before.last == life.first && before.first < life.first &&
                       takes_over(kernel_.stages[life.first], number, host);
      if (ends || passes_on) return host;
    }
    return std::nullopt;
  }

  /// Whether the stage reads an element of `host` only where it stores that of `number`.
  static bool takes_over(Stage& stage, size_t number, size_t host) {
    std::optional<Expr> at;
    int stores = 0;
    bool stores_host = false;
    loop::for_each_store(stage, [&](Store& store) {
      stores_host |= store.buffer == static_cast<int32_t>(host);
      if (store.buffer != static_cast<int32_t>(number)) return;
      ++stores;
      at = store.index;
    });
    bool in_body = std::any_of(stage.body.begin(), stage.body.end(), [&](const Store& store) {
      return store.buffer == static_cast<int32_t>(number);
    });
    if (stores != 1 || stores_host || !in_body) return false;
    for (Val value : loop::scalars_of(stage))
      if (value->opcode == loop::Opcode::load && value->slot == static_cast<int32_t>(host) &&
          value->index != *at)
        return false;
    return true;
  }

  void move_into(size_t number, size_t host) {
    Expr elements = sym::max(kernel_.buffers[host].elements, kernel_.buffers[number].elements);
    kernel_.buffers[host].elements = elements;
    auto renamed = [&](int32_t slot) {
      size_t old = static_cast<size_t>(slot);
      size_t now = old == number ? host : old;
      return static_cast<int32_t>(now > number ? now - 1 : now);
    };
    loop::StageRewrite how;
    how.place = [&](int32_t& buffer, Expr&) { buffer = renamed(buffer); };
    for (Stage& stage : kernel_.stages)
      loop::rewrite(*kernel_.scalars, *kernel_.scalars, stage, how);
    std::ptrdiff_t at = static_cast<std::ptrdiff_t>(number);
    kernel_.buffers.erase(kernel_.buffers.begin() + at);
    if (number >= group_.buffer_values.size()) return;
    group_.buffer_values.erase(group_.buffer_values.begin() + at);
    group_.buffer_homes.erase(group_.buffer_homes.begin() + at);
  }

  Group& group_;
  Kernel& kernel_;
};

}  // namespace

void share_scratch(Group& group) {
  if (group.kind != Group::Kind::chain) return;
  Sharer(group).run();
  // Threads that are done with what a place held are followed there by others.
  if (group.kernel.threads > 0) loop::place_barriers(group.kernel);
}

}  // namespace tandem::schedule
