// The vocabulary is the families listed here. Being named is what keeps the linker from dropping
// one. In-place and out= variants are derived: their schema is the functional one with alias marks
// added.
#include "ops/families.h"

#include "ops/aliases.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/autocast.h"

namespace tandem::ops {
namespace {

// clang-format off: one line each, so that families added side by side merge
std::vector<Family> quantization_families() {
  return {
      blocks_family(),
      float8_family(),
      choose_qparams_family(),
      fake_quantize_family(),
      int_mm_family(),
      moving_average_family(),
      per_channel_family(),
      per_tensor_family(),
      weight_only_family(),
  };
}
std::vector<Family> view_families() {
  return {
      view_family(),
      slice_family(),
      shape_family(),
      composite_view_family(),
      numpy_like_family(),
      diagonal_family(),
      join_family(),
      conversion_family(),
      bits_family(),
      edge_pad_family(),
  };
}
std::vector<Family> product_families() {
  return {
      packed_family(),
      packed_depthwise_family(),
      winograd_family(),
      group_sums_family(),
      grouped_product_family(),
  };
}
std::vector<Family> other_families() {
  return {
      pointwise_family(),
      reduce_family(),
      matmul_family(),
      factory_family(),
      random_family(),
      activation_family(),
      prod_family(),
      extrema_family(),
      truth_family(),
      cumsum_family(),
      moments_family(),
      vector_norm_family(),
      softmax_family(),
      loss_family(),
      divergence_family(),
      margin_loss_family(),
      weight_norm_family(),
      norm_family(),
      batch_norm_family(),
      attention_family(),
      embedding_bag_family(),
      recurrent_family(),
      encoder_layer_family(),
      index_tensor_family(),
      data_sized_family(),
      pool_family(),
      adaptive_pool_family(),
      fold_family(),
      grid_sample_family(),
      convolution_family(),
      convolution_forms_family(),
      resample_family(),
      upsample_family(),
      bessel_family(),

      transcendental_family(),
      parts_family(),
      complex_numbers_family(),
      division_family(),
      bitwise_family(),
      pairs_family(),
      blend_family(),
      asserts_family(),
      numbers_family(),
      foreach_family(),
      shrink_family(),
      gate_family(),
      index_family(),
      clamp_family(),
      compare_family(),
      copy_family(),
      host_family(),
      control_family(),
      custom_gradient_family(),
      gradient_family(),
      empty_family(),
      patterns_family(),
      scan_family(),
      index_write_family(),
      search_family(),
      histogram_family(),
      sort_family(),
      quantile_family(),
      reduce_composite_family(),
      distance_family(),
      vectors_family(),
      contraction_family(),
      chain_family(),
      fourier_family(),
      cross_family(),
      solve_family(),
      einsum_family(),
      random_ops_family(),
      dropout_family(),
  };
}
// clang-format on

std::vector<Family> all_families() {
  std::vector<Family> families = other_families();
  for (Family family : view_families()) families.push_back(family);
  for (Family family : product_families()) families.push_back(family);
  for (Family family : quantization_families()) families.push_back(family);
  return families;
}

/// What eager calls can_cast: a complex result goes into complex numbers alone, a float one not
/// into integers, nor a number into bool.
void check_cast(const ir::Call& call, const ir::Type& result, const ir::Type& target) {
  bool fits = is_complex(target.dtype) || (is_float(target.dtype) && !is_complex(result.dtype)) ||
              (!is_complex(result.dtype) && !is_float(result.dtype) &&
               (is_int(target.dtype) || result.dtype == DType::boolean));
  if (!fits)
    call.fail(fmt::format("a result of {} does not go into {}", name_of(result.dtype),
                          to_string(target)));
}

/// `aten::add_`, but Python's `aten::__and__` becomes `aten::__iand__`.
std::string inplace_name(const std::string& name) {
  size_t dunder = name.find("::__");
  return dunder == std::string::npos ? name + "_"
                                     : name.substr(0, dunder) + "::__i" + name.substr(dunder + 4);
}

/// `_foreach_add_.List(Tensor(a!)[] self, …) -> ()`: each element as by `add_`.
void add_list_inplace(ir::OpTable& table, ir::Op op) {
  op.schema.results.clear();
  op.types = [](const ir::Call& call) -> std::vector<ir::Type> {
    const ir::Values& self = call.values("self");
    std::vector<ir::Type> types = call.op().functional->types(call);
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i].sizes != self[i]->type.sizes)
        call.fail(fmt::format("result {}, {}, does not fit into {}", i, to_string(types[i]),
                              to_string(self[i]->type)));
      check_cast(call, types[i], self[i]->type);
    }
    return {};
  };
  table.add(std::move(op));
}

/// Types of the functional form. Its first parameter may be named otherwise (dropout's `input`);
/// then its rules see its own call.
std::vector<ir::Type> functional_types(const ir::Call& call) {
  const ir::Op& functional = *call.op().functional;
  bool same_names = functional.schema.params[0].name == call.op().schema.params[0].name;
  return functional.types(same_names ? call : ir::Call(functional, call.args()));
}

/// `add_.Tensor(Tensor(a!) self, …) -> Tensor(a!)`: the result is self, so its dtype and sizes are
/// self's.
void add_inplace(ir::OpTable& table, const ir::Op& functional) {
  ir::Op op = functional;
  op.schema.name = inplace_name(op.schema.name);
  if (std::string_view schema = functional.def->inplace_schema; !schema.empty())
    op.schema = ir::parse_schema(schema);
  if (std::string_view overload = functional.def->inplace_as; !overload.empty())
    op.schema.overload = overload == "default" ? "" : overload;
  op.schema.params[0].name = "self";
  op.schema.params[0].alias = "a";
  op.schema.params[0].mutates = true;
  op.functional = &functional;
  if (op.schema.params[0].type == ir::ParamType::tensor_list) return add_list_inplace(table, op);
  op.schema.results[0].alias = "a";
  op.schema.results[0].mutates = true;
  op.types = [](const ir::Call& call) -> std::vector<ir::Type> {
    const ir::Type& self = call.type("self");
    std::vector<ir::Type> types = functional_types(call);
    if (types[0].sizes != self.sizes)
      call.fail(fmt::format("the result {} does not fit into self {}", to_string(types[0]),
                            to_string(self)));
    check_cast(call, types[0], self);
    return {self};
  };
  table.add(std::move(op));
}

/// `add.out(…, *, Tensor(a!) out) -> Tensor(a!)`.
void add_out(ir::OpTable& table, const ir::Op& functional) {
  ir::Op op = functional;
  op.schema.overload = functional.def->out_as.empty() ? "out" : functional.def->out_as;
  ir::Param out;
  out.name = "out";
  out.type = ir::ParamType::tensor;
  out.keyword_only = true;
  out.alias = "a";
  out.mutates = true;
  op.schema.params.push_back(out);
  op.schema.results[0].alias = "a";
  op.schema.results[0].mutates = true;
  op.types = [](const ir::Call& call) -> std::vector<ir::Type> {
    const ir::Type& target = call.type("out");
    std::vector<ir::Type> types = call.op().functional->types(call);
    if (types[0].sizes != target.sizes)
      call.fail(fmt::format("the result {} does not fit into out {}", to_string(types[0]),
                            to_string(target)));
    check_cast(call, types[0], target);
    return {target};
  };
  op.functional = &functional;
  table.add(std::move(op));
}

void add(ir::OpTable& table, ir::Schema schema, const OpDef& def) {
  const ir::Autocast autocast = autocast_of(schema);
  const ir::Op& op =
      table.add({std::move(schema), def.types, &def, nullptr, autocast, def.data_sized});
  if (def.inplace) add_inplace(table, op);
  if (def.out) add_out(table, op);
}

ir::OpTable make_table() {
  ir::OpTable table;
  for (Family family : all_families()) {
    for (const OpDef* def : family) {
      ir::Schema schema = ir::parse_schema(def->schema);
      for (std::string_view name : def->mutates)
        schema.params[static_cast<size_t>(schema.find(name))].mutates = true;
      add(table, std::move(schema), *def);
    }
  }
  for (const Alias& alias : aliases())
    add(table, alias_schema(table, alias), definition_of(table, alias));
  return table;
}

bool is_tensor_param(const ir::Param& param) {
  return param.type == ir::ParamType::tensor || param.type == ir::ParamType::tensor_list;
}

bool has_tensor_param(const ir::Schema& schema) {
  for (const ir::Param& param : schema.params)
    if (is_tensor_param(param)) return true;
  return false;
}

/// An op of ours that a pass writes in other ops before anything is lowered (tandem::gradient): it
/// says why it has no gradient, and nothing else.
bool is_replaced(const ir::Op& op) {
  const OpDef& def = def_of(op);
  return op.schema.name.starts_with("tandem::") && def.lower == nullptr &&
         def.decompose == nullptr && def.fast.empty() && !def.no_grad.empty();
}

}  // namespace

std::vector<const OpDef*> listed(std::span<const OpDef> table,
                                 std::initializer_list<const OpDef*> others) {
  std::vector<const OpDef*> ops(others);
  for (const OpDef& def : table) ops.push_back(&def);
  return ops;
}

const ir::OpTable& op_table() {
  static const ir::OpTable kTable = make_table();
  return kTable;
}

bool is_parted(const OpDef& def) {
  return def.complex.rule != nullptr && def.lower == nullptr && def.decompose == nullptr;
}

std::vector<std::string> check_table(const ir::OpTable& table) {
  std::vector<std::string> problems;
  for (const ir::Op& op : table.ops()) {
    if (op.functional != nullptr) continue;
    const OpDef& def = def_of(op);
    bool is_effect = op.mutates();  // copy_: functionalize removes it
    if (def.opaque || is_replaced(op)) continue;
    if (op.is_view() && def.scatter == nullptr && def.scatter_part == nullptr)
      problems.push_back(op.name() + " is a view without a scatter rule");
    if (def.types == nullptr && def.data_sized.types == nullptr)
      problems.push_back(op.name() + " has no type rule");
    if (is_parted(def)) continue;
    if (def.lower == nullptr && def.decompose == nullptr && !is_effect)
      problems.push_back(op.name() + " has neither a lowering nor a decomposition");
    if (def.composite != nullptr && def.decompose == nullptr)
      problems.push_back(op.name() + " has composite calls without a decomposition");
    bool differentiable = has_tensor_param(op.schema) && def.no_grad.empty() && !is_effect;
    if (differentiable && def.vjp == nullptr && def.decompose == nullptr)
      problems.push_back(op.name() + " has no gradient and gives no reason");
    const bool has_graph = std::any_of(op.schema.params.begin(), op.schema.params.end(),
                                       [](const ir::Param& param) { return param.name == "body"; });
    const bool gives_number =
        op.schema.results.size() == 1 && op.schema.results[0].type == ir::ParamType::scalar;
    if (def.samples.empty() && !is_effect && !has_graph && !gives_number)
      problems.push_back(op.name() + " has no samples");
  }
  return problems;
}

Gradients zero_gradient(ir::Builder&, const ir::Call& c, Grads) {
  Gradients gradients;
  for (const ir::Param& param : c.op().schema.params)
    if (param.type == ir::ParamType::tensor &&
        std::holds_alternative<ir::Value*>(c.arg(param.name)))
      gradients.push_back({param.name, Tensor{}});
  return gradients;
}

}  // namespace tandem::ops
