// Scalar expressions of the loop IR: immutable, hash-consed in a pool, so equality is pointer
// equality.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "sym/sym.h"

namespace tandem::loop {

enum class Opcode : uint8_t {
  constant,  // `number` (floats) or `integer` (integers, bool)
  index,     // `index` as an i64
  load,   // buffers[slot][index]; with a mask operand: 0 where the mask is false, memory untouched.
          // An i32 of a buffer of 8-bit or 16-bit integers: as many elements as fill it, packed,
          // of which this is number `index`
  local,  // result of a reduction of this kernel, by number `slot`
  // Unary, on the compute type. NaN propagates.
  neg,
  abs,
  sqrt,
  exp,
  expm1,
  log,
  log1p,
  log2,
  sin,
  cos,
  tanh,
  lgamma,
  erf,
  ceil,
  floor,
  round,  // round: half to even
  trunc,
  logical_not,
  bit_not,
  // Binary. Integer arithmetic wraps.
  add,
  sub,
  mul,
  div,  // floats: IEEE; integers: toward zero; an integer divisor 0 gives 0 (ops raise before)
  floor_div,  // integers: toward minus infinity
  fmod,       // sign of the dividend
  pow,
  min,
  max,  // NaN wins
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,  // shift_right is arithmetic on signed types
  // Comparisons give bool; with NaN all but ne are false.
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  fma,     // a * b + c: floats round once, integers wrap
  select,  // cond, a, b
  cast,  // float to integer truncates (out of range and NaN: as x86 does); to bool: != 0; f32 to 16
         // bit rounds to nearest even
  bitcast,  // same size
  philox,   // (seed, stream, element) -> i32 with 32 random bits; see random.h of this room
  check,    // (cond, value): value; where cond is false the kernel fails with error number `slot`
  element,  // of tensor number `slot` at `at`; with a mask operand: 0 where it is false. Stands in
            // what an op computes, before tensors have addresses; in no kernel
  pack,     // four 8-bit or two 16-bit integers, the first in the lowest bits, as an i32
};
std::string_view name_of(Opcode opcode);
std::optional<Opcode> opcode_from_name(std::string_view name);
bool is_transcendental(Opcode opcode);

struct Scalar {
  Scalar(Opcode op, DType type) : opcode(op), dtype(type) {}

  Opcode opcode;
  DType dtype;
  uint32_t id = 0;  // creation order: operands have smaller ids
  int32_t slot = 0;
  bool masked = false;  // load, element: args[0] is the mask
  int64_t integer = 0;
  double number = 0;
  sym::Expr index;
  std::vector<sym::Expr> at;  // of an element: its position, dimension by dimension
  /// Operands. Of load, element and index: the mask if any, then the scalars behind indirect
  /// symbols of `index` and `at`, in order of first occurrence.
  std::vector<const Scalar*> args;
};
using Val = const Scalar*;

/// A place or a number of places: of an i64 that is an index or a constant. Nothing of others.
std::optional<sym::Expr> position_of(Val value);

class ScalarPool {
 public:
  explicit ScalarPool(sym::Pool& symbols) : symbols_(&symbols) {}
  ScalarPool(const ScalarPool&) = delete;
  ScalarPool& operator=(const ScalarPool&) = delete;

  sym::Pool& symbols() const { return *symbols_; }

  Val constant(DType dtype, double value);  // converts to dtype
  Val integer(DType dtype, int64_t value);
  Val index(sym::Expr value);
  Val load(int32_t buffer, DType dtype, sym::Expr index, Val mask = nullptr);
  Val element(int32_t tensor, DType dtype, std::vector<sym::Expr> at, Val mask = nullptr);
  Val local(int32_t number, DType dtype);
  Val unary(Opcode opcode, Val x);
  Val binary(Opcode opcode, Val a, Val b);  // operands of equal dtype
  Val fma(Val a, Val b, Val c);
  Val select(Val cond, Val a, Val b);
  Val cast(Val x, DType dtype);
  Val bitcast(Val x, DType dtype);
  Val philox(Val seed, Val stream, Val element);
  Val check(Val cond, Val value, int32_t error);
  /// Integers of one type that fill 32 bits.
  Val pack(std::vector<Val> parts);

  /// The i64 scalar as part of an index: a fresh symbol in [0, extent) bound to it. The caller
  /// vouches for the bounds (a check that fails first, or a mask on the load).
  sym::Expr as_index(Val value, sym::Expr extent, std::string_view name = "t");
  /// The scalar behind an indirect symbol; null for axes and sizes.
  Val indirect(sym::Expr symbol) const;

  /// Any node with operands replaced (types as given): for rewriters. Of an element, `at` is the
  /// node's own.
  Val rebuild(const Scalar& node, std::vector<Val> args, sym::Expr index);
  size_t size() const { return nodes_.size(); }

 private:
  Val intern(Scalar node);
  Val fold(Opcode opcode, DType dtype, Val a, Val b);
  void add_indirects(Scalar& node) const;
  struct Hash {
    size_t operator()(const Scalar* node) const;
  };
  struct Equal {
    bool operator()(const Scalar* a, const Scalar* b) const;
  };
  sym::Pool* symbols_;
  std::deque<Scalar> nodes_;
  std::unordered_map<const Scalar*, Val, Hash, Equal> interned_;
  std::unordered_map<sym::Expr, Val, sym::ExprHash> indirects_;
  std::unordered_map<Val, sym::Expr> symbol_of_;
};

/// Every scalar reachable from the roots, operands before users (by id). Indirect indices are
/// followed.
std::vector<Val> reachable(std::span<const Val> roots);

/// Copies roots into `to` with symbols and loads mapped: `map_index` rewrites every index
/// expression after indirect symbols were re-bound; `replace` may return a replacement (in `to`)
/// for a node or null; `adjust` may give the copy of a node another slot or index.
struct Rewrite {
  std::function<sym::Expr(sym::Expr)> map_index;
  std::function<Val(const Scalar& node, std::span<const Val> args)> replace;
  std::function<void(Scalar& copy)> adjust;
  /// What takes the place of an element whose position and operands are rewritten already; null
  /// keeps it.
  std::function<Val(const Scalar& element, std::span<const Val> args)> element;
};
std::vector<Val> rewrite(ScalarPool& to, const ScalarPool& from, std::span<const Val> roots,
                         const Rewrite& how);
/// The same scalars at other places, in their pool.
std::vector<Val> substituted(ScalarPool& pool, std::span<const Val> values,
                             const sym::Substitution& map);
Val substituted(ScalarPool& pool, Val value, const sym::Substitution& map);

}  // namespace tandem::loop
