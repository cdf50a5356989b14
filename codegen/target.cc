// Machines to compile for: this one as the processor describes itself, or one by LLVM's name. Both
// are described by the features that LLVM can ask a processor for, so that a program of either kind
// can be compared with the machine it is loaded on; how a processor is tuned follows from its name.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/diagnostic.h"
#include "codegen/caches.h"
#include "codegen/codegen.h"
#include "codegen/native.h"

namespace tandem::codegen {
namespace {

using Features = llvm::StringMap<bool>;

/// Tile registers are 8 KiB of state in each thread, which a process asks Linux for once. Refused
/// where a signal stack is too small for it, and by what emulates a processor.
bool permits_tiles() {
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool is_of_tiles(llvm::StringRef feature) { return feature.starts_with("amx"); }

Features usable_features() {
  Features features = llvm::sys::getHostCPUFeatures();
  const bool has_tiles = features.lookup("amx-tile") && permits_tiles();
  for (llvm::StringMapEntry<bool>& entry : features)
    if (is_of_tiles(entry.getKey())) entry.setValue(entry.getValue() && has_tiles);
  // LLVM names this one only where there is AVX-512; other processors are asked for the same names.
  features.try_emplace("evex512", false);
  return features;
}

/// Of this processor. Under a hypervisor each question costs microseconds.
const Features& own_features() {
  static const Features kFeatures = usable_features();
  return kFeatures;
}

bool has_feature(const Features& features, llvm::StringRef name) {
  const Features::const_iterator it = features.find(name);
  return it != features.end() && it->second;
}

bool has_avx2(const Features& features) {
  return has_feature(features, "64bit") && has_feature(features, "avx2") &&
         has_feature(features, "fma");
}

/// What needs AVX-512, or comes with it.
bool is_wide(const std::string& feature) {
  return is_of_tiles(feature) || feature.find("avx512") != std::string::npos ||
         feature.find("avx10") != std::string::npos;
}

std::string feature_text(const Features& features, bool with_avx512) {
  std::vector<std::string> words;
  for (const llvm::StringMapEntry<bool>& entry : features) {
    std::string name = entry.getKey().str();
    bool on = entry.getValue() && (with_avx512 || !is_wide(name));
    words.push_back((on ? "+" : "-") + name);
  }
  std::sort(words.begin(), words.end());
  return fmt::format("{}", fmt::join(words, ","));
}

Target described(std::string cpu, const Features& features, const std::optional<std::string>& isa,
                 const std::string& who) {
  bool wide = has_feature(features, "avx512f") && has_feature(features, "avx512vl") &&
              has_feature(features, "avx512bw") && has_feature(features, "avx512dq");
  if (isa == "avx512" && !wide)
    throw UserError(fmt::format("TANDEM_ISA=avx512: {} has no AVX-512 (F, VL, BW, DQ)", who));
  if (isa == "avx2") wide = false;
  Target target;
  target.tuning = tuning_of(cpu);
  target.cpu = std::move(cpu);
  target.isa = wide ? Isa::avx512 : Isa::avx2;
  target.vector_bytes = wide ? 64 : 32;
  target.features = feature_text(features, wide);
  target.cores = static_cast<int>(std::thread::hardware_concurrency());
  return target;
}

// --- processors by name ---------------------------------------------------------------------

std::unique_ptr<llvm::MCSubtargetInfo> description(llvm::StringRef cpu) {
  const std::string triple = llvm::sys::getProcessTriple();
  return std::unique_ptr<llvm::MCSubtargetInfo>(native().createMCSubtargetInfo(triple, cpu, ""));
}

/// Those that a processor can be asked for, with what they imply.
Features features_of(llvm::StringRef cpu) {
  const std::unique_ptr<llvm::MCSubtargetInfo> known = description(cpu);
  Features features;
  for (const llvm::StringMapEntry<bool>& entry : own_features())
    features[entry.getKey()] = known->checkFeatures(("+" + entry.getKey()).str());
  return features;
}

/// In the order of the alphabet, without second spellings ("skylake_avx512").
std::vector<std::string> usable_processors() {
  std::vector<std::string> names;
  for (const llvm::SubtargetSubTypeKV& each : description("")->getAllProcessorDescriptions())
    if (!llvm::StringRef(each.Key).contains('_') && has_avx2(features_of(each.Key)))
      names.emplace_back(each.Key);
  return names;
}

// --- what a program needs -------------------------------------------------------------------

/// Names of features, or how they begin, whose instructions a code generator chooses by itself.
/// The others are of the system and of cryptography: no kernel holds them, and virtual machines
/// hide some that the processor has.
constexpr std::array<llvm::StringLiteral, 23> kInCode = {
    "adx",    "amx",     "avx",       "bmi", "ccmp",  "cf",    "cmov",  "cmpccxadd",
    "egpr",   "evex512", "f16c",      "fma", "gfni",  "lzcnt", "movbe", "ndd",
    "popcnt", "ppx",     "push2pop2", "sse", "ssse3", "tbm",   "xop"};

bool is_in_code(llvm::StringRef feature) {
  return std::ranges::any_of(kInCode,
                             [&](llvm::StringRef known) { return feature.starts_with(known); });
}

std::vector<std::string> missing_features(const Target& target) {
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(target.features).split(words, ',', -1, /*KeepEmpty=*/false);
  std::vector<std::string> missing;
  for (llvm::StringRef word : words)
    if (word.consume_front("+") && is_in_code(word) && !has_feature(own_features(), word))
      missing.push_back(word.str());
  return missing;
}

}  // namespace

const llvm::Target& native() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    const char* const options[] = {"tandem", "-disable-lsr"};
    llvm::cl::ParseCommandLineOptions(2, options, "", &llvm::nulls());
  });
  std::string error;
  const llvm::Target* found =
      llvm::TargetRegistry::lookupTarget(llvm::sys::getProcessTriple(), error);
  TD_CHECK(found != nullptr) << error;
  return *found;
}

Target host_target(const std::optional<std::string>& isa) {
  if (!has_avx2(own_features()))
    throw Unsupported("[codegen] this processor has no AVX2 with FMA; Tandem needs both");
  Target target =
      described(llvm::sys::getHostCPUName().str(), own_features(), isa, "this processor");
  take_cache_sizes(kCacheFolder, target);
  return target;
}

Target cpu_target(const std::string& cpu, const std::optional<std::string>& isa) {
  const bool is_known = description("")->isCPUStringValid(cpu);  // a description would print of it
  const Features features = is_known ? features_of(cpu) : Features();
  if (!has_avx2(features))
    throw UserError(
        fmt::format("[codegen] no processor '{}' with AVX2 and FMA is known; there are: {}", cpu,
                    fmt::join(usable_processors(), " ")));
  return described(cpu, features, isa, cpu);
}

void check_runs_here(const Target& target) {
  if (target.is_gpu())
    throw UserError(fmt::format("[codegen] the program is for a GPU, {}", target.cpu));
  const std::vector<std::string> missing = missing_features(target);
  if (missing.empty()) return;
  throw UserError(fmt::format(
      "[codegen] the program was compiled for {} and may use {}, which this processor ({}) lacks",
      target.cpu, fmt::join(missing, ", "), llvm::sys::getHostCPUName().str()));
}

}  // namespace tandem::codegen
