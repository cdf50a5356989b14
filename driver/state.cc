// Initial values come from the same Philox stream generator as random ops, one stream per
// parameter.
#include "driver/state.h"

#include <cmath>

#include "base/diagnostic.h"
#include "loop/random.h"

namespace tandem {
namespace {

/// In (0, 1): the middle of each of 2^24 steps, so that its logarithm is finite.
double uniform(uint64_t seed, uint64_t stream, uint64_t element) {
  return ((loop::philox(seed, stream, element) >> 8) + 0.5) * 0x1p-24;
}

double initial_value(const nn::Init& init, uint64_t seed, uint64_t stream, uint64_t element) {
  switch (init.kind) {
    case nn::Init::Kind::zeros: return 0;
    case nn::Init::Kind::ones: return 1;
    case nn::Init::Kind::uniform: return (2 * uniform(seed, stream, element) - 1) * init.scale;
    case nn::Init::Kind::normal: break;
  }
  double radius = std::sqrt(-2 * std::log(uniform(seed, stream, element)));
  return init.scale * radius * std::cos(6.283185307179586 * uniform(seed, stream + 1, element));
}

}  // namespace

State State::initial(const nn::Module& module, uint64_t seed) {
  State state;
  uint64_t stream = 0;
  for (const nn::Parameter* parameter : module.parameters()) {
    if (parameter->dtype() != DType::f32)
      throw Unsupported("[nn] parameter " + parameter->qualified_name() +
                        ": initial values are made for f32 only");
    runtime::Array array = runtime::Array::zeros(DType::f32, parameter->sizes());
    float* data = array.data<float>();
    for (int64_t i = 0; i < array.numel(); ++i)
      data[i] = static_cast<float>(
          initial_value(parameter->init(), seed, stream, static_cast<uint64_t>(i)));
    stream += 2;
    state.set(parameter->qualified_name(), std::move(array));
  }
  return state;
}

State State::weights_of(const nn::Module& module) const {
  State weights;
  for (const nn::Parameter* parameter : module.parameters()) {
    const std::string name = parameter->qualified_name();
    weights.set(name, at(name));
  }
  return weights;
}

const runtime::Array& State::at(const std::string& name) const {
  std::map<std::string, runtime::Array>::const_iterator it = arrays_.find(name);
  if (it == arrays_.end()) throw UserError("no parameter or state named '" + name + "'");
  return it->second;
}

}  // namespace tandem
