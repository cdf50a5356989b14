// Tables of text pairs for the simplifier and the proofs, and fuzz properties against naive
// evaluation.
#include "sym/sym.h"
#include "base/check.h"
#include "sym/steps.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/diagnostic.h"

namespace tandem::sym {
namespace {

/// Sizes A, B, C (>= 1, open above), s0 in [2, 4096], free x; indices of constant and symbolic
/// extents.
struct Scene {
  Scene() {
    for (const char* size : {"A", "B", "C"}) pool.symbol(size, {1, Range::kMax});
    pool.symbol("s0", {2, 4096});
    pool.symbol("x");
    pool.index("i", read("A"));
    pool.index("j", read("B"));
    pool.index("l", read("C"));
    pool.index("p", 8);
    pool.index("q", 16);
    pool.index("k", 4);
    pool.symbol("n", {0, Range::kMax});
  }

  Expr read(std::string_view text) {
    std::string error;
    std::optional<Expr> e = parse(pool, text, &error);
    EXPECT_TRUE(e.has_value()) << text << ": " << error;
    return e.value_or(Expr(0));
  }

  Pool pool;
};

struct TextPair {
  const char* from;
  const char* to;
};

class Simplify : public testing::TestWithParam<TextPair> {};

TEST_P(Simplify, MakesTheSameNode) {
  Scene scene;
  const Expr from = scene.read(GetParam().from);
  const Expr to = scene.read(GetParam().to);
  EXPECT_EQ(to_string(from), to_string(to));
  EXPECT_EQ(from, to);
  EXPECT_EQ(scene.read(to_string(from)), from) << to_string(from);
}

constexpr TextPair kSums[] = {
    {"x + 0", "x"},
    {"x - x", "0"},
    {"2*x + 3*x", "x*5"},
    {"x*(A + 2) - A*x", "2*x"},
    {"3 + x + 4", "x + 7"},
    {"(x + 1)*4", "x*4 + 4"},
    {"(A + 1)*(B + 1)", "A*B + A + B + 1"},
    {"B*x*A", "A*B*x"},
    {"-(x - 3)", "3 - x"},
    {"x*0", "0"},
    {"(x - A)*(x + A)", "x*x - A*A"},
};
INSTANTIATE_TEST_SUITE_P(Sums, Simplify, testing::ValuesIn(kSums));

constexpr TextPair kDivisions[] = {
    {"(-7)//2", "-4"},
    {"(-7) % 2", "1"},
    {"x//1", "x"},
    {"x % 1", "0"},
    {"0//A", "0"},
    {"A//A", "1"},
    {"A % A", "0"},
    {"(i*B + j)//B", "i"},
    {"(i*B + j) % B", "j"},
    {"(i*B + j)//B*B + (i*B + j) % B", "i*B + j"},
    {"(p*64 + q*4 + k)//4", "p*16 + q"},
    {"(p*64 + q*4 + k)//64", "p"},
    {"(p*64 + q*4 + k) % 64", "q*4 + k"},
    {"(p*64 + q*4 + k)//4 % 16", "q"},
    {"(x*64 + j) % 4", "j % 4"},
    {"x//4//8", "x//32"},
    {"x//A//B", "x//(A*B)"},
    {"x % 32//4", "x//4 % 8"},
    {"(x % 32) % 4", "x % 4"},
    {"(x + i % 32) % 4", "(x + i) % 4"},
    {"x//4*4 + x % 4", "x"},
    {"(x + 5)//4*4 + (x + 5) % 4", "x + 5"},
    {"x//4*12 + x % 4*3", "x*3"},
    {"x - x//4*4", "x % 4"},
    {"(x//4 % 8)*4 + x % 4", "x % 32"},
    {"x//(A*B)*A*B + x//B % A*B + x % B", "x"},
    {"x//(A*B)*A*B*7 + x//B % A*B*7 + x % B*7", "x*7"},
    {"(i*B*C + j*C + l)//C % B", "j"},
    {"(i*B*C + j*C + l)//(B*C)", "i"},
    {"(i*B*C + j*C + l) % (B*C)", "j*C + l"},
    {"(i*B*C + j*C + l) % C", "l"},
    {"(x*B + j)//(A*B)", "x//A"},
    {"(x*B + j) % (A*B)", "x % A*B + j"},
    {"(i*B - 1)//B", "i - 1"},
    {"(x*4 + k)//32", "x//8"},
    {"(x*4 + k) % 32", "x % 8*4 + k"},
    {"(x*6)//4", "x*3//2"},
    {"(x*4) % 8", "x % 2*4"},
    {"(q + 16)//16", "1"},
    {"(q + 16) % 16", "q"},
    {"(p*2 + 100)//4", "(p + 2)//2 + 24"},
    {"(s0*4 + 3)//4", "s0"},
    {"(s0 - 1)//4", "(s0 + 3)//4 - 1"},
    {"(i*(B + C) + j) // (B + C)", "i"},
    {"(i*(B + C) + j) % (B + C)", "j"},
    {"(i*(B + 1) + j) // (B + 1)", "i"},
    {"(A + 1)*(A + 1) // (A + 1)", "A + 1"},
    {"(j + B) // (B + C)", "(j + B) // (B + C)"},
    {"s0 % 8192", "s0"},
    {"(x*2 + 1) % 2", "1"},
};
INSTANTIATE_TEST_SUITE_P(Divisions, Simplify, testing::ValuesIn(kDivisions));

constexpr TextPair kExtrema[] = {
    {"min(x, x)", "x"},
    {"min(3, 5)", "3"},
    {"max(x, x + 1)", "x + 1"},
    {"min(i, A)", "i"},
    {"max(A, 1)", "A"},
    {"min(s0, 4096)", "s0"},
    {"min(s0, min(8, x))", "min(min(x, s0), 8)"},
    {"max(i*B + j, A*B - 1)", "A*B - 1"},
    {"min(x//4*4, x)", "x//4*4"},
    {"min(min(x, 4) + 1, 7)", "min(x, 4) + 1"},
};
INSTANTIATE_TEST_SUITE_P(Extrema, Simplify, testing::ValuesIn(kExtrema));

struct TextClaim {
  const char* left;
  const char* relation;
  const char* right;
  bool known;
};

class Proof : public testing::TestWithParam<TextClaim> {};

bool holds(Expr left, std::string_view relation, Expr right) {
  if (relation == "<") return known_lt(left, right);
  if (relation == "<=") return known_le(left, right);
  if (relation == "==") return known_eq(left, right);
  if (relation == "!=") return known_ne(left, right);
  return known_divisible(left, right);
}

TEST_P(Proof, Claim) {
  Scene scene;
  const TextClaim& claim = GetParam();
  EXPECT_EQ(holds(scene.read(claim.left), claim.relation, scene.read(claim.right)), claim.known)
      << claim.left << claim.relation << claim.right;
}

constexpr TextClaim kClaims[] = {
    {"i", "<", "A", true},
    {"i", "<", "B", false},
    {"i*B + j", "<", "A*B", true},
    {"i*B + j", "<=", "A*B - 1", true},
    {"i*B + j", "<", "A*B - 1", false},
    {"i*B*C + j*C + l", "<", "A*B*C", true},
    {"p*B + j", "<", "8*B", true},
    {"i*4 + k", "<", "A*4", true},
    {"0", "<=", "i*B", true},
    {"x//4*4", "<=", "x", true},
    {"x//4*4 + 3", "<", "x", false},
    {"x", "<=", "x//4*4 + 3", true},
    {"n//B*B", "<=", "n", true},
    {"n % B", "<", "B", true},
    {"n % B", "<=", "n", true},
    {"s0", "<=", "s0*s0", true},
    {"s0*s0", "<", "s0", false},
    {"(s0 + 3)//4*4", "<", "s0 + 4", true},
    {"(A - 1)//16*16 + q", "<", "A + 15", true},
    {"min(x, 4)", "<=", "4", true},
    {"min(x, A)", "<=", "A + 1", true},
    {"x", "<=", "max(x, A)", true},
    {"max(i, p)", "<", "A + 7", true},
    {"min(i*8 + p, n)", "<", "A*8", true},
    {"n//4", "<=", "n", true},
    {"s0", "==", "s0 + 0", true},
    {"x", "==", "A", false},
    {"s0", "!=", "1", true},
    {"s0", "!=", "2", false},
    {"i", "!=", "A", true},
    {"A*4", "divides", "4", true},
    {"A*6", "divides", "4", false},
    {"A*B", "divides", "B", true},
    {"A*B + B*3", "divides", "B", true},
    {"A*8 + B*4", "divides", "4", true},
    {"A*8", "divides", "-4", true},
    {"A*8", "divides", "0", false},
};
INSTANTIATE_TEST_SUITE_P(Claims, Proof, testing::ValuesIn(kClaims));

TEST(CeilDiv, RecognisesExactDivision) {
  Scene scene;
  EXPECT_EQ(ceil_div(scene.read("s0*4"), 4), scene.read("s0"));
  EXPECT_EQ(ceil_div(scene.read("A*B"), scene.read("B")), scene.read("A"));
  EXPECT_EQ(ceil_div(scene.read("s0"), 4), scene.read("(s0 + 3)//4"));
  EXPECT_EQ(ceil_div(7, 2), Expr(4));
}

TEST(Remainders, OfBlocksAndTheLast) {
  Pool pool;
  const Expr block = pool.index("x", 3);
  // Blocks of 258, 258 and 252 rows; of 104 and of 93.
  EXPECT_EQ(possible_remainders(min(768 - block * 258, 258), 6), 1u << 0);
  EXPECT_EQ(possible_remainders(min(197 - pool.index("x", 2) * 104, 104), 6), 1u << 2 | 1u << 3);
  EXPECT_EQ(possible_remainders(Expr(13), 6), 1u << 1);
  // As many as there are: of what is negative, of a size that nobody knows, of too many values.
  EXPECT_EQ(possible_remainders(block - 1, 6), 63u);
  EXPECT_EQ(possible_remainders(pool.symbol("s0", {1, Range::kMax}), 8), 255u);
  EXPECT_EQ(possible_remainders(pool.index("y", 5000) * 8, 8), 255u);
}

TEST(Text, Forms) {
  Scene scene;
  for (const char* text :
       {"s0*4 + 3", "(s0 + 1)//2", "s0 % 4", "min(s0, 8)", "-x", "-(x//3)", "-(x//3)*2", "3", "-3",
        "A - s0*2", "A*(x % 4)", "x//(A*B)", "x//3*4", "A*(x//3)", "-x + 5", "A - x % 3",
        "max(A, x, 4)", "A*A", "(x + 1) % 3"}) {
    EXPECT_EQ(to_string(scene.read(text)), text);
  }
  EXPECT_EQ((Guard{Guard::Relation::le, scene.read("s0"), 4096, ""}.to_string()), "s0 <= 4096");
}

/// A reader makes `max(n, 1)` and `x//n` as it comes to them, which is another order than the one
/// in which they were made here.
TEST(Text, DoesNotDependOnWhatWasMadeFirst) {
  Pool first;
  const Expr n = first.symbol("n");
  const Expr x = first.symbol("x");
  const Expr quotient = floor_div(x, n);
  const Expr e = max(n, 3) * mod(quotient, n) + quotient * max(n, 1);
  Pool second;
  second.symbol("n");
  second.symbol("x");
  for (const char* made : {"max(n, 1)", "x//n % n"}) parse(second, made, nullptr);
  const std::string text = to_string(e);
  EXPECT_EQ(to_string(*parse(second, text, nullptr)), text);
  EXPECT_EQ(text, "max(n, 1)*(x//n) + max(n, 3)*(x//n % n)");
}

TEST(Text, NamesWithDotsAndDollars) {
  Pool pool;
  std::string error;
  EXPECT_EQ(parse(pool, "a.b$1 + _c", &error)->args().size(), 2u);
  EXPECT_TRUE(pool.find_symbol("a.b$1").has_value());
}

TEST(Text, MalformedIsReported) {
  Pool pool;
  for (const std::string& text :
       {std::string("x +"), std::string("(x"), std::string("x y"), std::string("x // 0"),
        std::string("x % -3"), std::string("min(x"), std::string(""), std::string("+"),
        std::string("99999999999999999999"), std::string(1000, '(')}) {
    std::string error;
    EXPECT_FALSE(parse(pool, text, &error).has_value()) << text;
    EXPECT_FALSE(error.empty()) << text;
  }
}

TEST(Pool, InternsAndNumbersIndices) {
  Pool pool;
  const Expr a = pool.symbol("a", {0, 100});
  EXPECT_EQ(pool.symbol("a", {2, 200}), a);
  EXPECT_EQ(a.range(), (Range{2, 100}));
  EXPECT_EQ(pool.index("i", 4).name(), "i");
  const Expr second = pool.index("i", a);
  EXPECT_EQ(second.name(), "i1");
  EXPECT_EQ(second.range(), (Range{0, 99}));
  const Expr e = a * 4 + second;
  const size_t size = pool.size();
  EXPECT_EQ(second + 4 * a, e);
  EXPECT_EQ(pool.size(), size);
}

TEST(Pool, ManyNodesSurviveGrowth) {
  Pool pool;
  const Expr x = pool.symbol("x");
  std::vector<Expr> made;
  for (int i = 1; i < 3000; ++i) made.push_back(x * i + i);
  for (int i = 1; i < 3000; ++i) EXPECT_EQ(x * i + i, made[static_cast<size_t>(i - 1)]);
}

TEST(Rewrite, SubstituteAffineSymbols) {
  Scene scene;
  const Expr e = scene.read("(x*B + n)//B + n");
  EXPECT_EQ(substitute(e, {{scene.read("n"), scene.read("j")}}), scene.read("x + j"));
  EXPECT_EQ(substitute(scene.read("x*B + B"),
                       {{scene.read("x"), scene.read("B")}, {scene.read("B"), scene.read("x")}}),
            scene.read("B*x + x"));
  const std::optional<Affine> affine = affine_in(scene.read("i*B + i*4 + j//2"), scene.read("i"));
  ASSERT_TRUE(affine.has_value());
  EXPECT_EQ(affine->coefficient, scene.read("B + 4"));
  EXPECT_EQ(affine->rest, scene.read("j//2"));
  EXPECT_FALSE(affine_in(scene.read("x*x"), scene.read("x")).has_value());
  EXPECT_FALSE(affine_in(scene.read("x//2 + x"), scene.read("x")).has_value());
  EXPECT_FALSE(affine_in(scene.read("x*(x//2)"), scene.read("x")).has_value());
  EXPECT_EQ(affine_in(scene.read("A"), scene.read("x"))->coefficient, Expr(0));
  EXPECT_EQ(free_symbols(scene.read("x//2 + A*x")).size(), 2u);
  EXPECT_TRUE(depends_on(scene.read("(x + 1)//3"), scene.read("x")));
  EXPECT_FALSE(depends_on(scene.read("(x + 1)//3"), scene.read("A")));
}

// More than what is looked through, and more symbols than bits that tell them apart.
TEST(Rewrite, ManySymbols) {
  Pool pool;
  std::vector<Expr> symbols;
  Expr sum = 0;
  Expr quotients = 0;
  for (int i = 0; i < 200; ++i) {
    symbols.push_back(pool.symbol("s" + std::to_string(i)));
    sum = sum + symbols.back() * (i + 1);
    quotients = quotients + floor_div(symbols.back() + 1, 3);
  }
  EXPECT_EQ(free_symbols(sum), symbols);
  EXPECT_EQ(free_symbols(quotients), symbols);
  std::vector<Expr> collected(symbols.rbegin(), symbols.rend());
  collect_symbols(quotients, collected);
  EXPECT_EQ(collected.size(), 200U);
  const Expr other = pool.symbol("t");  // has the bit of s8
  EXPECT_FALSE(depends_on(sum, other));
  EXPECT_TRUE(depends_on(quotients, symbols[137]));
  const Expr without = substitute(sum, {{symbols[137], Expr(0)}});
  EXPECT_FALSE(depends_on(without, symbols[137]));
  EXPECT_TRUE(depends_on(without, symbols[73]));  // of the same bit
  EXPECT_EQ(without + symbols[137] * 138, sum);
}

// 2^60 paths, 60 nodes: only walks that remember finish.
TEST(Rewrite, SharedNodesAreWalkedOnce) {
  Pool pool;
  const Expr x = pool.symbol("x");
  const Expr y = pool.symbol("y");
  Expr e = x;
  for (int i = 0; i < 60; ++i) e = max(floor_div(e, 3) + y, mod(e, 5) - y);
  const Assignment values = [](const Node*) { return std::optional<int64_t>(7); };
  EXPECT_TRUE(evaluate(e, values).has_value());
  Steps steps(e);
  steps.set(0, 7);
  steps.set(1, 7);
  EXPECT_EQ(steps.run(), evaluate(e, values));
  EXPECT_NE(substitute(e, {{x, y + 1}}), e);
  EXPECT_EQ(free_symbols(e).size(), 2u);
  EXPECT_TRUE(depends_on(e, y));
}

TEST(Evaluate, MissingAndZeroDivisor) {
  Scene scene;
  const auto with = [&](const char* text, int64_t a) {
    return evaluate(scene.read(text), [a](const Node* symbol) {
      return symbol->name == "A" ? std::optional<int64_t>(a) : std::nullopt;
    });
  };
  EXPECT_EQ(with("A*A + 1", 3), 10);
  EXPECT_EQ(with("(A - 5)//2", 2), -2);
  EXPECT_EQ(with("x + A", 3), std::nullopt);
  EXPECT_EQ(with("5//A", 0), std::nullopt);
  EXPECT_EQ(with("A*A", int64_t{1} << 40), std::nullopt);
  const auto by_steps = [&](const char* text, int64_t a) {
    Steps steps(scene.read(text));
    for (size_t i = 0; i < steps.symbols().size(); ++i) steps.set(i, a);
    return steps.run();
  };
  EXPECT_EQ(by_steps("7", 0), 7);
  EXPECT_EQ(by_steps("A", 3), 3);
  EXPECT_EQ(by_steps("(A - 5)//2", 2), -2);
  EXPECT_EQ(by_steps("5//A", 0), std::nullopt);
  EXPECT_EQ(by_steps("A*A", int64_t{1} << 40), std::nullopt);
}

TEST(Overflow, IsAUserError) {
  Pool pool;
  const Expr x = pool.symbol("x");
  EXPECT_THROW(x * (int64_t{1} << 40) * (int64_t{1} << 40), UserError);
}

TEST(Check, DivisorMustBePositive) {
  Pool pool;
  const Expr x = pool.symbol("x");
  EXPECT_THROW(floor_div(x, 0), InternalError);
  EXPECT_THROW(mod(x, -2), InternalError);
}

/// Builds the same random expression twice: as an Expr, and as its value without any rule.
class Fuzz {
 public:
  explicit Fuzz(uint32_t seed) : random_(seed) {
    for (const char* name : {"A", "B"}) sizes_.push_back(pool_.symbol(name, {1, Range::kMax}));
    sizes_.push_back(pool_.symbol("s0", {2, 16}));
    leaves_ = sizes_;
    leaves_.push_back(pool_.symbol("x"));
    for (const Expr& size : sizes_) leaves_.push_back(pool_.index("i", size));
    leaves_.push_back(pool_.index("k", 4));
    leaves_.push_back(pool_.index("q", 16));
    for (int i = 0; i < kAssignments; ++i) assign(i);
  }

  static constexpr int kAssignments = 24;
  using Values = std::array<int64_t, kAssignments>;
  struct Pair {
    Expr e;
    Values naive;
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(n)); }

  Pair make(int depth);
  Pair make_divisor();
  Values values_of(Expr e);
  std::optional<int64_t> by_steps(Expr e, size_t at);
  Pool& pool() { return pool_; }

 private:
  void assign(int column);
  Pair leaf(Expr e) { return {e, values_of(e)}; }

  Pool pool_;
  std::mt19937 random_;
  std::vector<Expr> sizes_;
  std::vector<Expr> leaves_;
  std::map<std::string, Values> values_;
};

void Fuzz::assign(int column) {
  const size_t at = static_cast<size_t>(column);
  for (const Expr& leaf : leaves_) {
    const Range range = leaf.range();
    const int64_t low = range.lo == Range::kMin ? -40 : range.lo;
    int64_t high = range.hi == Range::kMax ? low + 80 : range.hi;
    if (leaf.node()->extent) high = values_[leaf.node()->extent->name()][at] - 1;
    const int64_t corner = below(4);
    const int64_t inside = low + below(high - low + 1);
    values_[leaf.name()][at] = corner == 0 ? low : corner == 1 ? high : inside;
  }
}

std::optional<int64_t> Fuzz::by_steps(Expr e, size_t at) {
  Steps steps(e);
  for (size_t i = 0; i < steps.symbols().size(); ++i)
    steps.set(i, values_[steps.symbols()[i].name()][at]);
  return steps.run();
}

Fuzz::Values Fuzz::values_of(Expr e) {
  Values values{};
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<int64_t> value =
        evaluate(e, [&](const Node* symbol) { return std::optional(values_[symbol->name][i]); });
    EXPECT_TRUE(value.has_value()) << to_string(e);
    EXPECT_EQ(by_steps(e, i), value) << to_string(e);
    values[i] = value.value_or(0);
  }
  return values;
}

template <class Op>
Fuzz::Values zip(const Fuzz::Values& a, const Fuzz::Values& b, const Op& op) {
  Fuzz::Values result{};
  for (size_t i = 0; i < result.size(); ++i) result[i] = op(a[i], b[i]);
  return result;
}

int64_t naive_mod(int64_t a, int64_t b) { return ((a % b) + b) % b; }

Fuzz::Pair Fuzz::make_divisor() {
  const Pair size = leaf(sizes_[static_cast<size_t>(below(3))]);
  if (below(2) == 0) return leaf(Expr(int64_t{1} << below(4)));
  if (below(3) != 0) return size;
  const Pair other = leaf(below(2) == 0 ? Expr(4) : sizes_[static_cast<size_t>(below(3))]);
  if (below(3) == 0) return {size.e + other.e, zip(size.naive, other.naive, std::plus<>())};
  return {size.e * other.e, zip(size.naive, other.naive, std::multiplies<>())};
}

Fuzz::Pair Fuzz::make(int depth) {
  if (depth == 0) {
    if (below(4) == 0) return leaf(Expr(below(24) - 6));
    return leaf(leaves_[static_cast<size_t>(below(static_cast<int64_t>(leaves_.size())))]);
  }
  const Pair a = make(depth - 1);
  switch (below(10)) {
    case 0:
    case 1:
    case 2: {
      const Pair b = make(depth - 1);
      return {a.e + b.e, zip(a.naive, b.naive, std::plus<>())};
    }
    case 3: {
      const Pair b = make(depth - 1);
      return {a.e - b.e, zip(a.naive, b.naive, std::minus<>())};
    }
    case 4:
    case 5: {
      const Pair b = make_divisor();
      return {a.e * b.e, zip(a.naive, b.naive, std::multiplies<>())};
    }
    case 6: {
      const Pair b = make_divisor();
      return {mod(a.e, b.e), zip(a.naive, b.naive, naive_mod)};
    }
    case 7: {
      const Pair b = make(depth - 1);
      const bool is_min = below(2) == 0;
      return {is_min ? min(a.e, b.e) : max(a.e, b.e),
              zip(a.naive, b.naive,
                  [&](int64_t l, int64_t r) { return is_min ? std::min(l, r) : std::max(l, r); })};
    }
    default: {
      const Pair b = make_divisor();
      return {floor_div(a.e, b.e), zip(a.naive, b.naive, [](int64_t l, int64_t r) {
                return (l - naive_mod(l, r)) / r;
              })};
    }
  }
}

TEST(FuzzProperty, SimplifiedEqualsNaive) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Fuzz fuzz(seed);
    for (int round = 0; round < 60; ++round) {
      const Fuzz::Pair pair = fuzz.make(1 + round % 4);
      ASSERT_EQ(fuzz.values_of(pair.e), pair.naive) << "seed " << seed << ": " << to_string(pair.e);
      for (int64_t value : pair.naive) {
        ASSERT_LE(pair.e.range().lo, value) << to_string(pair.e);
        ASSERT_GE(pair.e.range().hi, value) << to_string(pair.e);
      }
    }
  }
}

TEST(FuzzProperty, TextParsesBack) {
  for (uint32_t seed = 100; seed < 160; ++seed) {
    Fuzz fuzz(seed);
    for (int round = 0; round < 60; ++round) {
      const Expr e = fuzz.make(1 + round % 4).e;
      std::string error;
      const std::optional<Expr> back = parse(fuzz.pool(), to_string(e), &error);
      ASSERT_TRUE(back.has_value()) << to_string(e) << ": " << error;
      ASSERT_EQ(*back, e) << "seed " << seed << ": " << to_string(e) << " -> " << to_string(*back);
    }
  }
}

TEST(FuzzProperty, ProofsAreSound) {
  for (uint32_t seed = 200; seed < 260; ++seed) {
    Fuzz fuzz(seed);
    for (int round = 0; round < 60; ++round) {
      const Fuzz::Pair a = fuzz.make(1 + round % 3);
      const Fuzz::Pair b = fuzz.make(1 + round % 3);
      const uint64_t remainders = possible_remainders(a.e, 6);
      const bool lt = known_lt(a.e, b.e);
      const bool le = known_le(a.e, b.e);
      for (size_t i = 0; i < a.naive.size(); ++i) {
        ASSERT_TRUE(remainders >> naive_mod(a.naive[i], 6) & 1) << to_string(a.e) << " by 6";
        ASSERT_TRUE(!lt || a.naive[i] < b.naive[i]) << to_string(a.e) << " < " << to_string(b.e);
        ASSERT_TRUE(!le || a.naive[i] <= b.naive[i]) << to_string(a.e) << " <= " << to_string(b.e);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::sym
