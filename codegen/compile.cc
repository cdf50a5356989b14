// From LLVM IR to functions: a few cheap passes (the IR is explicit already; default pipelines cost
// five times the time for no speed), code generation with loop strength reduction off, one module
// per kernel, kernels spread over threads, all objects linked by one in-process linker.
#include <fmt/format.h>
#include <llvm/IR/PassManager.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Utils.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/file_cache.h"
#include "base/interrupt.h"
#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "codegen/native.h"

namespace tandem::codegen {
namespace {

std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target, int level) {
  static constexpr llvm::CodeGenOptLevel kLevels[] = {
      llvm::CodeGenOptLevel::None, llvm::CodeGenOptLevel::Less, llvm::CodeGenOptLevel::Default,
      llvm::CodeGenOptLevel::Aggressive};
  return std::unique_ptr<llvm::TargetMachine>(native().createTargetMachine(
      llvm::sys::getProcessTriple(), target.cpu, target.features, llvm::TargetOptions(),
      llvm::Reloc::PIC_, std::nullopt, kLevels[std::clamp(level, 0, 3)], /*JIT=*/true));
}

std::unique_ptr<llvm::Module> make_module(llvm::LLVMContext& context, const loop::Kernel& kernel,
                                          const Target& target, llvm::TargetMachine& machine) {
  std::unique_ptr<llvm::Module> module = std::make_unique<llvm::Module>(kernel.name, context);
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  Emitter(*module, kernel).emit();
  for (llvm::Function& function : *module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", target.cpu);
    function.addFnAttr("target-features", target.features);
    // Registers as wide as the mapping decided, not as LLVM prefers for this processor.
    function.addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
    function.addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
  }
  std::string error;
  llvm::raw_string_ostream stream(error);
  TD_CHECK(!llvm::verifyModule(*module, &stream)) << error << "\n" << loop::to_string(kernel);
  return module;
}

void add_passes(llvm::legacy::PassManager& passes, int level) {
  if (level > 0) {
    passes.add(llvm::createPromoteMemoryToRegisterPass());
    passes.add(llvm::createEarlyCSEPass());
    passes.add(llvm::createInstructionCombiningPass());
    passes.add(llvm::createLICMPass());
    passes.add(llvm::createCFGSimplificationPass());
  }
}

std::string object_bytes(const loop::Kernel& kernel, const Target& target,
                         llvm::TargetMachine& machine, int level) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = make_module(context, kernel, target, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine.getTargetIRAnalysis()));
  add_passes(passes, level);
  bool failed =
      machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile);
  TD_CHECK(!failed) << "the target emits no objects";
  passes.run(*module);
  return std::string(bytes.data(), bytes.size());
}

template <class T>
T expect(llvm::Expected<T> value) {
  TD_CHECK(static_cast<bool>(value)) << llvm::toString(value.takeError());
  return std::move(*value);
}

void expect_success(llvm::Error error) { TD_CHECK(!error) << llvm::toString(std::move(error)); }

}  // namespace

std::string llvm_text(const loop::Kernel& kernel, const Target& target) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine = make_machine(target, 2);
  std::unique_ptr<llvm::Module> module = make_module(context, kernel, target, *machine);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

namespace {

/// Numbers of kernels, the largest ones first, so that threads end together.
std::vector<size_t> by_size(const std::vector<loop::Kernel>& kernels) {
  std::vector<size_t> numbers(kernels.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  std::ranges::stable_sort(numbers, std::greater(),
                           [&](size_t i) { return kernels[i].scalars->size(); });
  return numbers;
}

/// Numbers of kernels, given out to several threads; none any more once a thread has failed.
class Kernels {
 public:
  Kernels(std::vector<size_t> numbers, std::stop_token stop)
      : numbers_(std::move(numbers)), stop_(std::move(stop)) {}
  std::optional<size_t> operator()() {
    poll_interrupt();
    if (stop_.stop_requested()) return std::nullopt;
    const size_t next = next_++;
    return next < numbers_.size() ? std::optional(numbers_[next]) : std::nullopt;
  }
  void fail(std::exception_ptr error) {
    next_ = numbers_.size();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  void finish() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::vector<size_t> numbers_;
  std::stop_token stop_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Runs `work(kernels)` on that many threads, the calling one among them. Rethrows the first error.
template <class F>
void for_each(std::vector<size_t> numbers, const CompileOptions& options, const F& work) {
  const size_t count = numbers.size();
  Kernels kernels(std::move(numbers), options.stop);
  const auto guarded = [&] {
    try {
      work(kernels);
    } catch (...) {
      kernels.fail(std::current_exception());
    }
  };
  const size_t workers = std::min(count, static_cast<size_t>(std::max(options.threads, 1)));
  std::vector<std::thread> team;
  for (size_t i = 1; i < workers; ++i) team.emplace_back(guarded);
  guarded();
  for (std::thread& thread : team) thread.join();
  kernels.finish();
}

}  // namespace

namespace {

/// What object code depends on beside the kernel. Taken apart, so that a new member of Target is
/// decided on here: cores and caches decide about kernels, and those are the rest of the key.
CacheKey code_key(const Target& target, int level) {
  const auto& [cpu, features, isa, vector_bytes, cores, l1, l2, l3, gpu, tuning] = target;
  return {{"processor", cpu},
          {"features", features},
          {"vectors", fmt::format("{} {}", static_cast<int>(isa), vector_bytes)},
          {"optimization", std::to_string(level)}};
}

void check_is_processor(const std::vector<loop::Kernel>& kernels, const Target& target) {
  const bool has_threads =
      std::ranges::any_of(kernels, [](const loop::Kernel& kernel) { return kernel.threads > 0; });
  if (target.is_gpu() || has_threads)
    throw UserError(
        fmt::format("[codegen] no machine code is made for a GPU ({}) yet: its kernels can be seen "
                    "(tandem schedule --target) and interpreted",
                    target.is_gpu() ? target.cpu : "kernels of blocks of threads"));
}

}  // namespace

std::vector<ObjectCode> compile_objects(const std::vector<loop::Kernel>& kernels,
                                        const Target& target, const CompileOptions& options) {
  check_is_processor(kernels, target);
  std::vector<ObjectCode> objects(kernels.size());
  const FileCache cache(options.cache_dir, "o", code_key(target, options.level));
  for_each(by_size(kernels), options, [&](Kernels& next) {
    std::unique_ptr<llvm::TargetMachine> machine;
    while (std::optional<size_t> i = next()) {
      const loop::Kernel& kernel = kernels[*i];
      objects[*i].symbol = kernel.name;
      const std::string key = cache.is_on() ? loop::to_string(kernel) : "";
      if (std::optional<std::string> known = cache.find(key)) {
        objects[*i].bytes = std::move(*known);
        continue;
      }
      if (machine == nullptr) machine = make_machine(target, options.level);
      objects[*i].bytes = object_bytes(kernel, target, *machine, options.level);
      cache.store(key, objects[*i].bytes);
    }
  });
  return objects;
}

struct KernelLibrary::Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

KernelLibrary::~KernelLibrary() = default;

KernelLibrary::KernelLibrary(const std::vector<ObjectCode>& objects) {
  if (objects.empty()) return;
  native();
  linker_ = std::make_unique<Linker>();
  llvm::orc::LLJIT& jit = *(linker_->jit = expect(llvm::orc::LLJITBuilder().create()));
  jit.getMainJITDylib().addGenerator(
      expect(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
          jit.getDataLayout().getGlobalPrefix())));
  for (const ObjectCode& object : objects)
    expect_success(
        jit.addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object.bytes, object.symbol)));
  for (const ObjectCode& object : objects)
    functions_.push_back(expect(jit.lookup(object.symbol)).toPtr<abi::KernelFunction>());
}

}  // namespace tandem::codegen
