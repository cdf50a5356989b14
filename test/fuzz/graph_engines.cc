// Small random graphs through every engine. All of them compute the same trees of sums, so results
// are equal bit for bit: optimised code, code that LLVM did not touch, code without the optional
// passes and the joins of schedule, and, where no function is approximated, the interpreter of
// loops. Text in between, so that a graph that fails is a file.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "base/diagnostic.h"
#include "base/flags.h"
#include "driver/compiler.h"
#include "ir/text.h"
#include "ops/opdef.h"
#include "test/fuzz/engine.h"

namespace tandem::fuzz {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;
using Sizes = std::vector<int64_t>;

struct Named {
  std::string name;
  Sizes sizes;
};

/// Writes lines that are right by construction; sizes are known, the text may say a symbol.
class Writer {
 public:
  explicit Writer(Random& random) : random_(random), is_exact_(random.one_in(2)) {}

  std::string write() {
    rows_ = 1 + static_cast<int64_t>(random_.below(random_.one_in(4) ? 70 : 9));
    if (random_.one_in(20)) rows_ = 0;
    columns_ = 1 + static_cast<int64_t>(random_.below(random_.one_in(4) ? 90 : 12));
    is_dynamic_ = rows_ > 1 && random_.one_in(3);
    for (size_t i = 0; i < 2 + random_.below(2); ++i)
      values_.push_back({fmt::format("x{}", i), i == 2 ? Sizes{columns_} : Sizes{rows_, columns_}});
    std::string head = fmt::format("; rows {} exact {}\ngraph @f(", rows_, is_exact_ ? 1 : 0);
    for (size_t i = 0; i < values_.size(); ++i)
      head += fmt::format("{}%x{}: f32[{}]", i == 0 ? "" : ", ", i, sizes_of(values_[i].sizes));
    head += is_dynamic_ ? ") where s0 in [2, 4096] {\n" : ") {\n";
    const size_t lines = 1 + random_.below(10);
    for (size_t i = 0; i < lines; ++i) add_line();
    const std::string& last = values_.back().name;
    return head + body_ + fmt::format("  return %{}, %{}\n}}\n", last, made().name);
  }

 private:
  const Named& any() { return values_[random_.below(values_.size())]; }
  /// Made by a line, not an input.
  const Named& made() {
    const size_t inputs = static_cast<size_t>(
        std::ranges::count_if(values_, [](const Named& v) { return v.name[0] == 'x'; }));
    return values_[inputs + random_.below(values_.size() - inputs)];
  }
  std::string sizes_of(const Sizes& sizes) const {
    std::string text;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool is_symbol = is_dynamic_ && i == 0 && sizes.size() == 2;
      text += (i == 0 ? "" : ", ") + (is_symbol ? "s0" : std::to_string(sizes[i]));
    }
    return text;
  }
  void add(const std::string& call, Sizes sizes) {
    const std::string name = std::to_string(count_++);
    body_ += "  %" + name + " = aten." + call + "\n";
    values_.push_back({name, std::move(sizes)});
  }
  void add_unary() {
    static const std::vector<std::string> kExact = {"relu",   "neg",  "abs",
                                                    "square", "sign", "floor"};
    static const std::vector<std::string> kOther = {"exp",  "tanh", "sigmoid", "sin",
                                                    "sqrt", "erf",  "log1p",   "rsqrt"};
    const Named value = any();
    const std::string& op = random_.pick(is_exact_ || random_.one_in(2) ? kExact : kOther);
    add(fmt::format("{}(%{})", op, value.name), value.sizes);
  }
  void add_binary() {
    static const std::vector<std::string> kOps = {"add.Tensor", "mul.Tensor", "sub.Tensor",
                                                  "maximum", "minimum"};
    const Named a = any();
    const Named b = any();
    const bool fits = a.sizes == b.sizes || b.sizes == Sizes{columns_} || b.sizes.empty();
    if (!fits || a.sizes.size() < b.sizes.size() ||
        (b.sizes.size() == 1 && a.sizes.back() != columns_))
      return add_unary();
    add(fmt::format("{}(%{}, %{})", random_.pick(kOps), a.name, b.name), a.sizes);
  }
  void add_reduction() {
    const Named value = any();
    if (value.sizes.size() != 2) return add_unary();
    const size_t dim = random_.below(2);
    const bool is_sum = random_.one_in(2) || value.sizes[dim] == 0;
    Sizes sizes = value.sizes;
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
    if (dim == 1) return add_row_reduction(value, is_sum);
    add(fmt::format("{}(%{}, [{}])", is_sum ? "sum.dim_IntList" : "amax", value.name, dim), sizes);
  }
  /// Kept as a column that broadcasts: it is put back to all columns at once.
  void add_row_reduction(const Named& value, bool is_sum) {
    const std::string name = std::to_string(count_);
    add(fmt::format("{}(%{}, [1], true)", is_sum ? "sum.dim_IntList" : "amax", value.name),
        {value.sizes[0], 1});
    const Named column = values_.back();
    values_.pop_back();
    add(fmt::format("{}(%{}, %{})", random_.one_in(2) ? "sub.Tensor" : "mul.Tensor", value.name,
                    column.name),
        value.sizes);
  }
  void add_product() {
    const Named a = any();
    const Named b = any();
    if (a.sizes.size() != 2 || b.sizes.size() != 2 || is_dynamic_) return add_binary();
    if (a.sizes[1] == b.sizes[0])
      return add(fmt::format("mm(%{}, %{})", a.name, b.name), {a.sizes[0], b.sizes[1]});
    add(fmt::format("t(%{})", a.name), {a.sizes[1], a.sizes[0]});
    const Named turned = values_.back();
    if (a.sizes == b.sizes)
      add(fmt::format("mm(%{}, %{})", turned.name, b.name), {a.sizes[1], a.sizes[1]});
  }
  void add_view() {
    const Named value = any();
    if (value.sizes.size() != 2 || is_dynamic_) return add_unary();
    const int64_t rows = value.sizes[0];
    const int64_t columns = value.sizes[1];
    switch (random_.below(4)) {
      case 0:
        return add(fmt::format("slice.Tensor(%{}, 1, {}, {}, 1)", value.name, columns / 3, columns),
                   {rows, columns - columns / 3});
      case 1:
        return add(fmt::format("cat([%{}, %{}], 1)", value.name, value.name), {rows, 2 * columns});
      case 2:
        return add(fmt::format("constant_pad_nd(%{}, [1, 2], 0.5)", value.name),
                   {rows, columns + 3});
      default:
        return add(fmt::format("reshape(%{}, [{}, {}])", value.name, columns, rows),
                   {columns, rows});
    }
  }
  void add_line() {
    switch (random_.below(7)) {
      case 0:
      case 1: return add_unary();
      case 2:
      case 3: return add_binary();
      case 4: return add_reduction();
      case 5: return add_product();
      default: return is_exact_ || !any().sizes.empty() ? add_view() : add_unary();
    }
  }

  Random& random_;
  bool is_exact_;
  bool is_dynamic_ = false;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  std::vector<Named> values_;
  std::string body_;
  int count_ = 0;
};

std::vector<Argument> arguments_of(const ir::Graph& graph, int64_t rows) {
  std::vector<Argument> arguments;
  Random random(7);
  for (const ir::Value* input : graph.inputs()) {
    Sizes sizes;
    for (const sym::Expr& size : input->type.sizes) sizes.push_back(size.constant().value_or(rows));
    const Array array = Array::empty(DType::f32, sizes);
    for (int64_t i = 0; i < array.numel(); ++i)
      array.data<float>()[i] = static_cast<float>(random.below(4096)) / 1024.0F - 2.0F;
    arguments.emplace_back(array);
  }
  return arguments;
}

std::vector<Result> results_of(const std::string& text, int64_t rows,
                               const driver::Options& options) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  if (module->graphs().empty()) throw UserError("no graph");
  const std::vector<Argument> arguments = arguments_of(*module->graphs()[0], rows);
  return driver::compile(*module->graphs()[0], options)->run(arguments);
}

/// NaN is NaN: which of two is handed on is not specified.
bool is_same(float a, float b) {
  return (a != a && b != b) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_equal(const std::vector<Result>& expected, const std::vector<Result>& actual,
                  const char* engine) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Array a = std::get<Array>(expected[i]).contiguous();
    const Array b = std::get<Array>(actual[i]).contiguous();
    if (!std::ranges::equal(a.sizes(), b.sizes())) throw std::logic_error("sizes differ");
    for (int64_t at = 0; at < a.numel(); ++at)
      if (!is_same(a.data<float>()[at], b.data<float>()[at]))
        throw std::logic_error(fmt::format("{}: output {} element {}: {} and {}", engine, i, at,
                                           a.data<float>()[at], b.data<float>()[at]));
  }
}

/// Kernels as they are before they meet the machine: fused or each op alone, interpreted or
/// compiled. Their sums go point by point, other than those of mapped kernels.
void run_unmapped(const std::string& input, int64_t rows) {
  const FlagOverride unmapped(Flag::disable, "map_axes");
  driver::Options interpreted;
  interpreted.interpret = true;
  const std::vector<Result> expected = results_of(input, rows, interpreted);
  expect_equal(expected, results_of(input, rows, {}), "unmapped, compiled");
  const FlagOverride alone(Flag::fusion, "0");
  expect_equal(expected, results_of(input, rows, interpreted), "unmapped, not fused");
}

void run_graph(const std::string& input) {
  int rows = 3;
  int exact = 0;
  std::sscanf(input.c_str(), "; rows %d exact %d", &rows, &exact);
  const FlagOverride cache(Flag::cache_dir, "");
  const driver::Options plain;
  const std::vector<Result> expected = results_of(input, rows, plain);
  driver::Options other;
  other.level = 0;
  expect_equal(expected, results_of(input, rows, other), "level 0");
  other = {};
  other.always_parallel = true;
  expect_equal(expected, results_of(input, rows, other), "in parallel");
  {
    const FlagOverride disabled(Flag::disable, "cse,chain_products,sum_on_the_way");
    expect_equal(expected, results_of(input, rows, plain), "without optional passes");
  }
  if (exact == 0) return;
  other = {};
  other.interpret = true;
  expect_equal(expected, results_of(input, rows, other), "interpreter");
  run_unmapped(input, rows);
}

}  // namespace

std::vector<Engine> graph_engines() {
  return {{"graphs", [](Random& random) { return Writer(random).write(); }, run_graph, 60}};
}

}  // namespace tandem::fuzz
