// Problem: a peak says how much, not what. Approach: the steps of a call already know which blocks
// are born before them and die after them, and temporaries of the arena have lifetimes; both are
// told here under the names that the program has for its buffers.
#include <algorithm>

#include "runtime/execution.h"

namespace tandem::runtime {
namespace {

using Block = CallTimeline::Block;

/// The first output that is the buffer's memory, which others may show too.
std::vector<int64_t> outputs_by_buffer(const abi::Program& program) {
  std::vector<int64_t> outputs(program.buffers.size(), -1);
  for (size_t i = program.outputs.size(); i-- > 0;)
    if (program.outputs[i].kind == abi::Output::Kind::tensor)
      outputs[program.outputs[i].ref.buffer] = static_cast<int64_t>(i);
  return outputs;
}

}  // namespace

CallTimeline Execution::timeline(std::span<const int64_t> freed) {
  resolve();
  CallTimeline made;
  made.held = held_bytes(freed);
  if (!steps_.empty()) made.held.erase(made.held.begin());
  for (const Step& step : steps_)
    made.steps.push_back(label_of(program(), program().instructions[step.instruction]));
  add_blocks(made, freed);
  add_arena(made);
  return made;
}

/// Blocks of their own: from the step that takes one to the one that lets it go, or to the end.
void Execution::add_blocks(CallTimeline& made, std::span<const int64_t> freed) const {
  const uint32_t end = static_cast<uint32_t>(std::max<size_t>(steps_.size(), 1)) - 1;
  std::vector<int64_t> place(buffers_.size(), -1);
  const std::vector<int64_t> outputs = outputs_by_buffer(program());
  const auto add = [&](uint32_t buffer, uint32_t first, int64_t bytes) {
    place[buffer] = static_cast<int64_t>(made.blocks.size());
    made.blocks.push_back({program().buffers[buffer].label, bytes, first, end, outputs[buffer]});
  };
  for (const uint32_t buffer : unborn_) add(buffer, 0, taken(buffer));
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    const BufferState& state = buffers_[i];
    if (state.kind != abi::BufferKind::input || freed.empty() || freed[state.index] == 0) continue;
    add(i, 0, freed[state.index]);
    made.blocks.back().input = state.index;
  }
  for (uint32_t at = 0; at < steps_.size(); ++at) {
    for (const uint32_t buffer : steps_[at].born) add(buffer, at, taken(buffer));
    for (const uint32_t buffer : steps_[at].dead)
      if (place[buffer] >= 0) made.blocks[static_cast<size_t>(place[buffer])].last = at;
    for (const uint32_t buffer : steps_[at].over) {
      const int64_t from = place[loaded_.takes_over_[buffer]];
      if (from >= 0 && is_handed_on(buffer, freed))
        made.blocks[static_cast<size_t>(from)].last = at - 1;
      add(buffer, at, taken(buffer));
    }
  }
}

/// The arena is one block; who lies in it when is told beside.
void Execution::add_arena(CallTimeline& made) const {
  const uint32_t end = static_cast<uint32_t>(std::max<size_t>(steps_.size(), 1)) - 1;
  if (frame_block() > 0)
    made.blocks.push_back({"arena of small temporaries, and scratch", frame_block(), 0, end});
  for (uint32_t i = 0; i < buffers_.size(); ++i) {
    const BufferState& state = buffers_[i];
    const LoadedProgram::BufferLife& life = loaded_.lifetimes_[i];
    if (state.kind != abi::BufferKind::temporary || state.has_block || state.bytes == 0) continue;
    if (life.first_use > life.last_use || steps_.empty()) continue;
    const uint32_t last = static_cast<uint32_t>(std::min<size_t>(step_of(life.last_use), end));
    Block block{program().buffers[i].label, state.bytes,
                static_cast<uint32_t>(step_of(life.first_use)), last};
    block.in_arena = true;
    made.blocks.push_back(std::move(block));
  }
}

}  // namespace tandem::runtime
