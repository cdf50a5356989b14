// Runs a compiled Program in this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "abi/program.h"
#include "runtime/array.h"
#include "runtime/memory_trace.h"
#include "runtime/profile.h"

namespace tandem::runtime {

/// What a program takes and gives: a tensor, an i64 or an f64.
using Value = std::variant<Array, int64_t, double>;
using Argument = Value;
using Result = Value;

/// What a HostCall runs, on the calling thread: reads arguments, writes results (both valid only
/// during the call). What it throws ends the program's call.
using HostFunction =
    std::function<void(std::span<const Array> arguments, std::span<const int64_t> sizes,
                       std::span<const Array> results)>;

/// Where temporaries live.
enum class ProgramMemory : uint8_t {
  arena,   // in one block for the length of a call, at places planned once
  blocks,  // large ones in blocks of their own from first to last use, out of memory that arguments
           // let go and for results that are made later
};

class ConstantSet;
class Execution;
inline constexpr uint32_t kNoBuffer = UINT32_MAX;
using ConstantValues = std::map<std::string, Array>;

/// What became of the library calls of a program in its latest execution, for logs.
struct LibraryCallReport {
  std::string label;
  std::string implementation;
  int64_t flops = 0;
  int64_t tasks = 0;
  int64_t staged_bytes = 0;  // activations and factors that are reordered at each call
  int64_t weight_bytes = 0;  // convolution weights that are
};

/// What a call takes from the allocator, in bytes that requests really take.
struct CallMemory {
  int64_t most = 0;     // at once: temporaries, scratch of the team, results
  int64_t results = 0;  // outlive the call
};

/// What a call holds and for how long, step by step.
struct CallTimeline {
  struct Block {
    std::string label;
    int64_t bytes = 0;   // that the request really takes
    uint32_t first = 0;  // steps that it is held in, both included; where step 0 makes a result in
                         // the memory of an argument, `last` of that is one less, modulo 2^32
    uint32_t last = 0;
    int64_t output = -1;    // of the program, whose memory it is
    int64_t input = -1;     // whose array is let go behind `last`
    bool in_arena = false;  // its bytes are part of those of the arena
  };
  std::vector<std::string> steps;
  std::vector<int64_t> held;  // at each step, at most
  std::vector<Block> blocks;  // in no order of time
};

/// A program with its kernels and constants, ready to be called once its constants are given. Calls
/// may come from several threads and any number of results may be alive. Kernels see 64-byte
/// aligned temporaries and outputs; inputs and given constants are only as aligned as their
/// elements.
class LoadedProgram {
 public:
  /// `kernels[i]` is the code of program.kernels[i]; `setup_kernels` those of program.setup. A
  /// program that contradicts itself raises UserError. Where no constant has to be given, setup
  /// runs here.
  LoadedProgram(abi::Program program, std::vector<abi::KernelFunction> kernels,
                std::vector<abi::KernelFunction> setup_kernels = {});
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;
  ~LoadedProgram();

  /// One argument for each input, in order; one result for each output. UserError for arguments
  /// that do not fit, a guard that fails or a check that fails in a kernel; inputs that only
  /// write-backs change are then as they were; OverlapError where an input that is written shares
  /// memory with another one. Arrays of other strides than the program assumes are
  /// copied, and copied back when mutated; one that an output is a view of must have the assumed
  /// strides. A call may be interrupted (base/interrupt.h) as long as no input was written; the
  /// team keeps the size that it has at the start.
  std::vector<Result> run(std::span<const Argument> arguments);
  /// The same with these constants, whatever bind_constants gave before or gives meanwhile.
  std::vector<Result> run(std::span<const Argument> arguments,
                          std::shared_ptr<ConstantSet> constants);
  /// The same. Lets each array go after its last use, so that later temporaries and results may be
  /// in the memory of arrays that nobody else holds.
  std::vector<Result> run_and_drop(std::vector<Argument> arguments);

  /// UserError for arguments whose kinds or sizes do not fit.
  void check(std::span<const Argument> arguments);

  /// Whether a call looks first if an input that it writes shares memory with another one. It does,
  /// but for who calls with an answer of his own (runtime/overlap.h). Before the first run.
  void set_checks_overlap(bool checks) { checks_overlap_ = checks; }
  /// Before the first run.
  void set_memory(ProgramMemory memory) { memory_ = memory; }
  /// By the number that a HostCall has; before the first run.
  void set_host_functions(std::vector<HostFunction> functions) {
    host_functions_ = std::move(functions);
  }

  /// Names of the constants that bind_constants gives, in the order of the program.
  const std::vector<std::string>& constant_names() const { return given_names_; }
  /// Gives constants their values, and runs setup. Names not given keep their value; names that the
  /// program does not read are left alone. An array is not copied where it has the strides that the
  /// program assumes: it is kept alive, and must not change while a call runs. UserError names what
  /// is missing or does not fit, and then nothing has changed.
  void bind_constants(const ConstantValues& values);
  /// Runs setup on these values, all of constant_names(), for calls that name the set; the
  /// program's own constants stay as they are.
  std::shared_ptr<ConstantSet> make_constants(const ConstantValues& values);
  /// No call will name the set again: what waits for calls lets go of it.
  void retire(ConstantSet& constants);
  /// After the given arrays were written: runs setup again and drops packed weights. Calls that run
  /// at that time may see old and new values.
  void refresh() { bind_constants({}); }
  int64_t setup_runs() const;
  /// Of results of setup and of arrays that had to be copied.
  int64_t constant_bytes() const;
  /// Of weights in layouts of the library, at present.
  int64_t packed_bytes() const;

  const abi::Program& program() const { return program_; }
  /// Numbers of the inputs that a call writes, in rising order.
  const std::vector<size_t>& written_inputs() const { return written_inputs_; }
  /// No argument tells a size, neither by its own sizes nor as a scalar.
  bool has_known_sizes() const;
  /// Of a call with the team of the caller, without running it; sizes must be known, kernels may be
  /// null. `freed`: by input, the bytes that run_and_drop gives back when it lets go of it; or
  /// none. Copies of arguments that lie otherwise are not counted.
  CallMemory call_memory(std::span<const int64_t> freed = {}) const;
  /// The same, told in full.
  CallTimeline call_timeline(std::span<const int64_t> freed = {}) const;
  /// From here on each call writes down what the process's allocator holds at its steps, at most.
  void start_memory_trace() { trace_.start(); }
  MemoryTrace::Call memory_trace() const { return trace_.last(); }
  /// Bytes of the arena in the execution used last.
  int64_t arena_bytes() const;
  std::vector<LibraryCallReport> library_calls() const;
  /// Times instructions from here on.
  void start_profile() { profile_.start(program_); }
  std::vector<InstructionTime> profile() const { return profile_.times(); }

 private:
  friend class Execution;
  friend class Frame;
  /// An input's size that gives a slot its value, or must equal its size code.
  struct SizeStep {
    uint32_t input;
    uint32_t dim;
    int64_t slot;  // -1: compare
  };

  /// The first and the last instruction that uses a buffer. What lies behind the last instruction
  /// (the outputs and write-backs, or no use at all) counts as one more.
  struct BufferLife {
    uint32_t first_use = 0;
    uint32_t last_use = 0;
  };

  /// A body of `whole`, which has its kernels, and the bodies that it may call.
  LoadedProgram(abi::Program body, const LoadedProgram& whole);
  void load(std::vector<abi::KernelFunction> setup_kernels);
  void load_bodies();
  std::vector<Result> run(std::span<const Argument> arguments, std::span<Argument> dropped,
                          std::shared_ptr<ConstantSet> constants);
  /// Nothing after the last instruction that uses the buffer needs what it has.
  bool may_drop(abi::BufferKind kind, uint32_t input) const;
  void find_takeovers();
  bool may_take_over(const abi::Launch& launch, uint32_t at, uint32_t written, uint32_t read) const;
  void find_lifetimes();
  void plan_binding();
  void find_levels(std::vector<char>& is_bound);
  void check_levels() const;
  /// The number of reads that it waits for; 0: all is known at the start of a call.
  uint32_t level_of(const abi::SizeCode& code) const;
  uint32_t level_of(const abi::TensorRef& ref) const;
  uint32_t level_of(const abi::Instruction& instruction) const;
  void find_written_inputs();
  void find_first_write(const std::vector<char>& is_target);
  void load_constants(std::vector<abi::KernelFunction> setup_kernels);
  void find_given_names();
  void check_constants(const ConstantValues& values) const;
  std::shared_ptr<ConstantSet> run_setup(const ConstantValues& values);
  void publish(std::shared_ptr<ConstantSet> constants);
  std::unique_ptr<Execution> take_execution(std::shared_ptr<ConstantSet> constants);
  std::unique_ptr<Execution> take_idle(const std::shared_ptr<ConstantSet>& constants);
  void give_execution(std::unique_ptr<Execution> execution);

  mutable Profile profile_;    // counts what const executions do
  mutable MemoryTrace trace_;  // the same
  abi::Program program_;
  std::vector<abi::KernelFunction> kernels_;
  std::vector<std::unique_ptr<LoadedProgram>> bodies_;
  const std::vector<std::unique_ptr<LoadedProgram>>* callees_;  // own bodies, or those of the whole
  std::vector<HostFunction> host_functions_;
  std::vector<Array> stored_constants_;  // by number; those whose bytes the program has
  std::vector<std::string> given_names_;
  std::mutex bind_mutex_;                 // one setup at a time
  ConstantValues given_;                  // of given_names_
  std::unique_ptr<LoadedProgram> setup_;  // null when the program has none
  std::vector<SizeStep> bind_steps_;
  std::vector<SizeStep> check_steps_;
  std::vector<uint32_t> slot_levels_;   // 0: arguments tell it; else the number of its ReadScalar
  std::vector<uint32_t> level_begins_;  // the first instruction of each level
  std::vector<char> is_cheap_slot_;  // scalars that only kernel arguments and scalar outputs read
  std::vector<char> is_written_;     // inputs that are mutated
  std::vector<size_t> written_inputs_;  // their numbers
  bool checks_overlap_ = true;
  std::vector<char> has_view_;        // inputs that an output is a view of
  bool write_backs_overlap_ = false;  // a write-back reads an input that one writes
  ProgramMemory memory_ = ProgramMemory::arena;
  std::vector<BufferLife> lifetimes_;  // by buffer
  std::vector<uint32_t> takes_over_;   // by buffer: the one whose memory it may take, or none
  uint32_t first_write_ = 0;           // instruction that writes an input in place; none: the end
  std::atomic<int64_t> duration_{0};   // of the last call, ns
  // Guarded by ForkLock::executions.
  std::vector<std::unique_ptr<Execution>> idle_;  // used last comes last
  std::shared_ptr<ConstantSet> constants_;        // null until they are given
  int64_t setup_runs_ = 0;
};

}  // namespace tandem::runtime
