// Problem: a result that is made element by element of something as large, which nobody reads
// afterwards, need not have memory of its own. Approach: launches say which of their buffers may be
// one memory. Loading keeps the pairs where one buffer is used for the last time as the other one
// is for the first. In the arena the two share a place; a block goes from hand to hand, which for
// an argument is decided at each call: it must be the caller's last hold on a block of ours.
#include <algorithm>

#include "runtime/execution.h"

namespace tandem::runtime {
namespace {

bool runs_beside(const abi::Program& program, uint32_t instruction) {
  const auto is_beside = [&](uint32_t at) {
    const abi::Launch* const launch = at >= program.instructions.size()
                                          ? nullptr
                                          : std::get_if<abi::Launch>(&program.instructions[at]);
    return launch != nullptr && launch->beside;
  };
  return is_beside(instruction) || is_beside(instruction + 1);
}

bool is_operand(const abi::LibraryCall& call, uint32_t buffer) {
  return std::ranges::any_of(call.args,
                             [&](const abi::TensorRef& ref) { return ref.buffer == buffer; });
}

}  // namespace

// Kernels of setup and bodies say it too, and are asked alike.
void LoadedProgram::find_takeovers() {
  takes_over_.assign(program_.buffers.size(), kNoBuffer);
  std::vector<char> is_taken(program_.buffers.size());
  for (uint32_t at = 0; at < program_.instructions.size(); ++at) {
    const abi::Launch* const launch = std::get_if<abi::Launch>(&program_.instructions[at]);
    if (launch == nullptr || runs_beside(program_, at)) continue;
    for (const abi::TakeOver& pair : launch->takeovers) {
      const uint32_t written = launch->buffers[pair.written];
      const uint32_t read = launch->buffers[pair.read];
      if (!may_take_over(*launch, at, written, read) || is_taken[read] != 0) continue;
      if (takes_over_[written] != kNoBuffer) continue;
      takes_over_[written] = read;
      is_taken[read] = 1;
    }
  }
}

// A buffer that the launch has twice may be read elsewhere under its other number. What runs along
// a library call lives as long as that does, and must leave alone what other tasks of it still
// read.
bool LoadedProgram::may_take_over(const abi::Launch& launch, uint32_t at, uint32_t written,
                                  uint32_t read) const {
  using Kind = abi::BufferKind;
  const uint32_t first = launch.follows ? at - 1 : at;
  if (launch.follows && is_operand(std::get<abi::LibraryCall>(program_.instructions[first]), read))
    return false;
  const abi::Buffer& from = program_.buffers[read];
  const Kind to = program_.buffers[written].kind;
  return (to == Kind::temporary || to == Kind::output) &&
         (from.kind == Kind::temporary || may_drop(from.kind, from.index)) &&
         lifetimes_[written].first_use == first && lifetimes_[read].last_use == at &&
         std::ranges::count(launch.buffers, written) == 1 &&
         std::ranges::count(launch.buffers, read) == 1;
}

// What waits for a number that is read has no size yet.
bool Execution::takes_over_in_arena(uint32_t buffer) const {
  const uint32_t from = loaded_.takes_over_[buffer];
  if (from == kNoBuffer || buffers_[buffer].bytes != buffers_[from].bytes) return false;
  const auto is_in_arena = [&](uint32_t number) {
    const BufferState& state = buffers_[number];
    return state.kind == abi::BufferKind::temporary && !state.has_block && state.level == 0;
  };
  return is_in_arena(buffer) && is_in_arena(from);
}

// A block that is taken before its first use, because an input is written meanwhile, is its own.
bool Execution::takes_over_block(uint32_t buffer) const {
  const uint32_t from = loaded_.takes_over_[buffer];
  if (from == kNoBuffer || !buffers_[buffer].has_block) return false;
  const BufferState& other = buffers_[from];
  return buffers_[buffer].level == 0 && other.level == 0 && buffers_[buffer].bytes == other.bytes &&
         (other.has_block || other.kind == abi::BufferKind::input) &&
         loaded_.lifetimes_[buffer].first_use <= loaded_.first_write_;
}

// What a result takes over leaves the arena: a place there cannot be handed out. Each time a
// taker gets a block, the one it takes from is looked at next.
void Execution::give_blocks_to_taken() {
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    for (uint32_t taker = i; loaded_.takes_over_[taker] != kNoBuffer;) {
      const uint32_t from = loaded_.takes_over_[taker];
      BufferState& state = buffers_[from];
      const bool hands_on = buffers_[taker].has_block && state.level == 0 &&
                            state.kind == abi::BufferKind::temporary && !state.has_block &&
                            state.bytes >= kOwnBlock && state.bytes == buffers_[taker].bytes &&
                            loaded_.lifetimes_[taker].first_use <= loaded_.first_write_;
      if (!hands_on) break;
      state.has_block = true;
      taker = from;
    }
  }
}

// The first of those that have one place after the other, as their sizes are known; each begins
// where another one ends, so there are no circles.
uint32_t Execution::first_in_place(uint32_t buffer) const {
  while (takes_over_in_arena(buffer)) buffer = loaded_.takes_over_[buffer];
  return buffer;
}

std::vector<Lifetime> Execution::arena_lifetimes() const {
  std::vector<Lifetime> lifetimes(buffers_.size());
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    const LoadedProgram::BufferLife& life = loaded_.lifetimes_[i];
    const BufferState& state = buffers_[i];
    if (state.kind != abi::BufferKind::temporary || state.has_block) continue;
    Lifetime& whole = lifetimes[first_in_place(i)];
    const bool is_first = whole.bytes == 0;
    whole.bytes = state.bytes;
    whole.first_use = is_first ? life.first_use : std::min(whole.first_use, life.first_use);
    whole.last_use = is_first ? life.last_use : std::max(whole.last_use, life.last_use);
  }
  return lifetimes;
}

std::shared_ptr<const Storage> Execution::given_up(uint32_t buffer,
                                                   std::span<const Argument> dropped) const {
  const BufferState& state = buffers_[buffer];
  if (state.kind != abi::BufferKind::input) return blocks_[buffer];
  const auto is_it = [&](const StagedInput& staged) { return staged.input == state.index; };
  if (dropped.empty() || std::ranges::any_of(staged_, is_it)) return nullptr;
  return std::get<Array>(dropped[state.index]).sole_block(state.bytes);
}

void Execution::take_over(uint32_t buffer, std::span<const Argument> dropped) {
  const bool has_place = !places_.empty() && places_[buffer] != nullptr;
  std::shared_ptr<const Storage> block;
  if (!has_place) block = given_up(loaded_.takes_over_[buffer], dropped);
  if (block == nullptr) return take_block(buffer);
  bases_[buffer] = block->data();
  blocks_[buffer] = std::move(block);
}

// What `held_bytes` counts as taken twice while the step runs, and is not.
int64_t Execution::taken_over(const Step& step, std::span<const int64_t> freed) const {
  int64_t bytes = 0;
  for (const uint32_t buffer : step.over) bytes += is_handed_on(buffer, freed) ? taken(buffer) : 0;
  return bytes;
}

bool Execution::is_handed_on(uint32_t buffer, std::span<const int64_t> freed) const {
  const BufferState& from = buffers_[loaded_.takes_over_[buffer]];
  const bool is_input = from.kind == abi::BufferKind::input;
  return !is_input || (!freed.empty() && freed[from.index] == taken(buffer));
}

}  // namespace tandem::runtime
