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
    visit_ref(std::get<abi::Copy>(instruction).src, visit);
    visit_ref(std::get<abi::Copy>(instruction).dst, visit);
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
    bool after_launch = false;
    for (const abi::Instruction& instruction : program_.instructions) {
      check(instruction);
      const abi::Launch* launch = std::get_if<abi::Launch>(&instruction);
      expect(launch == nullptr || !launch->beside || after_launch, "a launch beside nothing");
      after_launch = launch != nullptr;
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
      check_ref(std::get<abi::Copy>(instruction).src);
      check_ref(std::get<abi::Copy>(instruction).dst);
    }
  }
  void check_control(const abi::Control& control) const {
    const bool is_rows = control.kind == abi::Control::Kind::rows;
    const bool is_branch = control.kind == abi::Control::Kind::branch;
    const size_t given = control.args.size() - (is_branch && !control.args.empty() ? 1 : 0);
    expect(control.callees.size() == (is_rows ? 1 : 2) && (!is_branch || !control.args.empty()) &&
               size_t{control.carried} + control.rows <= given && is_rows == (control.rows > 0) &&
               control.carried <= control.results.size() &&
               (control.kind != abi::Control::Kind::repeat ||
                control.carried == control.results.size()),
           "a loop or branch is malformed");
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
      expect(output.kind != abi::Output::Kind::scalar,
             "body '" + body.name + "' gives a number");
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

void LoadedProgram::find_written_inputs() {
  is_written_.assign(program_.inputs.size(), 0);
  has_view_.assign(program_.inputs.size(), 0);
  for (size_t i = 0; i < program_.inputs.size(); ++i) is_written_[i] = program_.inputs[i].mutated;
  std::vector<char> is_target(program_.inputs.size(), 0);
  for (const abi::WriteBack& write_back : program_.write_backs)
    is_written_[write_back.input] = is_target[write_back.input] = 1;
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
    visit(std::get<abi::Copy>(instruction).src.buffer);
    visit(std::get<abi::Copy>(instruction).dst.buffer);
  }
}

bool is_beside(const abi::Instruction& instruction) {
  const abi::Launch* const launch = std::get_if<abi::Launch>(&instruction);
  return launch != nullptr && launch->beside;
}

}  // namespace

// Memory is in use for as long as anything runs beside the instruction; what is written back, to
// the end.
void LoadedProgram::find_lifetimes() {
  const std::vector<abi::Instruction>& instructions = program_.instructions;
  const uint32_t end = static_cast<uint32_t>(instructions.size());
  lifetimes_.assign(program_.buffers.size(), {end, 0});
  for (uint32_t first = 0, next = 0; first < end; first = next) {
    for (next = first + 1; next < end && is_beside(instructions[next]);) ++next;
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

// --- Constants ---

namespace {

// What the program holds itself; an empty tensor has no bytes to hold.
bool has_bytes(const abi::Constant& constant) {
  const bool is_empty = std::count(constant.sizes.begin(), constant.sizes.end(), 0) > 0;
  return constant.setup_output < 0 && (is_empty || !constant.bytes.empty());
}

// The array itself where its strides are right and its address is that of an element.
Array with_strides(const Array& array, const std::vector<int64_t>& wanted) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(array.raw());
  bool fits = address % static_cast<uintptr_t>(size_of(array.dtype())) == 0;
  const std::vector<int64_t> strides = wanted.empty() ? contiguous_strides(array.sizes()) : wanted;
  for (size_t i = 0; i < strides.size(); ++i)
    fits &= array.sizes()[i] == 1 || array.strides()[i] == strides[i];
  if (fits || array.numel() == 0) return array;
  const int64_t elements = extent(array.sizes(), strides);
  const Array copy =
      Array::empty(array.dtype(), std::array{elements}).as_strided(array.sizes(), strides);
  copy.copy_from(array);
  return copy;
}

}  // namespace

void LoadedProgram::load_constants(std::vector<abi::KernelFunction> setup_kernels) {
  if (program_.setup != nullptr)
    setup_ = std::make_unique<LoadedProgram>(*program_.setup, std::move(setup_kernels));
  find_given_names();
  for (abi::Constant& constant : program_.constants) {
    Array& array = stored_constants_.emplace_back();
    if (!has_bytes(constant)) continue;
    array = Array::empty(constant.dtype, constant.sizes);
    if (static_cast<size_t>(array.nbytes()) != constant.bytes.size())
      throw UserError("constant '" + constant.name + "' should be " + array.describe() +
                      " and has " + std::to_string(constant.bytes.size()) + " bytes");
    if (array.nbytes() > 0) std::memcpy(array.raw(), constant.bytes.data(), constant.bytes.size());
    constant.bytes = {};
  }
  if (given_names_.empty()) bind_constants({});
}

void LoadedProgram::find_given_names() {
  const auto add = [&](const std::string& name) {
    if (std::find(given_names_.begin(), given_names_.end(), name) == given_names_.end())
      given_names_.push_back(name);
  };
  for (const abi::Constant& constant : program_.constants) {
    const size_t output = static_cast<size_t>(constant.setup_output);
    if (constant.setup_output < 0 && !has_bytes(constant)) add(constant.name);
    if (constant.setup_output >= 0 &&
        (setup_ == nullptr || output >= program_.setup->outputs.size()))
      throw UserError("constant '" + constant.name + "' is no output of the setup program");
  }
  if (setup_ == nullptr) return;
  for (const abi::Input& input : program_.setup->inputs) add(input.name);
}

namespace {

/// Of any strides. No bit but that of a float's sign.
bool is_zero(const Array& array) {
  const Array plain = array.contiguous();
  const std::span bytes(static_cast<const unsigned char*>(plain.raw()),
                        static_cast<size_t>(plain.nbytes()));
  return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

void LoadedProgram::check_constants(const ConstantValues& values) const {
  std::string missing;
  for (const std::string& name : given_names_)
    if (values.count(name) == 0) missing += (missing.empty() ? "'" : ", '") + name + "'";
  if (!missing.empty())
    throw UserError("program '" + program_.name + "': no value is given for the constants " +
                    missing);
  for (const abi::Constant& constant : program_.constants) {
    const ConstantValues::const_iterator given = values.find(constant.name);
    if (constant.setup_output >= 0 || given == values.end()) continue;
    const Array& array = given->second;
    if (constant.zeros && !is_zero(array))
      throw Unsupported("constant '" + constant.name +
                        "': the program was compiled for zeros, and was given other numbers");
    if (array.dtype() == constant.dtype && std::equal(array.sizes().begin(), array.sizes().end(),
                                                      constant.sizes.begin(), constant.sizes.end()))
      continue;
    throw UserError("constant '" + constant.name + "': expected " +
                    describe(constant.dtype, constant.sizes) + ", got " + array.describe());
  }
}

std::shared_ptr<ConstantSet> LoadedProgram::run_setup(const ConstantValues& values) {
  std::vector<Result> computed;
  if (setup_ != nullptr) {
    std::vector<Argument> arguments;
    for (const abi::Input& input : program_.setup->inputs)
      arguments.emplace_back(values.at(input.name));
    computed = setup_->run(arguments);
  }
  std::vector<Array> constants;
  int64_t own_bytes = 0;
  for (size_t i = 0; i < program_.constants.size(); ++i) {
    const abi::Constant& constant = program_.constants[i];
    Array array = stored_constants_[i];
    if (constant.setup_output >= 0) {
      Result& result = computed[static_cast<size_t>(constant.setup_output)];
      if (!std::holds_alternative<Array>(result))
        throw UserError("constant '" + constant.name + "' is no tensor of the setup program");
      array = std::get<Array>(result);
    } else if (values.count(constant.name) != 0) {
      array = values.at(constant.name);
    }
    constants.push_back(with_strides(array, constant.strides));
    const bool is_given = values.count(constant.name) != 0 && constant.setup_output < 0 &&
                          constants.back().raw() == array.raw();
    own_bytes += is_given ? 0 : constants.back().nbytes();
  }
  return std::make_shared<ConstantSet>(std::move(constants), own_bytes);
}

void LoadedProgram::bind_constants(const ConstantValues& values) {
  const std::lock_guard<std::mutex> lock(bind_mutex_);
  ConstantValues merged = given_;
  for (const std::string& name : given_names_)
    if (values.count(name) != 0) merged.insert_or_assign(name, values.at(name));
  check_constants(merged);
  publish(run_setup(merged));
  given_ = std::move(merged);
}

std::shared_ptr<ConstantSet> LoadedProgram::make_constants(const ConstantValues& values) {
  const std::lock_guard<std::mutex> lock(bind_mutex_);
  check_constants(values);
  std::shared_ptr<ConstantSet> constants = run_setup(values);
  const std::lock_guard<std::mutex> counted(mutex_of(ForkLock::executions));
  setup_runs_ += setup_ != nullptr ? 1 : 0;
  return constants;
}

// Idle executions let the old set go; running ones do so when they are done.
void LoadedProgram::publish(std::shared_ptr<ConstantSet> constants) {
  std::vector<std::shared_ptr<ConstantSet>> old;  // goes after the lock: that may call Python
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  if (constants_ != nullptr) constants_->retire();
  old.push_back(std::exchange(constants_, std::move(constants)));
  setup_runs_ += setup_ != nullptr ? 1 : 0;
  for (const std::unique_ptr<Execution>& execution : idle_)
    if (execution->is_retired()) old.push_back(execution->use(constants_));
}

void LoadedProgram::retire(ConstantSet& constants) {
  std::vector<std::shared_ptr<ConstantSet>> old;  // goes after the lock: that may call Python
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  constants.retire();
  for (const std::unique_ptr<Execution>& execution : idle_)
    if (execution->is_retired()) old.push_back(execution->use(constants_));
}

int64_t LoadedProgram::setup_runs() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return setup_runs_;
}

int64_t LoadedProgram::constant_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return constants_ == nullptr ? 0 : constants_->own_bytes();
}

int64_t LoadedProgram::packed_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return constants_ == nullptr ? 0 : constants_->packed_bytes();
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

int64_t LoadedProgram::arena_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return idle_.empty() ? 0 : idle_.back()->arena_bytes();
}

std::vector<LibraryCallReport> LoadedProgram::library_calls() const {
  const std::lock_guard<std::mutex> lock(mutex_of(ForkLock::executions));
  return idle_.empty() ? std::vector<LibraryCallReport>{} : idle_.back()->library_calls();
}

}  // namespace tandem::runtime
