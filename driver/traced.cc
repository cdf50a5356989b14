// Sizes by name are symbols, the same name the same one.
#include "driver/traced.h"

#include <fmt/format.h>

#include "base/diagnostic.h"

namespace tandem::driver {
namespace {

sym::Expr size_in(ir::Graph& graph, const Size& size) {
  if (const int64_t* number = std::get_if<int64_t>(&size.value)) return *number;
  return graph.pool().symbol(std::get<std::string>(size.value), {2, sym::Range::kMax});
}

}  // namespace

void trace_function(ir::Graph& graph, const ModelFunction& function,
                    const std::vector<AotInput>& inputs) {
  nn::Trace trace(graph, true);
  nn::Tensors data;
  for (const AotInput& input : inputs) {
    ir::Sizes sizes;
    for (const Size& size : input.sizes) sizes.push_back(size_in(graph, size));
    nn::Tensor& tensor = data.emplace_back(trace.input(input.name, input.dtype, sizes));
    if (input.requires_grad && !is_float(input.dtype) && !is_complex(input.dtype))
      throw UserError(fmt::format("input '{}' is {}: only floats have gradients", input.name,
                                  name_of(input.dtype)));
    tensor.value()->requires_grad = input.requires_grad;
  }
  for (const nn::Tensor& result : function(trace, data)) graph.add_output(result.value());
  if (!trace.used().empty())
    throw UserError(fmt::format("parameter '{}' must be an input: an aot_function has no state",
                                trace.used()[0]->qualified_name()));
}

}  // namespace tandem::driver
