// GPUs to map for, by architecture. Their numbers are those of the vendor's tables for the largest
// part of each; what a block may take is what one alone on a multiprocessor may.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic.h"
#include "codegen/codegen.h"

namespace tandem::codegen {
namespace {

struct Part {
  const char* name;
  int64_t shared_bytes;
  int multiprocessors;
  int64_t l2_bytes;
};

constexpr std::array kParts = {
    Part{"sm_80", 163 << 10, 108, 40 << 20},
    Part{"sm_90", 227 << 10, 132, 50 << 20},
};

std::string names() {
  std::string text;
  for (const Part& part : kParts) text += (text.empty() ? "" : " ") + std::string(part.name);
  return text;
}

}  // namespace

std::optional<Target> gpu_target(const std::string& name) {
  if (!name.starts_with("sm_")) return std::nullopt;
  const auto part = std::ranges::find(kParts, name, &Part::name);
  if (part == kParts.end())
    throw UserError(fmt::format("[codegen] no GPU '{}' is known; there are: {}", name, names()));
  Target target;
  target.cpu = name;
  target.features = name;
  target.vector_bytes = 16;  // the widest load of a thread
  target.cores = part->multiprocessors;
  target.l2_bytes = part->l2_bytes;
  target.l3_bytes = 0;
  target.gpu = {32, 1024, part->shared_bytes, 255, part->multiprocessors};
  return target;
}

}  // namespace tandem::codegen
