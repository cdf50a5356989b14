// Loops and branches: programs that a program runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/executor.h"

namespace tandem::runtime {

/// What a callee draws from: the same for the gradient, which has the body's number, and counts its
/// steps as the body does.
uint64_t step_seed(uint64_t seed, int64_t stream, size_t callee);

/// A body for as long as the instruction runs that calls it: one block for its temporaries, and its
/// sizes are resolved once, where they stay the same.
class Frame {
 public:
  Frame(LoadedProgram& body, const abi::Callee& callee, std::span<const int64_t> sizes,
        uint64_t seed);
  Frame(Frame&&) noexcept;
  ~Frame();

  /// Tensor `number` of the next steps.
  void set(size_t number, Array tensor);
  /// What the body gives; all tensors must be set. `places`: by result where it should lie, none
  /// where that does not matter.
  std::vector<Result> run(int64_t step, std::span<const std::optional<Array>> places = {});

 private:
  LoadedProgram* body_;
  bool takes_seed_;
  uint64_t seed_;
  std::vector<Argument> arguments_;
  std::unique_ptr<Execution> execution_;  // null when it has thrown
};

/// `args` and `results` as Control has them; one frame for each callee.
void run_control(const abi::Control& control, std::span<Frame> frames, std::vector<Array> args,
                 std::span<const Array> results);

}  // namespace tandem::runtime
