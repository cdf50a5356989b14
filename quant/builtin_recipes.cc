// The built-in recipes, in the form of a recipe file. x86_default follows the rules of PyTorch's
// quantizer for x86: what is fused with a product keeps its result unquantized, the next product's
// operand supplies the scale; an addition behind a convolution has a quantized operand, one behind
// a linear layer has not, for accuracy. Scales are at least 2^-12 there.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/diagnostic.h"
#include "quant/recipe.h"

namespace tandem::quant {
namespace {

constexpr std::string_view kX86Default = R"(name = "x86_default"

[specs.activation]
dtype = "u8"
range = [0, 255]
observer = "histogram"
epsilon = 0.000244140625

[specs.weight]
dtype = "i8"
range = [-128, 127]
symmetric = true
per = "channel"
axis = 0
constant = true
epsilon = 0.000244140625

[[rules]]
name = "convolution_add_relu"
chain = ["aten.convolution", "aten.add.Tensor", "aten.relu"]
inputs = { input = "activation", weight = "weight" }
other = "activation"

[[rules]]
name = "convolution_add"
chain = ["aten.convolution", "aten.add.Tensor"]
inputs = { input = "activation", weight = "weight" }
other = "activation"

[[rules]]
name = "convolution_activation"
chain = ["aten.convolution", "aten.relu|aten.hardtanh|aten.relu6|aten.hardswish|aten.silu"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "convolution"
chain = ["aten.convolution"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "linear_add_relu"
chain = ["aten.linear", "aten.add.Tensor", "aten.relu"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "linear_add"
chain = ["aten.linear", "aten.add.Tensor"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "linear_activation"
chain = ["aten.linear", "aten.relu|aten.leaky_relu|aten.tanh|aten.gelu"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { input = "activation", weight = "weight" }

[[rules]]
name = "mul"
chain = ["aten.mul.Tensor"]
inputs = { self = "activation", other = "activation" }
same_shape = true

[[rules]]
name = "pool"
chain = ["aten.max_pool2d|aten.avg_pool2d|aten.adaptive_avg_pool2d"]
inputs = { self = "activation" }
propagates = true

[[rules]]
name = "reshape"
chain = ["aten.flatten.using_ints|aten.reshape|aten.view"]
inputs = { self = "activation" }
propagates = true
needs_reader = true

[[rules]]
name = "cat"
chain = ["aten.cat"]
inputs = { tensors = "activation" }
propagates = true
)";

constexpr std::string_view kX86Dynamic = R"(name = "x86_dynamic"

[specs.activation]
dtype = "u8"
range = [0, 255]
dynamic = true
epsilon = 0.000244140625

[specs.weight]
dtype = "i8"
range = [-128, 127]
symmetric = true
per = "channel"
axis = 0
constant = true
epsilon = 0.000244140625

[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { input = "activation", weight = "weight" }
)";

constexpr std::string_view kWeightOnlyInt8 = R"(name = "weight_only_int8"

[specs.weight]
dtype = "i8"
range = [-128, 127]
symmetric = true
per = "channel"
axis = 0
constant = true
epsilon = 1e-9

[[rules]]
name = "convolution"
chain = ["aten.convolution"]
inputs = { weight = "weight" }

[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { weight = "weight" }
)";

constexpr std::string_view kWeightOnlyInt4 = R"(name = "weight_only_int4"

[specs.weight]
dtype = "i8"
range = [-8, 7]
symmetric = true
per = "group"
group_size = 32
constant = true
epsilon = 1e-9

[[rules]]
name = "linear"
chain = ["aten.linear"]
inputs = { weight = "weight" }
)";

/// `text`, which has `from` once, with `to` there.
std::string with(std::string_view text, std::string_view from, std::string_view to) {
  return std::string(text).replace(text.find(from), from.size(), to);
}

/// Sums of two products of seven and eight bits fit 16 bits: what processors without VNNI add up.
std::string_view x86_reduced_range() {
  static const std::string text =
      with(with(kX86Default, "x86_default", "x86_reduced_range"), "[0, 255]", "[0, 127]");
  return text;
}

using Entry = std::pair<std::string_view, std::string_view>;  // name, text

const std::array<Entry, 5>& built_in() {
  static const std::array<Entry, 5> entries{{{"x86_default", kX86Default},
                                             {"x86_reduced_range", x86_reduced_range()},
                                             {"x86_dynamic", kX86Dynamic},
                                             {"weight_only_int8", kWeightOnlyInt8},
                                             {"weight_only_int4", kWeightOnlyInt4}}};
  return entries;
}

}  // namespace

std::vector<std::string_view> recipe_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : built_in()) names.push_back(entry.first);
  return names;
}

std::string_view recipe_text(std::string_view name) {
  for (const Entry& entry : built_in())
    if (entry.first == name) return entry.second;
  throw UserError(
      fmt::format("there is no recipe '{}'; there are {}", name, fmt::join(recipe_names(), ", ")));
}

Recipe recipe_named(std::string_view name) {
  return parse_recipe(recipe_text(name), std::string(name));
}

}  // namespace tandem::quant
