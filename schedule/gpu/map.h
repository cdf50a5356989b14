// How the axes of a kernel meet a GPU: the grid is blocks of threads, and a stage is spread over
// the threads of a block.
#pragma once

#include <span>

#include "schedule/map.h"

namespace tandem::schedule::gpu {

/// In the order in which they are asked.
std::span<const Strategy> strategies();

/// Of joined products: a block owns rows, and what is computed of them stays in shared memory.
/// map_chain.cc
Misfit map_chain(loop::Kernel& kernel, const Target& target);
// Places from data; a running sum of each row: a thread for each row. map_rows.cc
Misfit map_scatter(loop::Kernel& kernel, const Target& target);
Misfit map_scans(loop::Kernel& kernel, const Target& target);
/// Tiles of a sum of products: panels of both factors in shared memory, sums in registers.
/// map_product.cc
Misfit map_product(loop::Kernel& kernel, const Target& target);
// Without a reduction: through a tile in shared memory where an operand is transposed; all others.
// map_points.cc
Misfit map_transpose(loop::Kernel& kernel, const Target& target);
Misfit map_points(loop::Kernel& kernel, const Target& target);
// A thread for each result, and a block for each row, which fits all else. map_rows.cc
Misfit map_columns(loop::Kernel& kernel, const Target& target);
Misfit map_rows(loop::Kernel& kernel, const Target& target);

}  // namespace tandem::schedule::gpu
