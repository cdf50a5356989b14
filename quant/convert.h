// A calibrated graph becomes a quantized one: values go through quantize and dequantize where the
// annotation has places. That is f32 arithmetic on values that 8 bits can hold; integer products
// are made of it later.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "quant/annotate.h"
#include "quant/statistics.h"

namespace tandem::quant {

/// Scales of channels and groups become constants of the graph, by input name.
struct Converted {
  /// Integers of a value that is known before the first call.
  struct Integers {
    std::string name;  // of its group, as an input may have it
    ir::Value* value = nullptr;
  };
  std::map<std::string, std::vector<float>> scales;
  std::vector<Integers> constants;  // in the order in which they were made
  std::vector<std::string> notes;
};

/// `skip`: names of layers that stay f32, and with them layers that propagate what they give.
/// UserError where statistics lack a group that is needed, or have another number of channels.
Converted convert(ir::Graph& graph, const Annotation& annotation, const Statistics& statistics,
                  const std::set<std::string>& skip = {});

/// Number of scales of a group: 1, or of channels, or of groups of neighbours.
int64_t parts_of(const Group& group);
/// Elements that lie together and have one scale; see Observer::observe.
int64_t inner_of(const Group& group);

/// Groups whose range must be observed: all but the dynamic ones.
bool is_observed(const Group& group);
/// Makes the observed values the results of the graph, each once, in the order of `values`.
void instrument(ir::Graph& graph, const std::vector<ir::Value*>& values);

}  // namespace tandem::quant
