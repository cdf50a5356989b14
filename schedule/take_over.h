// Which results of a kernel may take over the memory of what it reads.
#pragma once

#include <vector>

#include "abi/program.h"
#include "loop/kernel.h"

namespace tandem::schedule {

/// Of a mapped kernel: pairs of a buffer that it writes and one that it reads, by their places
/// among the arguments, that may be one memory as far as the kernel is concerned: it gives the same
/// bits. Whether anybody needs what is written over is for the caller to know. None of kernels for
/// a GPU.
std::vector<abi::TakeOver> takeovers(const loop::Kernel& kernel);

}  // namespace tandem::schedule
