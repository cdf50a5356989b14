// From kernels to functions: each is a module of its own, kernels are spread over threads, and all
// objects are linked by one in-process linker.
#include <fmt/format.h>

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
#include "codegen/native.h"
#include "codegen/object_compiler.h"

namespace tandem::codegen {
namespace {

template <class T>
T expect(llvm::Expected<T> value) {
  TD_CHECK(static_cast<bool>(value)) << llvm::toString(value.takeError());
  return std::move(*value);
}

void expect_success(llvm::Error error) { TD_CHECK(!error) << llvm::toString(std::move(error)); }

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
    while (std::optional<size_t> i = next()) {
      const loop::Kernel& kernel = kernels[*i];
      objects[*i].symbol = kernel.name;
      const std::string key = cache.is_on() ? loop::to_string(kernel) : "";
      if (std::optional<std::string> known = cache.find(key)) {
        objects[*i].bytes = std::move(*known);
        continue;
      }
      objects[*i].bytes = object_code(kernel, target, options.level);
      cache.store(key, objects[*i].bytes);
    }
  });
  return objects;
}

namespace {

/// Of a linker of objects, which would make a machine for it.
class NoCompiler : public llvm::orc::IRCompileLayer::IRCompiler {
 public:
  NoCompiler() : IRCompiler(llvm::orc::IRSymbolMapper::ManglingOptions()) {}
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> operator()(llvm::Module&) override {
    return llvm::createStringError("kernels come as objects");
  }
};

const llvm::DataLayout& data_layout() {
  static const llvm::DataLayout layout =
      std::unique_ptr<llvm::TargetMachine>(
          native().createTargetMachine(llvm::sys::getProcessTriple(), "", "", llvm::TargetOptions(),
                                       llvm::Reloc::PIC_))
          ->createDataLayout();
  return layout;
}

std::unique_ptr<llvm::orc::LLJIT> make_linker() {
  using llvm::orc::JITTargetMachineBuilder;
  llvm::orc::LLJITBuilder builder;
  builder.setDataLayout(data_layout())
      .setJITTargetMachineBuilder(
          JITTargetMachineBuilder(llvm::Triple(llvm::sys::getProcessTriple())))
      .setCompileFunctionCreator([](const JITTargetMachineBuilder&) {
        return llvm::Expected<std::unique_ptr<llvm::orc::IRCompileLayer::IRCompiler>>(
            std::make_unique<NoCompiler>());
      });
  return expect(builder.create());
}

}  // namespace

struct KernelLibrary::Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

KernelLibrary::~KernelLibrary() = default;

KernelLibrary::KernelLibrary(const std::vector<ObjectCode>& objects) {
  if (objects.empty()) return;
  linker_ = std::make_unique<Linker>();
  llvm::orc::LLJIT& jit = *(linker_->jit = make_linker());
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
