// Compiles one LLVM module in the test's own process with ORC, for a chosen set of CPU features.
#pragma once

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>

namespace tandem::codegen::testing {

/// Fill module() with functions made by add_function, compile() once, then look functions up.
/// Symbols that the module only declares come from the process (libm). Any LLVM error aborts the
/// test.
class JitModule {
 public:
  /// cpu as LLVM names it: "x86-64-v3" is AVX2 with FMA, "x86-64-v4" AVX-512; "" is the host.
  explicit JitModule(std::string cpu);

  llvm::LLVMContext& context() { return *context_.getContext(); }
  llvm::Module& module() { return *module_; }

  /// An external function without body that carries the "target-cpu" and "target-features" of this
  /// module.
  llvm::Function* add_function(const std::string& name, llvm::FunctionType* type);

  void compile();

  template <typename Function>
  Function* find(const std::string& name) {
    return reinterpret_cast<Function*>(address_of(name));
  }

 private:
  uint64_t address_of(const std::string& name);

  std::string cpu_;
  std::string features_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  llvm::orc::ThreadSafeContext context_;
  std::unique_ptr<llvm::Module> module_;
};

}  // namespace tandem::codegen::testing
