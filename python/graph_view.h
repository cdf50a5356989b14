// The graph that a caller's pass sees: handles that live as long as the pass runs.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "driver/graph_function.h"

namespace tandem::python {

void bind_graph(nanobind::module_& m);

/// `passes`: callables that take a tandem.Graph. One that has `uuid()` is known by what that gives
/// in later processes. They are called with the interpreter's lock.
std::vector<passes::CallerPass> caller_passes(nanobind::list passes);

/// Of a callable that takes a tandem.Graph and gives values of it.
passes::CallerPartition caller_partition(nanobind::handle callable);

}  // namespace tandem::python
