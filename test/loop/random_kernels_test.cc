// Random kernels: text and canonical form are exact and keep what the kernel computes.
#include <gtest/gtest.h>

#include <random>

#include "loop/kernel.h"

namespace tandem::loop {
namespace {

constexpr int64_t kElements = 64;

class Builder {
 public:
  explicit Builder(uint32_t seed) : random_(seed) {}
  Kernel kernel(sym::Pool& pool);

 private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  sym::Expr expression(int depth);
  sym::Expr inside() { return sym::mod(expression(3), kElements); }
  Val scalar(ScalarPool& pool, int depth);
  Stage stage(sym::Pool& symbols, ScalarPool& pool, int32_t local);

  std::mt19937 random_;
  std::vector<sym::Expr> atoms_;
};

sym::Expr Builder::expression(int depth) {
  if (depth == 0 || pick(4) == 0)
    return pick(4) == 0 ? sym::Expr(pick(9)) : atoms_[random_() % atoms_.size()];
  sym::Expr a = expression(depth - 1);
  sym::Expr b = expression(depth - 1);
  switch (pick(7)) {
    case 0: return a * atoms_[static_cast<size_t>(pick(2))];  // strides are sizes
    case 1: return sym::floor_div(a, 1 + pick(6));
    case 2: return sym::mod(a, 1 + pick(6));
    case 3: return sym::min(a, b);
    case 4: return sym::max(a, b + pick(3));
    default: return a + b * pick(5);
  }
}

Val Builder::scalar(ScalarPool& pool, int depth) {
  if (depth == 0 || pick(5) == 0) {
    if (pick(3) == 0) return pool.load(0, DType::i64, inside());
    if (pick(3) != 0) return pool.index(expression(2));
    Val id = pool.binary(Opcode::bit_and, pool.load(0, DType::i64, inside()),
                         pool.integer(DType::i64, kElements - 1));
    sym::Expr place = sym::mod(pool.as_index(id, kElements) + expression(2), kElements);
    return pool.load(0, DType::i64, place);
  }
  Val a = scalar(pool, depth - 1);
  Val b = scalar(pool, depth - 1);
  switch (pick(5)) {
    case 0: return pool.binary(Opcode::add, a, b);
    case 1: return pool.binary(Opcode::mul, a, b);
    case 2: return pool.select(pool.binary(Opcode::lt, a, b), a, b);
    case 3: return pool.load(0, DType::i64, inside(), pool.binary(Opcode::ne, a, b));
    default: return pool.binary(Opcode::bit_xor, a, b);
  }
}

Stage Builder::stage(sym::Pool& symbols, ScalarPool& pool, int32_t local) {
  Stage stage;
  size_t outside = atoms_.size();
  stage.axes = {{symbols.index("i", 4), 4}};
  atoms_.push_back(stage.axes[0].index);
  sym::Expr after = inside();
  sym::Expr extent = sym::min(atoms_[0], 5);
  stage.reduce_axes = {{symbols.index("r", extent), extent, AxisKind::vector, 2}};
  atoms_.push_back(stage.reduce_axes[0].index);
  stage.reductions = {{Combiner::sum, {scalar(pool, 3)}, local}};
  stage.body = {{1, inside(), scalar(pool, 3)}};
  stage.after = {{1, after, pool.local(local, DType::i64)}};
  atoms_.resize(outside);
  return stage;
}

Kernel Builder::kernel(sym::Pool& pool) {
  Kernel kernel;
  kernel.scalars = std::make_shared<ScalarPool>(pool);
  kernel.buffers = {{DType::i64, Access::read, 0, true, ""},
                    {DType::i64, Access::write, 0, true, ""}};
  sym::Expr rows = pool.symbol("rows", {1, 9});
  sym::Expr columns = pool.symbol("columns", {2, 30});
  kernel.sizes = {rows, columns};
  sym::Expr x = pool.index("x", rows);
  kernel.outer = {{x, rows, AxisKind::task, 1}};
  atoms_ = {columns, rows, x};
  // Some junk first, so that ages of shared nodes differ from the order of use.
  for (int i = pick(6); i > 0; --i) expression(3);
  for (int32_t i = 0; i < 2; ++i) kernel.stages.push_back(stage(pool, *kernel.scalars, i));
  kernel.locals = 2;
  return kernel;
}

std::vector<int64_t> run(const Kernel& kernel, int64_t rows, int64_t columns) {
  std::vector<int64_t> in(kElements);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int64_t>(i * i * 7 % 100) - 20;
  std::vector<int64_t> out(kElements, -1);
  void* buffers[] = {in.data(), out.data()};
  int64_t sizes[] = {rows, columns};
  EXPECT_EQ(interpret(kernel, buffers, sizes, 0, rows), 0);
  return out;
}

TEST(RandomKernels, TextAndCanonicalFormAreExact) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    sym::Pool pool;
    Kernel kernel = Builder(seed).kernel(pool);
    EXPECT_EQ(verify(kernel), std::vector<std::string>{});
    Kernel copy = canonical(kernel);
    std::string text = to_string(copy);
    Kernel parsed = parse_kernel(text);
    EXPECT_EQ(to_string(parsed), text) << seed;
    EXPECT_EQ(to_string(canonical(copy)), text) << seed;
    std::vector<int64_t> expected = run(kernel, 3, 7);
    EXPECT_EQ(run(copy, 3, 7), expected) << text;
    EXPECT_EQ(run(parsed, 3, 7), expected) << text;
  }
}

}  // namespace
}  // namespace tandem::loop
