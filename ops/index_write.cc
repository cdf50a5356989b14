// stub
#include "ops/families.h"
namespace tandem::ops {
Family index_write_family() { return {}; }
}  // namespace tandem::ops
