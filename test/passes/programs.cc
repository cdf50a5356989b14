// Programs that cover what a partition meets. Random ones draw each node's operands from all values
// so far.
#include "test/passes/programs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/opdef.h"
#include "ops/tensor.h"

namespace tandem::test {

using ops::Tensor;

const std::vector<std::string_view>& hand_written() {
  static const std::vector<std::string_view> kPrograms = {
      R"(graph @mlp(%x: f32[6, 4] {input grad}, %w: f32[8, 4] {param "w" grad},
    %b: f32[8] {param "b" grad},
                 %v: f32[3, 8] {param "v" grad}) {
        %0 = aten.linear(%x, %w, %b)
        %1 = aten.gelu(%0)
        %2 = aten.linear(%1, %v)
        %3 = aten.log_softmax.int(%2, -1)
        return %3
      })",
      R"(graph @attention(%q: f32[2, 5, 4] {input grad}, %k: f32[2, 5, 4] {input grad},
    %v: f32[2, 5, 4] {input grad}) {
        %0 = aten.transpose.int(%k, 1, 2)
        %1 = aten.bmm(%q, %0)
        %2 = aten.mul.Scalar(%1, 0.5)
        %3 = aten.softmax.int(%2, -1)
        %4 = aten.dropout(%3, 0.5, true)
        %5 = aten.bmm(%4, %v)
        return %5
      })",
      R"(graph @dynamic(%x: f32[s0, s1] {input grad}) where s0 in [2, 9], s1 in [2, 9] {
        %0 = aten.sum.dim_IntList(%x, [1])
        %1 = aten.mean(%x)
        return %0, %1
      })",
      R"(graph @dynamic_chain(%x: f32[s0, 4] {input grad},
    %w: f32[4, 4] {param "w" grad}) where s0 in [2, 9] {
        %0 = aten.mm(%x, %w)
        %1 = aten.sin(%0)
        %2 = aten.reshape(%1, [s0 * 4])
        %3 = aten.cumsum(%2, 0)
        return %3
      })",
      R"(graph @embedding(%w: f32[10, 4] {param "w" grad}, %i: i64[6]) {
        %0 = aten.embedding(%w, %i)
        %1 = aten.tanh(%0)
        %2 = aten.mul.Tensor(%1, %0)
        return %2
      })",
      R"(graph @overwritten(%x: f32[8] {input grad}, %s: f32[8]) {
        %0 = aten.mul.Tensor(%x, %s)
        %1 = aten.add_.Scalar(%s, 1)
        %2 = aten.mul.Tensor(%0, %s)
        return %2
      })",
      R"(graph @overwritten_in_a_region(%x: f32[4, 4] {input grad}, %s: f32[4, 4]) {
        %0 = aten.slice.Tensor(%s, start=0, end=2) {region 1, must_recompute}
        %1 = aten.slice.Tensor(%s, start=2, end=4) {region 1, must_recompute}
        %2 = aten.cat([%0, %1]) {region 1, must_recompute}
        %3 = aten.mm(%2, %x) {region 1, must_recompute}
        %4 = aten.mm(%3, %x) {region 1, must_recompute}
        %5 = aten.sin(%4)
        %6 = aten.add_.Scalar(%s, 1)
        return %5
      })",
      R"(graph @half(%x: bf16[8, 8] {input grad}, %w: f32[8, 8] {param "w" grad}) {
        %0 = aten._to_copy(%w, dtype=bf16)
        %1 = aten.mm(%x, %0)
        %2 = aten._to_copy(%1, dtype=f32)
        %3 = aten.layer_norm(%2, [8])
        %4 = aten.relu(%3)
        return %4
      })",
      R"(graph @checkpoint(%x: f32[8, 8] {input grad}, %w: f32[8, 8] {param "w" grad}) {
        %0 = aten.mm(%x, %w) {region 1, must_recompute}
        %1 = aten.dropout(%0, 0.5, true) {region 1, must_recompute}
        %2 = aten.sin(%1) {region 1, must_recompute}
        %3 = aten.mm(%2, %w) {region 2, must_recompute}
        %4 = aten.sin(%3) {region 2, must_recompute}
        return %4
      })",
      R"(graph @gradients(%x: f32[4] {input grad}, %y: f32[4] {input grad},
    %z: f32[4] {input grad}) {
        %0 = aten.add.Tensor(%x, %y)
        %1 = aten.mul.Tensor(%0, %x)
        return %0, %1, %0
      })"};
  return kPrograms;
}

namespace {

class Writer {
 public:
  Writer(ir::Graph& graph, uint32_t number, bool policies)
      : graph_(graph), builder_(graph), random_(number), policies_(policies) {}

  void write() {
    for (const char* name : {"x", "w", "s"}) {
      ir::Role role = name[0] == 'w' ? ir::Role::parameter : ir::Role::input;
      ir::Value* input = graph_.add_input(name, ir::Type::tensor(DType::f32, {4, 4}), role,
                                          role == ir::Role::parameter ? name : "");
      input->requires_grad = name[0] != 's';
      values_.emplace_back(builder_, input);
    }
    size_t nodes = 4 + random_() % 20;
    for (size_t i = 0; i < nodes; ++i) {
      stamp();
      values_.push_back(next());
    }
    builder_.stamp() = {};
    ops::Tensor last = values_.back();
    graph_.add_output((last + values_[0] * values_[1]).value());
    if (random_() % 2) graph_.add_output(any().value());
    if (random_() % 3 == 0) builder_.call("aten.add_.Scalar", {values_[2].value(), 1});
  }

 private:
  Tensor any() {
    // Recent values more often, so that chains grow.
    size_t back = std::min<size_t>(random_() % values_.size(), random_() % values_.size());
    return values_[values_.size() - 1 - back];
  }

  void stamp() {
    builder_.stamp() = {};
    if (!policies_ || random_() % 2) return;
    builder_.stamp().region = static_cast<int32_t>(1 + random_() % 2);
    builder_.stamp().policy = static_cast<ir::RecomputePolicy>(random_() % 5);
  }

  Tensor next() {
    Tensor a = any();
    switch (random_() % 14) {
      case 0: return ops::mm(a, any()) * 0.25;
      case 1: return ops::sin(a);
      case 2: return ops::tanh(a);
      case 3: return a * any();
      case 4: return a + any();
      case 5: return ops::transpose(a, 0, 1);
      case 6: return ops::expand(ops::slice(a, 0, 1, 2), {4, 4});
      case 7: return ops::where(ops::compare("gt", any(), 0.0), a, 0.0);
      case 8: return ops::to(ops::cos(ops::to(a, DType::f64)), DType::f32);
      case 9: return ops::call(builder_, "aten.dropout", {a, 0.5, true});
      case 10: return a - ops::mean(a, {1}, true);
      case 11: return ops::call(builder_, "aten.softmax.int", {a, 1});
      case 12: return ops::cat({ops::slice(a, 0, 0, 2), ops::slice(any(), 0, 2, 4)}, 0);
      // Scaled: schedule refuses a product that reads such rows straight from the view.
      default:
        return ops::reshape(ops::permute(ops::reshape(a, {2, 2, 4}), {1, 0, 2}), {4, 4}) * 1.5;
    }
  }

  ir::Graph& graph_;
  ir::Builder builder_;
  std::mt19937 random_;
  bool policies_;
  std::vector<Tensor> values_;
};

template <class T>
void fill(runtime::Array& array, std::mt19937& random) {
  for (int64_t i = 0; i < array.numel(); ++i) {
    double unit = static_cast<double>(random() >> 8) / double(1 << 24);
    array.data<T>()[i] =
        is_float(array.dtype()) ? static_cast<T>(2 * unit - 1) : static_cast<T>(unit * 4);
  }
}

double at(const runtime::Array& array, int64_t i) {
  if (array.dtype() == DType::f32) return array.data<float>()[i];
  if (array.dtype() == DType::f64) return array.data<double>()[i];
  if (array.dtype() == DType::i64) return static_cast<double>(array.data<int64_t>()[i]);
  uint32_t bits = static_cast<uint32_t>(array.data<uint16_t>()[i]) << 16;  // bf16
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

std::unique_ptr<ir::Module> random_program(uint32_t number, bool policies) {
  std::unique_ptr<ir::Module> module = std::make_unique<ir::Module>(ops::op_table());
  Writer(module->add_graph("random"), number, policies).write();
  return module;
}

runtime::Argument random_argument(const ir::Value& input, std::mt19937& random,
                                  int64_t symbol_size) {
  if (!input.type.is_tensor()) return int64_t{7};
  std::vector<int64_t> sizes;
  for (sym::Expr size : input.type.sizes)
    sizes.push_back(*sym::evaluate(
        size, [&](const sym::Node* s) { return symbol_size + (s->name.back() - '0'); }));
  runtime::Array array = runtime::Array::zeros(input.type.dtype, sizes);
  if (input.type.dtype == DType::f32) fill<float>(array, random);
  if (input.type.dtype == DType::f64) fill<double>(array, random);
  if (input.type.dtype == DType::i64) fill<int64_t>(array, random);
  if (input.type.dtype == DType::bf16)
    for (int64_t i = 0; i < array.numel(); ++i)
      array.data<uint16_t>()[i] = static_cast<uint16_t>(0x3f00 + random() % 128);
  return array;
}

double difference(const runtime::Array& a, const runtime::Array& b) {
  if (a.dtype() != b.dtype() || !std::ranges::equal(a.sizes(), b.sizes()))
    return std::numeric_limits<double>::infinity();
  runtime::Array x = a.contiguous();
  runtime::Array y = b.contiguous();
  double largest = 1;
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    largest = std::max(largest, std::abs(at(x, i)));
    bool both_nan = std::isnan(at(x, i)) && std::isnan(at(y, i));
    double apart = std::abs(at(x, i) - at(y, i));
    if (!both_nan)
      worst = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(worst, apart);
  }
  return worst / largest;
}

}  // namespace tandem::test
