// ORC set-up for tests that run emitted IR.
//
// The target machine is made for a named CPU level rather than for the host, so that one test
// covers AVX2 and AVX-512 code; the feature string that this level stands for is also put on every
// function, because emitters decide by "target-features".
#include "test/codegen/jit_function.h"

#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

namespace tandem::codegen::testing {
namespace {

llvm::ExitOnError g_exit_on_error("JitModule: ");

std::string features_of(const std::string& cpu) {
  std::string avx2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2";
  if (cpu == "x86-64-v3") return avx2;
  return avx2 + ",+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl";
}

}  // namespace

JitModule::JitModule(std::string cpu)
    : cpu_(cpu.empty() ? llvm::sys::getHostCPUName().str() : std::move(cpu)),
      features_(features_of(cpu_)),
      context_(std::make_unique<llvm::LLVMContext>()) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(llvm::sys::getProcessTriple())};
  machine.setCPU(cpu_);
  jit_ = g_exit_on_error(
      llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(machine)).create());
  module_ = std::make_unique<llvm::Module>("test", context());
  module_->setDataLayout(jit_->getDataLayout());
  module_->setTargetTriple(jit_->getTargetTriple().str());
}

llvm::Function* JitModule::add_function(const std::string& name, llvm::FunctionType* type) {
  llvm::Function* function =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
  function->addFnAttr("target-cpu", cpu_);
  function->addFnAttr("target-features", features_);
  // AVX-512 code with 512-bit registers, which LLVM avoids by default for some CPUs.
  function->addFnAttr("prefer-vector-width", "512");
  return function;
}

void JitModule::compile() {
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(*module_, &stream)) llvm::report_fatal_error(message.c_str());
  llvm::orc::ThreadSafeModule owned(std::move(module_), context_);
  g_exit_on_error(jit_->addIRModule(std::move(owned)));
}

uint64_t JitModule::address_of(const std::string& name) {
  return g_exit_on_error(jit_->lookup(name)).getValue();
}

}  // namespace tandem::codegen::testing
