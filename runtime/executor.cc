// Loading: everything that can be known before the first call is found here once. A program may
// come from a file, so its numbers are verified before they are used as indices. Then: which input
// sizes bind slots and which are compared, which scalars can change without a new resolution of
// sizes, which inputs change. Constants that the caller has to give come later: then the setup
// program runs where there is one, and its results are shared by all executions. A call takes an
// idle Execution, or makes one when all are busy.
#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/constants.h"
#include "runtime/execution.h"
#include "runtime/fork.h"
#include "runtime/openmp_threads.h"
#include "runtime/parallel_for.h"
#include "runtime/size_code.h"

namespace tandem::runtime {
namespace {

using abi::SizeCode;

// What changes when a code's value changes: sizes and layout, or only a number that is passed on.
enum class Use : uint8_t { structure, passed_on };

template <class F>
void visit_ref(const abi::TensorRef& ref, const F& visit) {
  for (const SizeCode& code : ref.sizes) visit(code, Use::structure);
  for (const SizeCode& code : ref.strides) visit(code, Use::structure);
  visit(ref.offset, Use::structure);
}

template <class F>
void visit_instruction(const abi::Instruction& instruction, const F& visit) {
  if (const abi::Launch* launch = std::get_if<abi::Launch>(&instruction)) {
    for (const SizeCode& code : launch->sizes) visit(code, Use::passed_on);
    visit(launch->tasks, Use::structure);
    visit(launch->work, Use::structure);
    visit(launch->scratch_bytes, Use::structure);
    visit(launch->block.shared_bytes, Use::structure);
  } else if (const abi::LibraryCall* call = std::get_if<abi::LibraryCall>(&instruction)) {
    for (const abi::TensorRef& ref : call->args) visit_ref(ref, visit);
    visit_ref(call->out, visit);
  } else if (const abi::HostCall* host = std::get_if<abi::HostCall>(&instruction)) {
    for (const abi::TensorRef& ref : host->args) visit_ref(ref, visit);
    for (const SizeCode& code : host->sizes) visit(code, Use::structure);
    for (const abi::TensorRef& ref : host->results) visit_ref(ref, visit);
  } else if (const abi::Control* control = std::get_if<abi::Control>(&instruction)) {
    for (const abi::TensorRef& ref : control->args) visit_ref(ref, visit);
    for (const abi::TensorRef& ref : control->results) visit_ref(ref, visit);
    for (const abi::Callee& callee : control->callees)
      for (const SizeCode& code : callee.sizes) visit(code, Use::structure);
    visit(control->seed, Use::passed_on);
  } else {
    visit_ref(std::get<abi::ReadScalar>(instruction).source, visit);
  }
}

// Every size code of the program; empty ones mean 0.
template <class F>
void visit_codes(const abi::Program& program, const F& visit) {
  for (const abi::Input& input : program.inputs) {
    for (const SizeCode& code : input.sizes) visit(code, Use::structure);
    for (const SizeCode& code : input.strides) visit(code, Use::structure);
  }
  for (const abi::Guard& guard : program.guards) {
    visit(guard.left, Use::structure);
    visit(guard.right, Use::structure);
  }
  for (const abi::Buffer& buffer : program.buffers) visit(buffer.bytes, Use::structure);
  for (const abi::Instruction& instruction : program.instructions)
    visit_instruction(instruction, visit);
  for (const abi::Output& output : program.outputs) {
    visit_ref(output.ref, visit);
    visit(output.scalar, Use::passed_on);
  }
  for (const abi::WriteBack& write_back : program.write_backs) visit_ref(write_back.src, visit);
}

constexpr uint32_t kMostSlots = 1 << 20;  // a damaged number must not take all memory

using BodyPointer = std::unique_ptr<LoadedProgram>;

// Verifies the numbers of a program from outside.
class Verifier {
 public:
  /// `bodies`: those that the program may call.
  Verifier(const abi::Program& program, size_t kernels, std::span<const BodyPointer> bodies)
      : program_(program), kernels_(kernels), bodies_(bodies) {}

  void run() const {
    expect(program_.slots <= kMostSlots, "it has too many slots");
    visit_codes(program_, [&](const SizeCode& code, Use) {
      expect(code.empty() || is_well_formed(code, program_.slots), "a size code is malformed");
    });
    for (const abi::Input& input : program_.inputs)
      expect(input.is_scalar ? input.scalar_slot < program_.slots
                             : input.sizes.size() == input.strides.size(),
             "input '" + input.name + "' is malformed");
    for (const abi::Buffer& buffer : program_.buffers) check_buffer(buffer);
    const abi::Instruction* before = nullptr;
    for (const abi::Instruction& instruction : program_.instructions) {
      check(instruction);
      check_neighbours(before, instruction);
      before = &instruction;
    }
    for (const abi::Output& output : program_.outputs) check_output(output);
    for (const abi::WriteBack& write_back : program_.write_backs) {
      check_tensor_input(write_back.input);
      check_ref(write_back.src);
    }
  }

 private:
  void expect(bool condition, const std::string& what) const {
    if (!condition) throw UserError("program '" + program_.name + "' is damaged: " + what);
  }
  void check_tensor_input(uint32_t input) const {
    expect(input < program_.inputs.size() && !program_.inputs[input].is_scalar,
           "input " + std::to_string(input) + " is no tensor");
  }
  void check_buffer(const abi::Buffer& buffer) const {
    if (buffer.kind == abi::BufferKind::input) check_tensor_input(buffer.index);
    if (buffer.kind == abi::BufferKind::constant)
      expect(buffer.index < program_.constants.size(),
             "no constant " + std::to_string(buffer.index));
  }
  void check_ref(const abi::TensorRef& ref) const {
    expect(ref.buffer < program_.buffers.size(), "no buffer " + std::to_string(ref.buffer));
    expect(ref.sizes.size() == ref.strides.size(), "sizes and strides differ in number");
  }
  void check(const abi::Instruction& instruction) const {
    if (const abi::Launch* launch = std::get_if<abi::Launch>(&instruction)) {
      expect(launch->kernel < kernels_, "no kernel " + std::to_string(launch->kernel));
      if (launch->block.threads != 0)
        throw UserError("[runtime] kernel '" + program_.kernels[launch->kernel].symbol +
                        "' is of blocks of threads, for a GPU: this executor runs on the "
                        "processor, and has no device");
      for (const uint32_t buffer : launch->buffers)
        expect(buffer < program_.buffers.size(), "no buffer " + std::to_string(buffer));
      for (const abi::TakeOver& pair : launch->takeovers)
        expect(std::max(pair.written, pair.read) < launch->buffers.size(),
               "a launch has no such buffer to write over");
    } else if (const abi::LibraryCall* call = std::get_if<abi::LibraryCall>(&instruction)) {
      for (const abi::TensorRef& ref : call->args) check_ref(ref);
      check_ref(call->out);
    } else if (const abi::HostCall* host = std::get_if<abi::HostCall>(&instruction)) {
      for (const abi::TensorRef& ref : host->args) check_ref(ref);
      for (const abi::TensorRef& ref : host->results) check_ref(ref);
    } else if (const abi::Control* control = std::get_if<abi::Control>(&instruction)) {
      for (const abi::TensorRef& ref : control->args) check_ref(ref);
      for (const abi::TensorRef& ref : control->results) check_ref(ref);
      check_control(*control);
    } else {
      const abi::ReadScalar& read = std::get<abi::ReadScalar>(instruction);
      check_ref(read.source);
      const DType dtype = program_.buffers[read.source.buffer].dtype;
      expect((dtype == DType::i64 || dtype == DType::f64) && read.slot < program_.slots,
             "the number " + read.name + " is malformed");
    }
  }
  void check_backward(const abi::Control& control) const {
    const size_t results = control.results.size();
    expect(control.callees.size() == 3 && control.args.size() >= control.carried + results &&
               control.callees[1].body < bodies_.size(),
           "the gradient of a loop is malformed");
    const size_t given = control.args.size() - results;
    const size_t gives = bodies_[control.callees[1].body]->program().outputs.size();
    expect(gives >= control.carried, "the gradient of a loop keeps nothing of a step");
    check_callee(control.callees[0], given, 1);
    check_callee(control.callees[1], given, gives);
    check_callee(control.callees[2], results + gives - control.carried + given - control.carried,
                 results);
  }
  void check_control(const abi::Control& control) const {
    if (control.kind == abi::Control::Kind::repeat_backward) return check_backward(control);
    const bool is_rows = control.kind == abi::Control::Kind::rows;
    const bool is_branch = control.kind == abi::Control::Kind::branch;
    const bool has_one = is_rows || control.kind == abi::Control::Kind::call;
    const size_t given = control.args.size() - (is_branch && !control.args.empty() ? 1 : 0);
    expect(control.callees.size() == (has_one ? 1 : 2) && (!is_branch || !control.args.empty()) &&
               size_t{control.carried} + control.rows <= given && is_rows == (control.rows > 0) &&
               control.carried <= control.results.size() &&
               (control.kind != abi::Control::Kind::repeat ||
                control.carried == control.results.size()),
           "a loop, branch or call is malformed");
    for (size_t i = 0; i < control.callees.size(); ++i) {
      const bool is_condition = control.kind == abi::Control::Kind::repeat && i == 0;
      check_callee(control.callees[i], given, is_condition ? 1 : control.results.size());
    }
  }
  void check_callee(const abi::Callee& callee, size_t given, size_t results) const {
    expect(callee.body < bodies_.size(), "no body " + std::to_string(callee.body));
    const abi::Program& body = bodies_[callee.body]->program();
    const size_t inputs = given + callee.sizes.size() + (callee.takes_seed ? 1 : 0);
    expect(body.inputs.size() == inputs && body.outputs.size() == results,
           "body '" + body.name + "' does not fit its call");
    for (size_t i = 0; i < inputs; ++i)
      expect(body.inputs[i].is_scalar == (i >= given),
             "input " + std::to_string(i) + " of body '" + body.name + "' does not fit its call");
    for (const abi::Output& output : body.outputs)
      expect(output.kind != abi::Output::Kind::scalar, "body '" + body.name + "' gives a number");
  }
  void check_neighbours(const abi::Instruction* before, const abi::Instruction& next) const {
    const abi::Launch* const launch = std::get_if<abi::Launch>(&next);
    if (launch == nullptr) return;
    const bool is_behind = before != nullptr && std::holds_alternative<abi::Launch>(*before);
    expect(!launch->beside || is_behind, "a launch beside nothing");
    const bool is_behind_call =
        before != nullptr && std::holds_alternative<abi::LibraryCall>(*before);
    expect(!launch->follows || (is_behind_call && !launch->beside && launch->errors.empty()),
           "a launch along nothing, or one that may fail");
  }
  void check_output(const abi::Output& output) const {
    if (output.kind == abi::Output::Kind::tensor) {
      check_ref(output.ref);
      expect(program_.buffers[output.ref.buffer].kind == abi::BufferKind::output,
             "output '" + output.name + "' is in no output buffer");
    } else if (output.kind != abi::Output::Kind::scalar) {
      if (output.kind == abi::Output::Kind::input_view) check_tensor_input(output.input);
      if (output.kind == abi::Output::Kind::constant_view)
        expect(output.input < program_.constants.size(),
               "no constant " + std::to_string(output.input));
      expect(output.ref.sizes.size() == output.ref.strides.size(), "an output view is malformed");
    }
  }

  const abi::Program& program_;
  size_t kernels_;
  std::span<const BodyPointer> bodies_;
};

}  // namespace

LoadedProgram::LoadedProgram(abi::Program program, std::vector<abi::KernelFunction> kernels,
                             std::vector<abi::KernelFunction> setup_kernels)
    : program_(std::move(program)), kernels_(std::move(kernels)), callees_(&bodies_) {
  if (kernels_.size() != program_.kernels.size())
    throw UserError("program '" + program_.name + "' is damaged: the number of kernels differs");
  load_bodies();
  load(std::move(setup_kernels));
}

LoadedProgram::LoadedProgram(abi::Program body, const LoadedProgram& whole)
    : program_(std::move(body)), kernels_(whole.kernels_), callees_(&whole.bodies_) {
  if (!program_.bodies.empty() || !program_.constants.empty() || program_.setup != nullptr)
    throw UserError("body '" + program_.name + "' is damaged: it has constants or bodies");
  load({});
}

void LoadedProgram::load(std::vector<abi::KernelFunction> setup_kernels) {
  Verifier(program_, kernels_.size(), *callees_).run();
  find_lifetimes();
  plan_binding();
  find_written_inputs();
  find_takeovers();
  load_constants(std::move(setup_kernels));
}

// A body may call those before it, which is what its verifier sees of them.
void LoadedProgram::load_bodies() {
  for (const std::shared_ptr<abi::Program>& body : program_.bodies) {
    if (body == nullptr)
      throw UserError("program '" + program_.name + "' is damaged: a body is missing");
    bodies_.emplace_back(new LoadedProgram(*body, *this));
  }
}

LoadedProgram::~LoadedProgram() = default;

void LoadedProgram::plan_binding() {
  std::vector<char> is_bound(program_.slots, 0);
  std::vector<char> is_scalar(program_.slots, 0);
  for (const abi::Input& input : program_.inputs)
    if (input.is_scalar) is_bound[input.scalar_slot] = is_scalar[input.scalar_slot] = 1;
  for (uint32_t i = 0; i < program_.inputs.size(); ++i) {
    const abi::Input& input = program_.inputs[i];
    for (uint32_t dim = 0; !input.is_scalar && dim < input.sizes.size(); ++dim) {
      const int64_t slot = single_slot(input.sizes[dim]);
      const bool binds = slot >= 0 && is_bound[static_cast<size_t>(slot)] == 0;
      (binds ? bind_steps_ : check_steps_).push_back({i, dim, binds ? slot : -1});
      if (binds) is_bound[static_cast<size_t>(slot)] = 1;
    }
  }
  is_cheap_slot_ = std::move(is_scalar);
  find_levels(is_bound);
  visit_codes(program_, [&](const SizeCode& code, Use use) {
    for (const abi::SizeInstruction& instruction : code) {
      if (instruction.op != abi::SizeInstruction::Op::slot) continue;
      const size_t slot = static_cast<size_t>(instruction.value);
      if (use == Use::structure) is_cheap_slot_[slot] = 0;
      if (is_bound[slot] == 0)
        throw UserError("program '" + program_.name + "' is damaged: no input binds s" +
                        std::to_string(slot));
    }
  });
}

// A slot that an instruction reads is there behind it. Such a read begins a level, and what is
// resolved of a level reads slots of no later one. A slot that has a value before is compared.
void LoadedProgram::find_levels(std::vector<char>& is_bound) {
  slot_levels_.assign(program_.slots, 0);
  level_begins_ = {0};
  uint32_t number = 0;  // of instructions seen
  for (const abi::Instruction& instruction : program_.instructions) {
    visit_instruction(instruction, [&](const SizeCode& code, Use) {
      for (const abi::SizeInstruction& part : code)
        if (part.op == abi::SizeInstruction::Op::slot &&
            is_bound[static_cast<size_t>(part.value)] == 0)
          throw UserError("program '" + program_.name + "' is damaged: nothing gives s" +
                          std::to_string(part.value) + " its value before it is used");
    });
    ++number;
    const abi::ReadScalar* read = std::get_if<abi::ReadScalar>(&instruction);
    if (read == nullptr || is_bound[read->slot] != 0) continue;
    is_bound[read->slot] = 1;
    slot_levels_[read->slot] = static_cast<uint32_t>(level_begins_.size());
    level_begins_.push_back(number);
  }
  check_levels();
}

// What is compared before a call, and memory that is used, has sizes that are known there.
void LoadedProgram::check_levels() const {
  const auto expect = [&](bool holds) {
    if (!holds)
      throw UserError("program '" + program_.name +
                      "' is damaged: a size is used before it is read");
  };
  for (const abi::Input& input : program_.inputs)
    for (const std::vector<SizeCode>* codes : {&input.sizes, &input.strides})
      for (const SizeCode& code : *codes) expect(level_of(code) == 0);
  for (const abi::Guard& guard : program_.guards)
    expect(level_of(guard.left) == 0 && level_of(guard.right) == 0);
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const uint32_t level = level_of(program_.buffers[i].bytes);
    expect(level == 0 || lifetimes_[i].first_use >= level_begins_[level]);
  }
}

uint32_t LoadedProgram::level_of(const SizeCode& code) const {
  uint32_t level = 0;
  for (const abi::SizeInstruction& part : code)
    if (part.op == abi::SizeInstruction::Op::slot)
      level = std::max(level, slot_levels_[static_cast<size_t>(part.value)]);
  return level;
}

uint32_t LoadedProgram::level_of(const abi::TensorRef& ref) const {
  uint32_t level = 0;
  visit_ref(ref, [&](const SizeCode& code, Use) { level = std::max(level, level_of(code)); });
  return level;
}

uint32_t LoadedProgram::level_of(const abi::Instruction& instruction) const {
  uint32_t level = 0;
  visit_instruction(instruction,
                    [&](const SizeCode& code, Use) { level = std::max(level, level_of(code)); });
  return level;
}

void LoadedProgram::find_written_inputs() {
  is_written_.assign(program_.inputs.size(), 0);
  has_view_.assign(program_.inputs.size(), 0);
  for (size_t i = 0; i < program_.inputs.size(); ++i) is_written_[i] = program_.inputs[i].mutated;
  std::vector<char> is_target(program_.inputs.size(), 0);
  for (const abi::WriteBack& write_back : program_.write_backs)
    is_written_[write_back.input] = is_target[write_back.input] = 1;
  for (size_t i = 0; i < is_written_.size(); ++i)
    if (is_written_[i] != 0) written_inputs_.push_back(i);
  for (const abi::Output& output : program_.outputs)
    if (output.kind == abi::Output::Kind::input_view) has_view_[output.input] = 1;
  for (const abi::WriteBack& write_back : program_.write_backs) {
    const abi::Buffer& source = program_.buffers[write_back.src.buffer];
    if (source.kind == abi::BufferKind::input && is_target[source.index] != 0)
      write_backs_overlap_ = true;
  }
  find_first_write(is_target);
}

namespace {

template <class F>
void visit_buffers(const abi::Instruction& instruction, const F& visit) {
  const auto visit_all = [&](const std::vector<abi::TensorRef>& refs) {
    for (const abi::TensorRef& ref : refs) visit(ref.buffer);
  };
  if (const abi::Launch* launch = std::get_if<abi::Launch>(&instruction)) {
    for (const uint32_t buffer : launch->buffers) visit(buffer);
  } else if (const abi::LibraryCall* call = std::get_if<abi::LibraryCall>(&instruction)) {
    visit_all(call->args);
    visit(call->out.buffer);
  } else if (const abi::HostCall* host = std::get_if<abi::HostCall>(&instruction)) {
    visit_all(host->args);
    visit_all(host->results);
  } else if (const abi::Control* control = std::get_if<abi::Control>(&instruction)) {
    visit_all(control->args);
    visit_all(control->results);
  } else {
    visit(std::get<abi::ReadScalar>(instruction).source.buffer);
  }
}

bool runs_with_previous(const abi::Instruction& instruction) {
  const abi::Launch* const launch = std::get_if<abi::Launch>(&instruction);
  return launch != nullptr && (launch->beside || launch->follows);
}

}  // namespace

// Memory is in use for as long as anything runs beside or along the instruction; what is written
// back, to the end.
void LoadedProgram::find_lifetimes() {
  const std::vector<abi::Instruction>& instructions = program_.instructions;
  const uint32_t end = static_cast<uint32_t>(instructions.size());
  lifetimes_.assign(program_.buffers.size(), {end, 0});
  for (uint32_t first = 0, next = 0; first < end; first = next) {
    for (next = first + 1; next < end && runs_with_previous(instructions[next]);) ++next;
    for (uint32_t at = first; at < next; ++at)
      visit_buffers(instructions[at], [&](uint32_t buffer) {
        BufferLife& life = lifetimes_[buffer];
        life = {std::min(life.first_use, first), next - 1};
      });
  }
  for (const abi::WriteBack& write_back : program_.write_backs)
    lifetimes_[write_back.src.buffer].last_use = end;
}

// An input that is changed and no target of a write-back is written over by the last instruction
// that uses it.
void LoadedProgram::find_first_write(const std::vector<char>& is_target) {
  first_write_ = static_cast<uint32_t>(program_.instructions.size());
  for (uint32_t i = 0; i < program_.buffers.size(); ++i) {
    const abi::Buffer& buffer = program_.buffers[i];
    if (buffer.kind != abi::BufferKind::input) continue;
    if (is_written_[buffer.index] == 0 || is_target[buffer.index] != 0) continue;
    if (lifetimes_[i].first_use < program_.instructions.size())
      first_write_ = std::min(first_write_, lifetimes_[i].last_use);
  }
}

// --- Calls ---

// One that ran with these constants last has its weights packed.
std::unique_ptr<Execution> LoadedProgram::take_idle(const std::shared_ptr<ConstantSet>& constants) {
  if (idle_.empty()) return nullptr;
  for (size_t i = idle_.size(); i-- > 0;)
    if (idle_[i]->constants() == constants) {
      std::swap(idle_[i], idle_.back());
      break;
    }
  std::unique_ptr<Execution> execution = std::move(idle_.back());
  idle_.pop_back();
  return execution;
}

std::unique_ptr<Execution> LoadedProgram::take_execution(std::shared_ptr<ConstantSet> constants) {
  std::unique_ptr<Execution> execution;
  {
    const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
    if (constants == nullptr) constants = constants_;
    if (constants != nullptr) execution = take_idle(constants);
  }
  if (constants == nullptr) check_constants({});
  if (execution == nullptr) execution = std::make_unique<Execution>(*this);
  execution->use(constants);  // the old set goes here, outside of the lock: that may call Python
  return execution;
}

void LoadedProgram::give_execution(std::unique_ptr<Execution> execution) {
  std::shared_ptr<ConstantSet> old;  // goes after the lock: that may call Python
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  if (execution->is_retired()) old = execution->use(constants_);
  idle_.push_back(std::move(execution));
}

bool LoadedProgram::may_drop(abi::BufferKind kind, uint32_t input) const {
  return kind == abi::BufferKind::input && is_written_[input] == 0 && has_view_[input] == 0;
}

std::vector<Result> LoadedProgram::run(std::span<const Argument> arguments) {
  return run(arguments, {}, nullptr);
}

std::vector<Result> LoadedProgram::run(std::span<const Argument> arguments,
                                       std::shared_ptr<ConstantSet> constants) {
  return run(arguments, {}, std::move(constants));
}

std::vector<Result> LoadedProgram::run_and_drop(std::vector<Argument> arguments) {
  return run(arguments, arguments, nullptr);
}

void LoadedProgram::check(std::span<const Argument> arguments) {
  std::unique_ptr<Execution> execution = take_execution(nullptr);
  execution->bind(arguments);
  give_execution(std::move(execution));
}

std::vector<Result> LoadedProgram::run(std::span<const Argument> arguments,
                                       std::span<Argument> dropped,
                                       std::shared_ptr<ConstantSet> constants) {
  if (is_team_lost()) [[unlikely]]
    warn_of_fork();
  const TeamSize team(threads());
  const CallBesideOpenMP call(duration_);
  // An execution that throws is dropped with whatever state it was in.
  std::unique_ptr<Execution> execution = take_execution(std::move(constants));
  std::vector<Result> results = execution->run(arguments, dropped);
  give_execution(std::move(execution));
  return results;
}

bool LoadedProgram::has_known_sizes() const {
  return std::ranges::all_of(is_cheap_slot_, [](char is_cheap) { return is_cheap != 0; });
}

CallMemory LoadedProgram::call_memory(std::span<const int64_t> freed) const {
  TD_CHECK(has_known_sizes()) << "memory of a program whose sizes its inputs tell";
  return Execution(*this).memory(freed);
}

CallTimeline LoadedProgram::call_timeline(std::span<const int64_t> freed) const {
  TD_CHECK(has_known_sizes()) << "memory of a program whose sizes its inputs tell";
  return Execution(*this).timeline(freed);
}

int64_t LoadedProgram::arena_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return idle_.empty() ? 0 : idle_.back()->arena_bytes();
}

std::vector<LibraryCallReport> LoadedProgram::library_calls() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return idle_.empty() ? std::vector<LibraryCallReport>{} : idle_.back()->library_calls();
}

}  // namespace tandem::runtime
