// What shares memory becomes one base: the bytes from the first to the last that its members have,
// seen as one dimension of numbers. In C++ nobody holds a tensor that owns them, and none is
// needed: there is no history, so an input that requires a gradient cannot be a member.
#include "driver/shared_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "runtime/overlap.h"

namespace tandem {

using driver::SharedMemory;
using runtime::Array;

struct SharedCalls::Layout {
  std::vector<SharedMemory> memories;
  std::vector<Array> bases;
  std::vector<size_t> own;  // numbers of inputs that are no members
  Key key;
};

namespace {

/// Of numbers whose bits may be anything.
DType integer_of(int64_t bytes) {
  return bytes == 1 ? DType::u8 : bytes == 2 ? DType::i16 : bytes == 4 ? DType::i32 : DType::i64;
}

int64_t bytes_between(const Array& first, const Array& second) {
  return static_cast<std::byte*>(second.raw()) - static_cast<std::byte*>(first.raw());
}

void append(std::vector<int64_t>& key, std::span<const int64_t> numbers) {
  key.push_back(static_cast<int64_t>(numbers.size()));
  key.insert(key.end(), numbers.begin(), numbers.end());
}

}  // namespace

SharedCalls::SharedCalls(ModelFunction function, std::vector<AotInput> inputs, AotOptions options,
                         std::shared_ptr<std::atomic<int64_t>> seed)
    : function_(std::move(function)),
      inputs_(std::move(inputs)),
      options_(std::move(options)),
      seed_(std::move(seed)) {}

void SharedCalls::check_gradients(const std::vector<size_t>& group) const {
  const auto wants = [&](size_t number) { return inputs_[number].requires_grad; };
  const auto found = std::ranges::find_if(group, wants);
  if (found == group.end()) return;
  const size_t other = *found == group[0] ? group[1] : group[0];
  throw UserError(fmt::format(
      "[aot_function] input '{}' requires a gradient and shares memory with '{}', one of which is "
      "written: the gradient would be of the memory, which no input is",
      inputs_[*found].name, inputs_[other].name));
}

/// Arguments may be freed while what is saved for backward is kept: the base holds all of them.
Array SharedCalls::lay_base(std::span<const Array> inputs, const std::vector<size_t>& group,
                            SharedMemory& memory) const {
  const auto begins_before = [&](size_t a, size_t b) { return inputs[a].raw() < inputs[b].raw(); };
  const Array& first = inputs[*std::ranges::min_element(group, begins_before)];
  const int64_t bytes = size_of(first.dtype());
  memory.dtype = first.dtype();
  std::vector<Array> held;
  int64_t end = 0;
  for (size_t number : group) {
    const Array& member = inputs[number];
    const int64_t begin = bytes_between(first, member);
    if (size_of(member.dtype()) != bytes || begin % bytes != 0)
      throw Unsupported(fmt::format(
          "[aot_function] inputs '{}' {} and '{}' {} share memory, and one is written: elements of "
          "one size, and of one alignment, are accepted",
          inputs_[group[0]].name, inputs[group[0]].describe(), inputs_[number].name,
          member.describe()));
    if (member.dtype() != first.dtype()) memory.dtype = integer_of(bytes);
    memory.members.push_back(
        {inputs_[number].name, {member.strides().begin(), member.strides().end()}, begin / bytes});
    end = std::max(end, begin / bytes + runtime::extent(member.sizes(), member.strides()));
    held.push_back(member);
  }
  memory.sizes = {end};
  memory.strides = {1};
  return Array::borrow(first.raw(), memory.dtype, memory.sizes, memory.strides,
                       [held = std::move(held)](void*) {});
}

SharedCalls::Layout SharedCalls::layout_of(std::span<const Array> inputs,
                                           const std::vector<size_t>& written) const {
  const std::vector<runtime::Argument> arguments(inputs.begin(), inputs.end());
  Layout layout;
  std::vector<char> is_member(inputs.size(), 0);
  for (const std::vector<size_t>& group : runtime::Overlap(written).groups(arguments)) {
    check_gradients(group);
    layout.bases.push_back(lay_base(inputs, group, layout.memories.emplace_back()));
    layout.key.push_back(static_cast<int64_t>(group.size()));
    for (size_t i = 0; i < group.size(); ++i) {
      const SharedMemory::Member& member = layout.memories.back().members[i];
      is_member[group[i]] = 1;
      layout.key.insert(layout.key.end(), {static_cast<int64_t>(group[i]), member.offset});
      append(layout.key, member.strides);
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    append(layout.key, inputs[i].sizes());
    if (is_member[i] == 0) layout.own.push_back(i);
  }
  return layout;
}

std::shared_ptr<AotFunction> SharedCalls::compiled(std::span<const Array> inputs,
                                                   const Layout& layout) const {
  std::vector<AotInput> known = inputs_;
  for (size_t i = 0; i < known.size(); ++i)
    known[i].sizes.assign(inputs[i].sizes().begin(), inputs[i].sizes().end());
  return std::shared_ptr<AotFunction>(
      new AotFunction(function_, known, options_, seed_, layout.memories, layout.own));
}

SharedCalls::Call SharedCalls::call(std::span<const Array> inputs,
                                    const std::vector<size_t>& written) {
  const Layout layout = layout_of(inputs, written);
  Call call;
  for (size_t number : layout.own) call.arguments.push_back(inputs[number]);
  call.arguments.insert(call.arguments.end(), layout.bases.begin(), layout.bases.end());
  const std::lock_guard<std::mutex> lock(mutex_);
  auto known = known_.find(layout.key);
  if (known == known_.end()) {
    std::shared_ptr<AotFunction> made = compiled(inputs, layout);
    ++counts_.compiled;
    if (known_.size() == kMost) drop_longest_unused();
    known = known_.emplace(layout.key, Known{std::move(made)}).first;
  }
  known->second.last_call = ++counts_.calls;
  call.function = known->second.function;
  return call;
}

void SharedCalls::drop_longest_unused() {
  const auto last_call = [](const std::pair<const Key, Known>& each) {
    return each.second.last_call;
  };
  known_.erase(std::ranges::min_element(known_, {}, last_call));
  ++counts_.dropped;
}

SharedCallCounts SharedCalls::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

}  // namespace tandem
