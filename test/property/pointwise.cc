// Pointwise lines. What leaves the integers (division, roots) is the same in every order as long as
// no sum follows, and is carried as such; what is approximated (exp) has an error from there on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "test/property/lines.h"

namespace tandem::property {
namespace {

constexpr double kLarge = 1 << 12;  // keep clear of 2^24, so that sums and products may follow
constexpr double kUlp = 1.0 / (1 << 23);

/// Of bf16 and f32; a number is no reason to widen.
DType common(const Value& a, const Value& b) {
  if (a.dtype == b.dtype || (b.rank() == 0 && a.rank() > 0)) return a.dtype;
  return a.rank() == 0 && b.rank() > 0 ? b.dtype : DType::f32;
}

bool broadcasts(const Dims& small, const Dims& large) {
  if (small.size() > large.size()) return false;
  for (size_t i = 0; i < small.size(); ++i) {
    const Dim& to = large[large.size() - small.size() + i];
    if (!(small[i] == to) && small[i].text != "1") return false;
  }
  return true;
}

/// Every element of `small` is read so often.
double repeats(const Value& small, const Value& large) {
  return static_cast<double>(count(large.dims)) /
         static_cast<double>(std::max<int64_t>(count(small.dims), 1));
}

size_t partner_of(Writer& w, size_t id) {
  const Value a = w.value(id);
  const auto fits = [&](const Value& v) { return v.is_float() && broadcasts(v.dims, a.dims); };
  size_t found = w.pick(fits);
  for (int i = 0; i < 3 && found == id; ++i) found = w.pick(fits);
  if (found != SIZE_MAX && !w.random().one_in(4)) return found;
  Dims dims = a.dims;
  switch (w.random().below(4)) {
    case 0:
      if (dims.size() > 1) dims.erase(dims.begin());
      break;
    case 1:
      if (!dims.empty()) dims.back() = known(1);
      break;
    default: break;
  }
  w.feature("broadcast");
  return w.input(a.dtype, dims, 3);
}

void add_multiple(Writer& w, size_t left, size_t right) {
  const size_t x = w.tamed(left, kLarge);
  const size_t y = w.tamed(right, kLarge);
  const Value a = w.value(x);
  const Value b = w.value(y);
  const double most = a.most * b.most;
  const double error = a.most * b.error + b.most * a.error + a.error * b.error;
  w.add(fmt::format("mul.Tensor(%{}, %{})", a.name, b.name),
        {"", common(a, b), a.dims, most, a.whole && b.whole, rounded(error, most)},
        {{x, b.most}, {y, a.most * repeats(b, a)}});
}

}  // namespace

void add_unary(Writer& w) {
  static const std::vector<std::string> kOps = {"relu", "neg",   "abs",  "square",
                                                "sign", "floor", "clone"};
  size_t id = w.pick_float();
  const std::string op = w.random().pick(kOps);
  if (op == "square") id = w.tamed(id, kLarge);
  const Value from = w.value(id);
  Value result = from;
  if ((op == "sign" || op == "floor") && from.error != 0) return;
  double slope = 1;
  if (op == "square") {
    result.most = from.most * from.most;
    result.error = rounded(2 * from.most * from.error + from.error * from.error, result.most);
    slope = 2 * from.most;
  }
  if (op == "sign") result.most = 1;
  if (op == "sign" || op == "floor") result.whole = true;
  if (op == "floor") result.most = std::ceil(from.most);
  w.add(fmt::format("{}(%{})", op, from.name), result, {{id, slope}});
}

void add_binary(Writer& w) {
  static const std::vector<std::string> kOps = {"add.Tensor", "sub.Tensor", "mul.Tensor", "maximum",
                                                "minimum"};
  const size_t left = w.pick_float();
  const size_t right = partner_of(w, left);
  const std::string& op = kOps[w.random().below(w.wants_gradients ? 3 : kOps.size())];
  if (op == "mul.Tensor") return add_multiple(w, left, right);
  const size_t x = w.tamed(left, kLarge * kLarge / 4);
  const size_t y = w.tamed(right, kLarge * kLarge / 4);
  const Value a = w.value(x);
  const Value b = w.value(y);
  Value result{"",
               common(a, b),
               a.dims,
               std::max(a.most, b.most),
               a.whole && b.whole,
               std::max(a.error, b.error)};
  if (op == "maximum" || op == "minimum") {
    w.add(fmt::format("{}(%{}, %{})", op, a.name, b.name), result);
    return;
  }
  result.most = a.most + b.most;
  result.error = rounded(a.error + b.error, result.most);
  w.add(fmt::format("{}(%{}, %{})", op, a.name, b.name), result, {{x, 1}, {y, repeats(b, a)}});
}

void add_scalar(Writer& w) {
  const size_t id = w.tamed(w.pick_float(), kLarge);
  const Value from = w.value(id);
  const int number = static_cast<int>(w.random().below(5)) - 2;
  Value result = from;
  switch (w.random().below(3)) {
    case 0:
      result.most = from.most + 2;
      result.error = rounded(from.error, result.most);
      w.add(fmt::format("add.Scalar(%{}, {})", from.name, number), result, {{id, 1}});
      return;
    case 1:
      result.most = from.most * 2;
      result.error = rounded(2 * from.error, result.most);
      w.add(fmt::format("mul.Scalar(%{}, {})", from.name, number), result, {{id, 2}});
      return;
    default:
      result.most = std::max(std::min(from.most, 5.0), 2.0);
      w.add(fmt::format("clamp(%{}, {}, 5)", from.name, number), result, {{id, 1}});
  }
}

void add_choice(Writer& w) {
  const size_t id = w.pick_float();
  const size_t other = partner_of(w, id);
  const Value a = w.value(id);
  const Value b = w.value(other);
  if (a.error != 0 || b.error != 0) return;
  static const std::vector<std::string> kCompare = {"lt", "ge", "eq", "ne", "gt", "le"};
  const std::string compare = w.random().pick(kCompare);
  const size_t mask = w.random().one_in(2)
                          ? w.add(fmt::format("{}.Tensor(%{}, %{})", compare, a.name, b.name),
                                  {"", DType::boolean, a.dims, 1, true, 0})
                          : w.add(fmt::format("{}.Scalar(%{}, 1)", compare, a.name),
                                  {"", DType::boolean, a.dims, 1, true, 0});
  if (w.random().one_in(2)) {
    Value result = a;
    result.most = std::max(a.most, 2.0);
    w.add(fmt::format("masked_fill.Scalar(%{}, %{}, -2)", a.name, w.name(mask)), result, {{id, 1}});
    return;
  }
  w.add(fmt::format("where.self(%{}, %{}, %{})", w.name(mask), a.name, b.name),
        {"", common(a, b), a.dims, std::max(a.most, b.most), a.whole && b.whole, 0},
        {{id, 1}, {other, repeats(b, a)}});
}

void add_cast(Writer& w) {
  static const std::vector<DType> kTypes = {DType::f32, DType::bf16, DType::i64, DType::boolean};
  const DType to = w.random().pick(kTypes);
  const size_t id = w.pick([&](const Value& v) {
    return v.dtype != to && (v.is_float() || v.most < kLarge * kLarge / 4);
  });
  if (id == SIZE_MAX) return;
  const Value from = w.value(id);
  const bool is_float = to == DType::f32 || to == DType::bf16;
  if (!is_float && from.error != 0) return;
  Value result = from;
  result.dtype = to;
  if (!is_float) result.whole = true;
  if (to == DType::boolean) result.most = 1;
  const bool smooth = is_float && from.is_float();
  w.add(fmt::format("_to_copy(%{}, dtype={})", from.name, name_of(to)), result,
        smooth ? std::vector<Slope>{{id, 1}} : std::vector<Slope>{});
  w.feature("cast");
}

void add_integer(Writer& w) {
  const size_t id = w.pick([](const Value& v) { return v.dtype == DType::i64; }, DType::i64,
                           1 + w.random().below(3));
  if (id == SIZE_MAX) return;
  const Value a = w.value(id);
  size_t other =
      w.pick([&](const Value& v) { return v.dtype == DType::i64 && broadcasts(v.dims, a.dims); },
             DType::i64, a.rank());
  if (other == SIZE_MAX || w.random().one_in(3)) other = w.input(DType::i64, a.dims, 1000);
  const Value b = w.value(other);
  constexpr double kAny = 1e18;  // wraps, everywhere alike
  Value result{"", DType::i64, a.dims, std::min(kAny, a.most + b.most), true, 0};
  const Value mask{"", DType::boolean, a.dims, 1, true, 0};
  const auto two = [&](const char* op) { return fmt::format("{}(%{}, %{})", op, a.name, b.name); };
  switch (w.random().below(10)) {
    case 0: w.add(two("add.Tensor"), result); return;
    case 1: w.add(two("sub.Tensor"), result); return;
    case 2:
      result.most = std::min(kAny, a.most * b.most);
      w.add(two("mul.Tensor"), result);
      return;
    case 3: w.add(two("minimum"), result); return;
    case 4: w.add(two("bitwise_and.Tensor"), {"", DType::i64, a.dims, kAny, true, 0}); return;
    case 5: w.add(two("bitwise_xor.Tensor"), {"", DType::i64, a.dims, kAny, true, 0}); return;
    case 6:
      w.add(fmt::format("div.Scalar_mode(%{}, 3, rounding_mode=\"floor\")", a.name),
            {"", DType::i64, a.dims, a.most, true, 0});
      return;
    case 7:
      w.add(fmt::format("remainder.Scalar(%{}, 7)", a.name), {"", DType::i64, a.dims, 7, true, 0});
      return;
    case 8: {
      const size_t less = w.add(two("lt.Tensor"), mask);
      w.add(fmt::format("logical_not(%{})", w.name(less)), mask);
      return;
    }
    default: w.add(two("ne.Tensor"), mask);
  }
}

void add_smooth(Writer& w) {
  const size_t id = w.tamed(w.pick_float(), 4);
  const Value from = w.value(id);
  Value result = from;
  result.whole = false;
  if (w.random().one_in(2)) {  // one rounding, the same everywhere
    const Value above = w.value(w.add(fmt::format("abs(%{})", from.name), from));
    Value one = above;
    one.most = above.most + 1;
    const size_t below = w.add(fmt::format("add.Scalar(%{}, 1)", above.name), one);
    result.error = rounded(from.error + from.most * from.error, from.most);
    w.add(fmt::format("div.Tensor(%{}, %{})", from.name, w.name(below)), result);
    return;
  }
  // 2 ulp each in machine code and in the interpreter; the slope is that of exp at most.
  struct Function {
    const char* name;
    double most;
    double slope;
  };
  static const std::vector<Function> kFunctions = {
      {"exp", 55, 55}, {"tanh", 1, 1},   {"sigmoid", 1, 1}, {"sin", 1, 1},
      {"erf", 1, 1.2}, {"gelu", 4, 1.2}, {"silu", 4, 1.2},  {"log_sigmoid_forward", 4, 1}};
  const Function& f = kFunctions[w.random().below(kFunctions.size() - 1)];
  // silu and gelu are made of a function of at most 1 and of products.
  result.most = f.most;
  result.error = f.slope * from.error + 8 * kUlp * std::max(f.most, from.most);
  w.add(fmt::format("{}(%{})", f.name, from.name), result);
  w.feature("approximated function");
}

namespace {

/// Someone reads the old input at other places before it is written.
void read_elsewhere(Writer& w, size_t x) {
  const Value old = w.value(x);
  const size_t last = old.rank() - 1;
  const std::string call = w.random().one_in(2) ? fmt::format("flip(%{}, [{}])", old.name, last)
                                                : fmt::format("roll(%{}, [1], [0])", old.name);
  const size_t seen = w.add(call, old, {{x, 1}});
  if (w.random().one_in(2)) w.add(fmt::format("neg(%{})", w.name(seen)), old, {{seen, 1}});
}

/// What cannot share the kernel of the new value reads it and the old one: the kernel that would
/// write in place comes first.
void read_behind(Writer& w, size_t x, size_t made) {
  const Value old = w.value(x);
  const Value next = w.value(w.tamed(made, 100));
  Value running = next;
  running.most = next.most * static_cast<double>(old.dims[0].most);
  const size_t scan = w.add(fmt::format("cumsum(%{}, 0)", next.name), running);
  Value both = running;
  both.most += old.most;
  w.add(fmt::format("add.Tensor(%{}, %{})", w.name(scan), old.name), both);
}

/// The sum of the new value and the old one's first element: read once a row, behind the row.
void read_in_row(Writer& w, size_t x, size_t made) {
  const Value old = w.value(x);
  const Value next = w.value(made);
  Value sum = next;
  sum.dims = {known(1)};
  sum.most = next.most * static_cast<double>(old.dims[0].most);
  const size_t total = w.add(fmt::format("sum.dim_IntList(%{}, [0], true)", next.name), sum);
  Value first = old;
  first.dims = {known(1)};
  const size_t head = w.add(fmt::format("slice.Tensor(%{}, 0, 0, 1)", old.name), first);
  sum.most += old.most;
  w.add(fmt::format("sub.Tensor(%{}, %{})", w.name(total), w.name(head)), sum);
}

size_t updated_input(Writer& w) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < w.size(); ++i)
    if (w.is_input(i) && w.value(i).is_float() && w.value(i).whole && w.value(i).rank() > 0 &&
        w.value(i).most >= 20)
      inputs.push_back(i);
  if (!inputs.empty() && w.random().one_in(3)) return w.random().pick(inputs);
  return w.input(w.float_type(), w.some_dims(1 + w.random().below(2)), 20);
}

}  // namespace

/// Writes to a part of a value, an input or not, and reads the whole: everything that is seen of
/// it, before or behind this line, has the new elements.
void add_partial_write(Writer& w) {
  const size_t x = w.pick(
      [](const Value& v) {
        return v.is_float() && v.whole && v.error == 0 && !v.either_zero && !v.is_view &&
               v.rank() > 0 && v.dims[0].least > 1 && !v.dims[0].is_symbolic();
      },
      w.float_type());
  if (x == SIZE_MAX) return;
  const Value whole = w.value(x);
  Value part = whole;
  std::string call = fmt::format("select.int(%{}, 0, 1)", whole.name);
  if (w.random().one_in(2)) {
    call = fmt::format("slice.Tensor(%{}, 0, 0, {}, 2)", whole.name, whole.dims[0].text);
    part.dims[0] = known((whole.dims[0].most + 1) / 2);
  } else {
    part.dims.erase(part.dims.begin());
  }
  const size_t seen = w.add(call, part);
  const size_t next = w.add(fmt::format("neg(%{})", w.name(seen)), part);
  w.write_back(seen, next);
  w.feature("partly written value");
  w.add(fmt::format("relu(%{})", whole.name), whole);
}

/// x = x op y, while somebody reads x elsewhere, or the new value and x: what may be written in
/// place is a question of who has read.
void add_update(Writer& w) {
  const size_t x = updated_input(w);
  const Value old = w.value(x);
  if (w.random().one_in(3)) read_elsewhere(w, x);
  const size_t other = w.pick(
      [&](const Value& v) {
        return v.dtype == old.dtype && v.whole && v.error == 0 && !v.either_zero &&
               v.most <= kLarge && broadcasts(v.dims, old.dims);
      },
      old.dtype, old.rank());
  if (other == SIZE_MAX) return;
  const Value b = w.value(other);
  Value sum = old;
  sum.most = old.most + b.most;
  const size_t made =
      w.tamed(w.add(fmt::format("add.Tensor(%{}, %{})", old.name, b.name), sum), old.most);
  switch (w.random().below(3)) {
    case 0: return w.write_back(x, made);
    case 1: read_behind(w, x, made); break;
    default:
      if (old.rank() == 1) read_in_row(w, x, made);
  }
  w.write_back_at_end(x, made);
}

}  // namespace tandem::property
