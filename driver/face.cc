// The vocabulary and the text form behind one door, so that python/ needs no other room.
#include "driver/face.h"

#include "ir/text.h"
#include "ops/opdef.h"
#include "runtime/fork.h"
#include "runtime/parallel_for.h"
#include "sym/equations.h"

namespace tandem::driver {
namespace {

std::string name_of(ops::DTypes dtypes) {
  switch (dtypes) {
    case ops::DTypes::floats: return "floats";
    case ops::DTypes::numbers: return "numbers";
    case ops::DTypes::integers: return "integers";
    case ops::DTypes::all: return "all";
    case ops::DTypes::f32_only: return "f32_only";
    case ops::DTypes::booleans: return "booleans";
  }
  return "";
}

bool has_tensor(const ir::Schema& schema) {
  for (const ir::Param& param : schema.params)
    if (param.type == ir::ParamType::tensor || param.type == ir::ParamType::tensor_list)
      return true;
  return false;
}

bool gives_number(const ir::Schema& schema) {
  return schema.results.size() == 1 && schema.results[0].type == ir::ParamType::scalar;
}

std::string route_of(const ir::Op& op) {
  const ops::OpDef& def = ops::def_of(op);
  if (!def.runs.empty()) return "programs of its bodies";
  if (gives_number(op.schema) && def.opaque) return "the runtime";
  if (def.opaque) return "the caller's framework";
  if (op.is_view()) return "view";
  if (def.lower != nullptr) return def.fast.empty() ? "loops" : "loops or library";
  if (!def.fast.empty()) return "library";
  return def.decompose != nullptr || def.functional != nullptr ? "other ops" : "passes";
}

OpInfo info_of(const ir::Op& op) {
  const ops::OpDef& def = ops::def_of(op);
  OpInfo info;
  info.name = op.name();
  info.schema = std::string(def.schema);
  for (std::string_view sample : def.samples) info.samples.emplace_back(sample);
  info.sample_dtypes = name_of(def.sample_dtypes);
  info.route = route_of(op);
  info.no_grad = std::string(def.no_grad);
  info.differentiable = def.no_grad.empty() && !op.mutates() && has_tensor(op.schema);
  info.random = def.random;
  info.is_view = op.is_view();
  info.mutates = op.mutates();
  info.tells_size = op.data_sized.dim != nullptr || gives_number(op.schema);
  static constexpr const char* kPolicies[] = {"none", "lower", "lower_factors", "full", "promote"};
  info.autocast = kPolicies[static_cast<size_t>(op.autocast)];
  return info;
}

}  // namespace

std::vector<OpInfo> vocabulary() {
  std::vector<OpInfo> infos;
  for (const ir::Op& op : ops::op_table().ops()) {
    if (op.functional != nullptr) continue;
    OpInfo& info = infos.emplace_back(info_of(op));
    for (const ir::Op& derived : ops::op_table().ops())
      if (derived.functional == &op) info.variants.push_back(derived.name());
  }
  return infos;
}

SizeInfo solve_size(const std::string& name, int64_t low, int64_t high,
                    const std::vector<std::string>& equations) {
  sym::Pool pool;
  const sym::Expr symbol = pool.symbol(name, {low, high});
  std::vector<sym::Equation> read;
  for (const std::string& text : equations) {
    std::string error;
    const std::optional<sym::Equation> equation = sym::parse_equation(pool, text, &error);
    if (!equation) throw UserError("an equation between sizes: " + error);
    read.push_back(*equation);
  }
  const sym::SizeFacts facts = sym::solve(symbol, read);
  return {facts.range.lo, facts.range.hi, facts.divisor};
}

std::unique_ptr<Executable> compile_text(std::string_view text, const Options& options) {
  std::unique_ptr<ir::Module> module;
  {
    const runtime::ForkHold hold;  // the table of operators is made at its first use
    module = ir::parse_module(text, ops::op_table());
  }
  if (module->graphs().empty()) throw UserError("the text holds no graph");
  return compile(*module->graphs()[0], options);
}

std::pair<std::string, std::string> export_text(std::string_view text,
                                                const ExportOptions& options) {
  const runtime::ForkHold hold;
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  if (module->graphs().empty()) throw UserError("the text holds no graph");
  const ExportSignature signature = export_graph(*module->graphs()[0], options);
  return {ir::to_string(*module), to_string(signature)};
}

void set_threads(int count) { runtime::set_threads(count); }
int threads() { return runtime::threads(); }
AllocatorCounters memory_use() { return runtime::allocator().counters(); }
void reset_peak_memory() { runtime::allocator().reset_peak(); }
void release_cached_memory() { runtime::allocator().trim(); }
int set_number_of_threads() { return runtime::set_number_of_threads(); }

}  // namespace tandem::driver
