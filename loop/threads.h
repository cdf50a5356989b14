// Blocks of threads: which threads run a stage, and where they have to wait for one another.
#pragma once

#include "loop/kernel.h"
#include "loop/walk.h"

namespace tandem::loop {

/// The axes that a stage is spread over, outermost first.
std::vector<Axis> thread_axes(const Stage& stage);
/// Threads that run the stage, of which a block may have more.
int64_t threads_of(const Stage& stage);
/// Whether no two lanes along the axis address one element. Where a place from data differs from
/// lane to lane, a step of it must be wider than all lanes are together, or all of its steps
/// narrower than one lane.
bool are_lanes_apart(sym::Expr address, const Axis& axis, const std::vector<Indirect>& indirects);
/// Whether no two threads of the axis store to one element.
bool are_threads_apart(const ScalarPool& pool, const Store& store, const Axis& axis);
/// What holds of kernels of threads only, and of all others; empty when well formed.
std::vector<std::string> thread_problems(const Kernel& kernel);
/// Puts a barrier before each stage that touches what another thread may have touched since the
/// last one, and takes away all others. What thread_problems asks for, and no more.
void place_barriers(Kernel& kernel);

}  // namespace tandem::loop
