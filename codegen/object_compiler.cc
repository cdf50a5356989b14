// Object code of kernels: a few cheap passes over LLVM IR (it is explicit already; default
// pipelines cost five times the time for no speed), then code generation. What LLVM needs for that
// (a machine, some sixty passes, the description of a processor) takes longer to make than the code
// of a small kernel, and is kept: it is lent to who compiles, and comes back when the code is
// there.
#include "codegen/object_compiler.h"

#include <llvm/IR/PassManager.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Utils.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
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

/// Makes object code of one kernel after the other.
class ObjectCompiler {
 public:
  ObjectCompiler(const Target& target, int level)
      : cpu_(target.cpu),
        features_(target.features),
        level_(level),
        machine_(make_machine(target, level)) {
    passes_.add(llvm::createTargetTransformInfoWrapperPass(machine_->getTargetIRAnalysis()));
    add_passes(passes_, level);
    const bool failed =
        machine_->addPassesToEmitFile(passes_, stream_, nullptr, llvm::CodeGenFileType::ObjectFile);
    TD_CHECK(!failed) << "the target emits no objects";
  }

  bool is_for(const Target& target, int level) const {
    return cpu_ == target.cpu && features_ == target.features && level_ == level;
  }

  std::string code(const loop::Kernel& kernel, const Target& target) {
    llvm::LLVMContext context;
    bytes_.clear();
    passes_.run(*make_module(context, kernel, target, *machine_));
    return std::string(bytes_.data(), bytes_.size());
  }

 private:
  std::string cpu_;
  std::string features_;
  int level_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  llvm::SmallVector<char, 0> bytes_;
  llvm::raw_svector_ostream stream_{bytes_};
  llvm::legacy::PassManager passes_;
};

/// Those that nobody uses now. As many as there are processors are kept.
class IdleCompilers {
 public:
  std::unique_ptr<ObjectCompiler> take(const Target& target, int level) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = std::ranges::find_if(
          idle_, [&](const auto& compiler) { return compiler->is_for(target, level); });
      if (found != idle_.end()) {
        std::unique_ptr<ObjectCompiler> compiler = std::move(*found);
        idle_.erase(found);
        return compiler;
      }
    }
    return std::make_unique<ObjectCompiler>(target, level);
  }

  void give_back(std::unique_ptr<ObjectCompiler> compiler) {
    static const size_t most = std::max(2U, std::thread::hardware_concurrency());
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(compiler));
    if (idle_.size() > most) idle_.erase(idle_.begin());
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ObjectCompiler>> idle_;
};

// Never destroyed, so that exit handlers may still compile.
IdleCompilers& idle_compilers() {
  static IdleCompilers* const compilers = new IdleCompilers;
  return *compilers;
}

}  // namespace

// One that throws is in a state that nobody knows, and is given up.
std::string object_code(const loop::Kernel& kernel, const Target& target, int level) {
  std::unique_ptr<ObjectCompiler> compiler = idle_compilers().take(target, level);
  std::string code = compiler->code(kernel, target);
  idle_compilers().give_back(std::move(compiler));
  return code;
}

std::string llvm_text(const loop::Kernel& kernel, const Target& target) {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine = make_machine(target, 2);
  std::unique_ptr<llvm::Module> module = make_module(context, kernel, target, *machine);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

}  // namespace tandem::codegen
