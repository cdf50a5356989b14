// A text says of each input where it lies, and has the bases as inputs of that role; so what is
// compiled for such calls prints, is cached and is repeated like all else.
#include "driver/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

ir::Value& input_named(const ir::Graph& graph, const std::string& name) {
  const auto found =
      std::ranges::find(graph.inputs(), name, [](const ir::Value* input) { return input->name; });
  if (found == graph.inputs().end())
    throw UserError(fmt::format("graph @{} has no input %{}", graph.name(), name));
  return **found;
}

void lay(ir::Graph& graph, const SharedMemory::Member& member, const std::string& base) {
  ir::Value& input = input_named(graph, member.input);
  if (!input.type.is_tensor() || member.strides.size() != input.type.sizes.size())
    throw UserError(fmt::format("input %{} {} cannot lie within a base with {} strides", input.name,
                                to_string(input.type), member.strides.size()));
  input.type.strides.assign(member.strides.begin(), member.strides.end());
  input.within = {base, member.offset};
  input.requires_grad = false;  // its base has the gradient
}

}  // namespace

void lay_within(ir::Graph& graph, std::span<const SharedMemory> memories) {
  for (size_t i = 0; i < memories.size(); ++i) {
    const SharedMemory& memory = memories[i];
    const std::string name = graph.free_input_name(fmt::format("base{}", i));
    ir::Type type = ir::Type::tensor(memory.dtype, {memory.sizes.begin(), memory.sizes.end()});
    type.strides.assign(memory.strides.begin(), memory.strides.end());
    ir::Value* base = graph.add_input(name, std::move(type), ir::Role::base);
    base->requires_grad = memory.requires_grad;
    for (const SharedMemory::Member& member : memory.members) lay(graph, member, name);
  }
}

std::string text_within(std::string_view text, std::span<const SharedMemory> memories,
                        const std::map<std::string, int64_t>& sizes) {
  std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table(), {sizes, {}, {}});
  if (module->graphs().empty()) throw UserError("the text holds no graph");
  lay_within(*module->graphs()[0], memories);
  return ir::to_string(*module);
}

}  // namespace tandem::driver
