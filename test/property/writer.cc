// Problem: two roads that add in different orders agree bit for bit only where nothing is rounded.
// Approach: values are small integers wherever sums are taken, and what bounds them is carried
// along with every line; where a value is no integer, the bound of what two orders may differ by
// is carried instead. Gradients are bounded backwards, by slopes.
#include "test/property/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem::property {

namespace {

constexpr double kExact = 1 << 24;        // integers up to here are floats
constexpr double kF32 = 1.0 / (1 << 23);  // twice the rounding error of f32
constexpr double kBf16 = 1.0 / (1 << 7);  // of bf16
constexpr int64_t kLargestSymbol = 4096;

}  // namespace

bool Dim::is_symbolic() const { return text.find('s') != std::string::npos; }

Dim known(int64_t size) { return {std::to_string(size), size, size}; }

Dim plus(const Dim& a, const Dim& b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return known(a.most + b.most);
  return {fmt::format("({} + {})", a.text, b.text), a.least + b.least, a.most + b.most};
}

Dim times(const Dim& a, const Dim& b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return known(a.most * b.most);
  return {fmt::format("{}*{}", a.text, b.text), a.least * b.least, a.most * b.most};
}

int64_t count(const Dims& dims) {
  int64_t all = 1;
  for (const Dim& dim : dims) all *= dim.most;
  return all;
}

std::string text_of(const Dims& dims) {
  std::string text;
  for (const Dim& dim : dims) text += (text.empty() ? "" : ", ") + dim.text;
  return text;
}

bool Value::sums_exactly(double terms) const {
  return dtype == DType::i64 || dtype == DType::boolean ||
         (whole && error == 0 && most * terms <= kExact);
}

double rounded(double error, double most) { return error == 0 ? 0 : error + most * kF32; }

double error_of_sum(const Value& value, double terms) {
  if (value.sums_exactly(terms)) return 0;
  return terms * value.error + terms * terms * value.most * kF32;
}

Writer::Writer(Random& random, bool is_symbolic) : random_(random), is_symbolic_(is_symbolic) {
  const bool is_tall = random_.one_in(6);  // tasks are blocks of up to 256 rows
  const auto size = [&] {
    if (is_tall && dims_.empty()) return 250 + static_cast<int64_t>(random_.below(400));
    const size_t limit = random_.one_in(4) ? 70 : random_.one_in(2) ? 20 : 9;
    return 1 + static_cast<int64_t>(random_.below(limit));
  };
  for (int i = 0; i < 4; ++i) {
    if (!is_symbolic || (i > 0 && random_.one_in(2))) {
      dims_.push_back(known(i > 0 && random_.one_in(40) ? 0 : size()));
      if (dims_.back().most == 0) feature("size 0");
      continue;
    }
    const int64_t a = std::max<int64_t>(size(), 2);
    const int64_t b = std::max<int64_t>(size(), 2);
    const std::string symbol = fmt::format("s{}", symbols_.size());
    symbols_.push_back(fmt::format("{} {} {}", symbol, a, b));
    dims_.push_back({symbol, std::min(a, b), std::max(a, b)});
    input(DType::f32, {dims_.back()}, 3);  // binds it
  }
}

size_t Writer::enter(Value value) {
  if (value.dtype == DType::bf16) {
    value.error = value.error == 0 ? 0 : value.error + value.most * kBf16;
    value.most *= 1 + kBf16;
  }
  if (value.is_float()) value.whole = value.whole && value.most <= kExact;
  values_.push_back(std::move(value));
  return values_.size() - 1;
}

namespace {

bool takes_extrema(const std::string& call) {
  static const std::vector<std::string> kOps = {"amax(",   "amin(",   "max.dim(",  "min.dim(",
                                                "cummax(", "cummin(", "max_pool2d"};
  return std::ranges::any_of(kOps, [&](const std::string& op) { return call.starts_with(op); });
}

bool shows(const std::string& call) {
  static const std::vector<std::string> kOps = {"permute(",   "slice.",   "select.",   "expand(",
                                                "unsqueeze(", "reshape(", "transpose."};
  return std::ranges::any_of(kOps, [&](const std::string& op) { return call.starts_with(op); });
}

/// How the text says what two roads may differ by. A bound below every number but 0 lets only
/// zeros of other signs pass.
std::string bound_of(const Value& value) {
  return value.error == 0 && value.either_zero ? "1e-300" : fmt::format("{:.3g}", value.error);
}

}  // namespace

bool Writer::reads_either_zero(const std::string& call) const {
  for (const Value& value : values_) {
    if (!value.either_zero) continue;
    for (const char* end : {",", ")", "]"})
      if (call.find("%" + value.name + end) != std::string::npos) return true;
  }
  return false;
}

size_t Writer::add(const std::string& call, Value result, std::vector<Slope> slopes) {
  result.is_view = shows(call);
  result.either_zero = result.is_float() && (takes_extrema(call) || reads_either_zero(call));
  result.name = std::to_string(count_++);
  const std::string name = result.name;
  const bool is_smooth = !slopes.empty() || !result.is_float();
  const size_t id = enter(std::move(result));
  const bool spelled = call.starts_with("tandem.");
  lines_.push_back({fmt::format("  %{} = {}{}  ; {}\n", name, spelled ? "" : "aten.", call,
                                bound_of(values_[id])),
                    id, is_smooth, std::move(slopes)});
  affords(static_cast<double>(count(values_[id].dims)));
  feature(std::string(name_of(values_[id].dtype)));
  return id;
}

std::vector<size_t> Writer::add_several(const std::string& call, std::vector<Value> results) {
  std::vector<size_t> ids;
  std::string left;
  std::string errors;
  for (Value& result : results) {
    result.is_view = false;
    result.either_zero = result.is_float() && (takes_extrema(call) || reads_either_zero(call));
    result.name = std::to_string(count_++);
    left += (left.empty() ? "%" : ", %") + result.name;
    ids.push_back(enter(std::move(result)));
    errors += " " + bound_of(values_[ids.back()]);
  }
  lines_.push_back({fmt::format("  {} = aten.{}  ;{}\n", left, call, errors), ids[0], false, {}});
  affords(static_cast<double>(count(values_[ids[0]].dims)));
  return ids;
}

/// Now and then an input lies otherwise than row-major.
std::string Writer::strides_for(const Dims& dims) {
  if (dims.size() < 2 || count(dims) == 0 || !random_.one_in(6)) return "";
  std::vector<size_t> order;  // fastest first
  for (size_t i = 0; i < dims.size(); ++i) order.push_back(i);
  if (dims.size() == 4) order = {1, 3, 2, 0};
  std::vector<std::string> strides(dims.size());
  std::string stride;
  for (size_t at : order) {
    strides[at] = stride.empty() ? "1" : stride;
    stride += (stride.empty() ? "" : "*") + dims[at].text;
  }
  feature("strided input");
  std::string text;
  for (const std::string& each : strides) text += (text.empty() ? "" : ", ") + each;
  return "{" + text + "}";
}

size_t Writer::input(DType dtype, const Dims& dims, double most) {
  Value value{fmt::format("x{}", inputs_.size()), dtype, dims, most, true, 0};
  const std::string type =
      fmt::format("{}[{}]{}", name_of(dtype), text_of(dims), strides_for(dims));
  const std::string data = fmt::format("{} {:.0f} 1", dtype == DType::boolean ? 0 : -most, most);
  const size_t id = enter(std::move(value));
  values_[id].most = most;  // as it is given, it is bf16
  inputs_.push_back({id, type, data});
  return id;
}

size_t Writer::indices(const Dims& dims, int64_t below) {
  const size_t id = input(DType::i64, dims, static_cast<double>(below));
  inputs_.back().data = fmt::format("0 {} 1", below - 1);
  return id;
}

size_t Writer::fractions(const Dims& dims) {
  const size_t id = input(DType::f32, dims, 2);
  inputs_.back().data = "-8 8 0.25";
  values_[id].whole = false;
  return id;
}

/// The input's bounds hold for what is written too: views of it that are in use see the new value.
void Writer::write_back(size_t input, size_t value) {
  const Value& from = values_[value];
  if (from.error != 0 || from.either_zero || (values_[input].whole && !from.whole)) return;
  const size_t fits = from.most > values_[input].most ? tamed(value, values_[input].most) : value;
  lines_.push_back(
      {fmt::format("  %{} = aten.copy_(%{}, %{})  ; 0\n", count_++, name(input), name(fits)),
       input,
       false,
       {}});
  feature("written input");
}

void Writer::write_what_waits() {
  for (const auto& [input, value] : waiting_) write_back(input, value);
  waiting_.clear();
}

size_t Writer::pick(const Filter& fits, DType fallback, size_t rank) {
  std::vector<size_t> found;
  for (size_t i = 0; i < values_.size(); ++i)
    if (fits(values_[i]) && values_[i].error <= 1e-3 * std::max(1.0, values_[i].most))
      found.push_back(i);
  if (found.empty() || random_.one_in(12))
    for (int i = 0; i < 8; ++i) {
      Value trial{"", fallback, some_dims(rank), 3, true, 0};
      if (fits(trial)) return input(fallback, trial.dims, 3);
    }
  if (found.empty()) return SIZE_MAX;
  const size_t late = std::min<size_t>(found.size(), random_.one_in(3) ? found.size() : 3);
  return found[found.size() - 1 - random_.below(late)];
}

size_t Writer::pick_float(size_t rank) {
  return pick([&](const Value& v) { return v.is_float() && (rank == 0 || v.rank() == rank); },
              float_type(), rank == 0 ? 1 + random_.below(3) : rank);
}

size_t Writer::tamed(size_t id, double limit) {
  const Value from = values_[id];
  if (from.most <= limit || from.dtype == DType::boolean) return id;
  Value result = from;
  result.most = std::floor(limit);
  return add(fmt::format("clamp(%{}, {:.0f}, {:.0f})", from.name, -result.most, result.most),
             result, from.is_float() ? std::vector<Slope>{{id, 1}} : std::vector<Slope>{});
}

Dims Writer::some_dims(size_t rank) {
  Dims dims;
  double all = 1;
  for (size_t i = 0; i < rank; ++i) {
    Dim next = dim();
    const double most = next.is_symbolic() ? 10000 : 5000;
    if (all * static_cast<double>(next.most) > most) next = known(2);
    all *= static_cast<double>(next.most);
    dims.push_back(next);
  }
  return dims;
}

bool Writer::affords(double steps) {
  if (steps > budget_) return false;
  budget_ -= steps;
  return true;
}

/// Each gradient is a sum of products with slopes: while the sums of absolute values stay below
/// 2^24 nothing is rounded in any order (bf16 rounds at each operator, the same in all orders, to
/// integers; that may double a bound, at most, over the lines of a graph).
bool Writer::gradients_are_exact(size_t loss) const {
  std::map<size_t, double> bounds{{loss, 1}};
  for (size_t i = lines_.size(); i-- > 0;) {
    const Line& line = lines_[i];
    const auto at = bounds.find(line.result);
    if (at == bounds.end()) continue;
    const Value& result = values_[line.result];
    if (!result.is_float()) continue;
    if (!line.is_smooth || at->second > kExact / 4) return false;
    for (const Slope& slope : line.slopes)
      if (values_[slope.operand].is_float()) bounds[slope.operand] += at->second * slope.bound;
  }
  return std::ranges::all_of(bounds, [](const auto& each) { return each.second <= kExact / 4; });
}

std::vector<size_t> Writer::unread() const {
  std::string read;
  for (const Line& line : lines_) read += line.text.substr(line.text.find('='));
  std::vector<size_t> ids;
  for (size_t i = 0; i < values_.size(); ++i) {
    const bool is_read = read.find("%" + name(i) + ",") != std::string::npos ||
                         read.find("%" + name(i) + ")") != std::string::npos ||
                         read.find("%" + name(i) + "]") != std::string::npos;
    if (!is_input(i) && !is_read) ids.push_back(i);
  }
  return ids;
}

std::string Writer::head(bool gradients) const {
  std::string text;
  for (const std::string& symbol : symbols_) text += "; run " + symbol + "\n";
  for (const Input& input : inputs_)
    text += fmt::format("; data {} {}\n", name(input.id), input.data);
  for (const std::string& feature : features_) text += "; has " + feature + "\n";
  if (is_large_) text += "; large\n";
  if (gradients) text += "; gradients\n";
  text += "graph @f(";
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool grad = gradients && values_[inputs_[i].id].is_float();
    text += fmt::format("{}%{}: {}{}", i == 0 ? "" : ", ", name(inputs_[i].id), inputs_[i].type,
                        grad ? " {input grad}" : "");
  }
  text += ")";
  for (size_t i = 0; i < symbols_.size(); ++i)
    text += fmt::format("{} s{} in [2, {}]", i == 0 ? " where" : ",", i, kLargestSymbol);
  return text + " {\n";
}

std::string Writer::finish(const std::vector<size_t>& outputs, size_t loss) {
  const bool gradients = wants_gradients && gradients_are_exact(loss);
  if (gradients) feature("gradients");
  if (is_symbolic_) feature("symbolic");
  std::string results = gradients ? "%" + name(loss) : "";
  for (size_t id : outputs)
    if (!gradients || id != loss) results += (results.empty() ? "%" : ", %") + name(id);
  if (results.find(',') != std::string::npos) feature("several outputs");
  std::string text = head(gradients);
  for (const Line& line : lines_) text += line.text;
  return text + "  return " + results + "\n}\n";
}

}  // namespace tandem::property
