// The strategies of a GPU, in the order in which they are asked.
#include <array>

#include "schedule/gpu/map.h"

namespace tandem::schedule::gpu {
namespace {

constexpr std::array kStrategies = {
    // By rows that stages share, whatever memory says.
    Strategy{"gpu_chain", map_chain, false},
    // Threads must own what they store to: before all that asks for speed only.
    Strategy{"gpu_scatter", map_scatter},
    Strategy{"gpu_scans", map_scans},
    Strategy{"gpu_product", map_product},
    Strategy{"gpu_transpose", map_transpose},
    Strategy{"gpu_points", map_points},
    Strategy{"gpu_columns", map_columns},
    // Fits all that is left.
    Strategy{"gpu_rows", map_rows},
};

}  // namespace

std::span<const Strategy> strategies() { return kStrategies; }

}  // namespace tandem::schedule::gpu
