// The list of engines.
#include "test/fuzz/engine.h"

namespace tandem::fuzz {

const std::vector<Engine>& engines() {
  static const std::vector<Engine> kEngines = [] {
    std::vector<Engine> all = text_engines();
    for (const std::vector<Engine>& more :
         {file_engines(), graph_engines(), kernel_graph_engines()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return kEngines;
}

}  // namespace tandem::fuzz
