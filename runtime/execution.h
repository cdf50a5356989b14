// The state of one call of a program: slots, resolved sizes, pointer tables. Reused by later calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "abi/program.h"
#include "runtime/allocator.h"
#include "runtime/constants.h"
#include "runtime/executor.h"
#include "runtime/library.h"
#include "runtime/overlap.h"
#include "runtime/placement.h"

namespace tandem::runtime {

constexpr int64_t kOwnBlock = 128 << 10;  // bytes: a smaller temporary is not worth a request

class Execution {
 public:
  explicit Execution(const LoadedProgram& loaded);

  /// Constants of the calls from here on. Gives those of before.
  std::shared_ptr<ConstantSet> use(const std::shared_ptr<ConstantSet>& constants);
  const std::shared_ptr<ConstantSet>& constants() const { return constants_; }
  bool is_retired() const { return constants_ != nullptr && constants_->is_retired(); }
  /// Compares the arguments with what the program takes.
  void bind(std::span<const Argument> arguments);
  /// `dropped`: the arguments again where their arrays may be let go after their last use, or none.
  /// `places`: by output where it should lie; one that has memory of its own of these strides is
  /// written there.
  std::vector<Result> run(std::span<const Argument> arguments, std::span<Argument> dropped,
                          std::span<const std::optional<Array>> places = {});
  /// From here on the memory of temporaries stays from call to call, or goes after each.
  void keep_frame(bool keeps);
  /// See LoadedProgram::call_memory.
  CallMemory memory(std::span<const int64_t> freed);
  /// See LoadedProgram::call_timeline.
  CallTimeline timeline(std::span<const int64_t> freed);
  int64_t arena_bytes() const { return arena_bytes_; }
  std::vector<LibraryCallReport> library_calls() const;

 private:
  static constexpr int64_t kParallelNanoseconds = 5000;  // less work stays on one thread
  /// A TensorRef with its numbers.
  struct View {
    uint32_t buffer = 0;
    DType dtype = DType::f32;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset = 0;  // elements
  };
  struct LaunchState {
    const abi::Launch* launch = nullptr;
    abi::KernelFunction kernel = nullptr;
    std::vector<void*> pointers;
    std::vector<int64_t> sizes;
    int64_t tasks = 0;
    int64_t work = 0;  // nanoseconds, at least 1
    bool is_parallel = false;
    uint32_t level = 0;
  };
  static constexpr uint32_t kNoLaunch = UINT32_MAX;
  struct LibraryState {
    const abi::LibraryCall* call = nullptr;
    LibrarySite site;
    LibraryPlan* plan = nullptr;
    Array packed{};                 // its weight, where the plan wants a constant one packed
    uint32_t follower = kNoLaunch;  // the launch that runs along
    std::vector<View> views{};      // args, then out
    std::vector<void*> pointers{};
    uint32_t level = 0;
  };
  struct ControlState {
    const abi::Control* control = nullptr;
    std::vector<View> args;
    std::vector<View> results;
    std::vector<std::vector<int64_t>> sizes;  // by callee
    uint32_t level = 0;
  };
  struct HostState {
    const abi::HostCall* call = nullptr;
    std::vector<View> args;
    std::vector<View> results;
    std::vector<int64_t> sizes;
    uint32_t level = 0;
  };
  struct ReadState {
    const abi::ReadScalar* read = nullptr;
    View source;
    uint32_t instruction = 0;
    uint32_t level = 0;  // of the source
  };
  enum class StepKind : uint8_t { launch, library, host, control, read };
  struct Step {
    StepKind kind;
    uint32_t index;
    uint32_t instruction;        // the first one of the program that it runs
    uint32_t count = 1;          // launches side by side
    std::vector<uint32_t> born;  // buffers with blocks of their own that get them before it
    std::vector<uint32_t> over;  // those that take over the blocks of others then, where they can
    std::vector<uint32_t> dead;  // buffers whose memory is let go after it
  };
  struct BufferState {
    abi::BufferKind kind;
    uint32_t index;      // input or constant
    uint32_t level = 0;  // of its size: those that wait for a read have blocks of their own
    int64_t bytes = 0;
    int64_t offset = 0;      // temporaries: in the arena
    bool has_block = false;  // outputs and large temporaries
  };
  /// A kernel argument that reads a cheap slot: evaluated at every call.
  struct ScalarArgument {
    const abi::SizeCode* code;
    uint32_t launch;
    uint32_t index;
  };
  /// Working memory of each thread.
  struct Scratch {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    std::byte* of_thread(int64_t number) const {
      return data == nullptr ? nullptr : data + number * bytes;
    }
  };
  /// A staged input: what the kernels see instead of the caller's array.
  struct StagedInput {
    uint32_t input;
    Array copy;
  };

  const abi::Program& program() const { return loaded_.program(); }
  void make_steps();
  void make_step(uint32_t number);
  void add_step(StepKind kind, size_t index, uint32_t instruction);
  void find_scalar_arguments(uint32_t launch);

  // Before anything runs.
  void bind_scalar(uint32_t index, const Argument& argument);
  void set_slot(int64_t slot, int64_t value);
  void check_array(uint32_t index, const Argument& argument) const;
  void check_sizes(std::span<const Argument> arguments) const;
  void check_guards() const;

  // For new sizes.
  void resolve();
  void resolve_level(uint32_t level);
  void resolve_arena();
  void plan_blocks();
  void give_blocks_to_taken();
  bool takes_over_in_arena(uint32_t buffer) const;
  bool takes_over_block(uint32_t buffer) const;
  uint32_t first_in_place(uint32_t buffer) const;
  std::vector<Lifetime> arena_lifetimes() const;
  uint32_t first_instruction_with(const BufferState& state) const;
  size_t step_of(uint32_t instruction) const;
  int64_t resolve_launch(LaunchState& state) const;
  int64_t resolve_steps(uint32_t level);
  void resolve_libraries(uint32_t level);
  void resolve_results(uint32_t level);
  View view_of(const abi::Output& output) const;
  void resolve_host(HostState& state) const;
  void resolve_control(ControlState& state) const;
  int64_t most_of_bodies(const ControlState& state) const;
  int64_t taken(uint32_t buffer) const;
  int64_t frame_block() const;
  int64_t taken_inside(const Step& step) const;
  int64_t taken_over(const Step& step, std::span<const int64_t> freed) const;
  bool is_handed_on(uint32_t buffer, std::span<const int64_t> freed) const;
  std::vector<int64_t> held_bytes(std::span<const int64_t> freed) const;
  void add_blocks(CallTimeline& made, std::span<const int64_t> freed) const;
  void add_arena(CallTimeline& made) const;
  void pack_weights(uint32_t level);
  View resolve(const abi::TensorRef& ref, DType dtype) const;
  View resolve(const abi::TensorRef& ref) const;
  int64_t value(const abi::SizeCode& code) const;

  // At every call.
  bool matches(uint32_t input, const Array& array) const;
  Array staged_copy(uint32_t input, const Array& array) const;
  void point_inputs(std::span<const Argument> arguments);
  const Array& seen_input(std::span<const Argument> arguments, uint32_t input) const;
  void point_buffers(std::span<const Argument> arguments, std::byte* arena);
  void* address(const View& view) const;
  void use_places(std::span<const std::optional<Array>> places);
  void take_block(uint32_t buffer);
  std::shared_ptr<const Storage> given_up(uint32_t buffer, std::span<const Argument> dropped) const;
  void take_over(uint32_t buffer, std::span<const Argument> dropped);
  void let_go(uint32_t buffer, std::span<Argument> dropped);
  void run_steps(std::span<Argument> dropped);
  void run_step(const Step& step);
  void run_profiled(const Step& step);
  void run_traced(std::span<Argument> dropped);
  void run_with_blocks(const Step& step, std::span<Argument> dropped);
  void run_launch(LaunchState& state) const;
  int64_t run_team(const LaunchState& state) const;
  void point_launch(LaunchState& state) const;
  void run_beside(std::span<LaunchState> launches) const;
  void run_library(LibraryState& state);
  void run_followed(LibraryState& state);
  void read_scalar(const ReadState& state);
  void run_host(const HostState& state) const;
  void run_control(const ControlState& state) const;
  Array array_at(const View& view) const;
  std::vector<Array> arrays_at(const std::vector<View>& views) const;
  void write_back(std::span<const Argument> arguments) const;
  std::vector<Result> results(std::span<const Argument> arguments);
  std::byte* take_frame();
  void drop_frame();

  const LoadedProgram& loaded_;
  Overlap overlap_;
  std::shared_ptr<ConstantSet> constants_;
  bool is_resolved_ = false;
  bool is_packed_ = false;  // library calls have the weights that their plans want
  std::vector<int64_t> slots_;
  std::vector<Step> steps_;
  std::vector<LaunchState> launches_;
  std::vector<LibraryState> libraries_;
  std::vector<HostState> hosts_;
  std::vector<ControlState> controls_;
  std::vector<ReadState> reads_;
  std::vector<uint32_t> unborn_;  // buffers with a block of their own that no step uses
  std::vector<BufferState> buffers_;
  std::vector<void*> bases_;  // of each buffer, this call
  std::vector<std::vector<int64_t>> input_strides_;
  std::vector<View> output_views_;
  std::vector<View> write_back_views_;
  std::vector<ScalarArgument> scalar_arguments_;
  int64_t arena_bytes_ = 0;
  int64_t scratch_bytes_ = 0;  // per thread

  std::optional<ScopedBlock> frame_;  // arena, then scratch of the team
  int64_t frame_bytes_ = 0;
  bool keeps_frame_ = false;

  // Of the running call only.
  Scratch scratch_;
  std::optional<ScopedBlock> late_scratch_;  // where a launch needs more than was known at first
  std::vector<std::shared_ptr<const Storage>> blocks_;  // by buffer; of those that have one
  std::vector<StagedInput> staged_;
  std::vector<void*> places_;  // by buffer; of outputs that the caller has memory for
  int64_t bytes_before_ = 0;   // of the allocator; where memory is traced
};

}  // namespace tandem::runtime
