// Identity of a kernel: 64 bits over the canonical text without kernel name, buffer labels and
// error texts. A kernel that owns its symbols is canonical already (or was read from text: then its
// own names count); one that still shares the module's pool is made canonical first.
#include "loop/kernel.h"
#include "loop/text.h"

namespace tandem::loop {

std::string identity_text(const Kernel& kernel) {
  return print_kernel(kernel.symbols ? kernel : canonical(kernel), false);
}

uint64_t identity(const Kernel& kernel) {
  const std::string text = identity_text(kernel);
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  // FNV's high bits move little on short texts.
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDull;
  return hash ^ (hash >> 33);
}

}  // namespace tandem::loop
