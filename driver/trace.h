// A model function as a graph.
#pragma once

#include <memory>
#include <vector>

#include "driver/api.h"

namespace tandem::driver {

struct Traced {
  std::unique_ptr<ir::Module> module;
  ir::Graph* graph = nullptr;
};

Traced trace_model(const ModelFunction& model, const std::vector<InputSpec>& inputs, bool training);

}  // namespace tandem::driver
