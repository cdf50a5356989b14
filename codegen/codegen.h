// Mapped kernels to machine code. No LLVM type appears here.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "abi/program.h"
#include "base/target.h"
#include "loop/kernel.h"

namespace tandem::codegen {

/// The machine this process runs on; "avx2" (a value of TANDEM_ISA) lowers it. Throws Unsupported
/// below AVX2 with FMA, UserError where "avx512" is asked of a processor without it.
Target host_target(const std::optional<std::string>& isa);
/// A processor by LLVM's name ("znver4"), lowered likewise; with as many cores as this machine and
/// caches of usual sizes. UserError for a name that is unknown or of a processor without AVX2, FMA.
Target cpu_target(const std::string& cpu, const std::optional<std::string>& isa);
/// A GPU by its architecture: "sm_80", "sm_90"; null for the name of a processor. UserError for an
/// architecture that is not known.
std::optional<Target> gpu_target(const std::string& name);
/// Throws UserError, with their names, where code for the target may hold instructions that this
/// processor lacks.
void check_runs_here(const Target& target);

struct CompileOptions {
  int threads = 2;
  int level = 2;  // code generator's optimisation level, 0 to 3
  /// Folder of object code from earlier compiles; empty for none.
  std::string cache_dir;
  /// Asked between kernels: those that nobody began have no bytes then.
  std::stop_token stop;
};

/// Relocatable object code of one kernel.
struct ObjectCode {
  std::string symbol;
  std::string bytes;
};
/// Of canonical kernels (named by their symbols), on several threads. UserError for a GPU: there
/// are mapped kernels for one, and no machine code yet.
std::vector<ObjectCode> compile_objects(const std::vector<loop::Kernel>& kernels,
                                        const Target& target, const CompileOptions& options);

/// Object code linked into this process; functions live as long as it does.
class KernelLibrary {
 public:
  explicit KernelLibrary(const std::vector<ObjectCode>& objects);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;
  /// In the order of the objects.
  const std::vector<abi::KernelFunction>& functions() const { return functions_; }

 private:
  struct Linker;
  std::unique_ptr<Linker> linker_;  // null without objects
  std::vector<abi::KernelFunction> functions_;
};

/// LLVM IR of a kernel, for dumps.
std::string llvm_text(const loop::Kernel& kernel, const Target& target);

}  // namespace tandem::codegen
