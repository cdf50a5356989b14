// Compiled graphs as callables for torch: see function.cc.
#pragma once

#include <nanobind/nanobind.h>

namespace tandem::python {

void bind_function(nanobind::module_& m);

}  // namespace tandem::python
