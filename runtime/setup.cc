// What a program has beside its arguments: constants that it holds, that are given, or that its
// setup computes from those. They are checked before anything changes, and a call that runs keeps
// the set that it began with.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/diagnostic.h"
#include "runtime/constants.h"
#include "runtime/execution.h"
#include "runtime/executor.h"
#include "runtime/fork.h"

namespace tandem::runtime {

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

}  // namespace tandem::runtime
