// Random graphs through every engine: test/property says which graphs, and along which roads.
#include "test/fuzz/engine.h"
#include "test/property/annotated.h"
#include "test/property/graph.h"
#include "test/property/roads.h"

namespace tandem::fuzz {

std::vector<Engine> graph_engines() {
  const auto run = [](const std::string& input) {
    property::Counts counts;
    property::run_roads(input, counts, true);
  };
  return {{"graphs",
           [](Random& random) {
             return property::write_graph(random, static_cast<size_t>(random.seed()));
           },
           run, 60, property::smaller}};
}

}  // namespace tandem::fuzz
