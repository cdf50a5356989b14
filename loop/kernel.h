// Kernels: an ordered list of stages under shared outer axes. The only thing code generators read.
//
// Meaning of a mapped kernel: for every point of `outer` (task axes enumerate the range [lo, hi)
// row-major, the rest are loops inside), stages run in order. A stage loops over its own `axes`; at
// each point its reductions start at their identity, `reduce_axes` run, every point of them first
// combines the reductions' inputs, then does the `body` stores; after the loops, the `after` stores
// run. Stores of one point happen after all its values were computed. A reduction's results are
// locals: readable in `after` and, when the stage has no axes of its own, in later stages; in
// `body` only when the reduction is a scan (its running value, this point included).
//
// A kernel of blocks of threads (`Kernel::threads`) has block axes in the place of task axes. Each
// point of them is a block; all other outer axes are loops of the whole block. A stage is run by
// its threads: those that its thread axes count, thread number = the row-major position of the
// lanes over the thread axes (axes, then reduce axes). Along such an axis lane i runs points i,
// i + lanes, … one after the other; what is no thread axis is a loop of each thread. Where a stage
// has no thread axis, thread 0 runs it. Threads of one stage, and of stages with no barrier
// between them, run in any order. The first lane of a reduce axis does the `after` stores; results,
// as all locals, are readable by every thread of the block.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "loop/scalar.h"

namespace tandem::loop {

enum class AxisKind : uint8_t {
  serial,
  task,    // outer axes only: spread over threads
  vector,  // lanes of one loop; at most one axis of a stage. The tail is masked.
  unroll,  // serial, `lanes` points written out at a time; the last axis of a stage of reductions
           // under a vector axis is a register tile; in a kernel of threads what one thread does at
           // once (a load of 4 elements)
  block,   // outer axes only: the launch grid of a kernel of threads
  thread,  // axes of a stage: spread over `lanes` threads of the block, a power of two
  // The last axis of a stage without reductions, under a vector axis:
  transpose,   // as unroll, and loads that walk memory along it, while lanes run across, are square
               // tiles that are turned in registers. Before an interleaved axis of two points:
               // pairs of 16 bits are turned (loop/stage.h, turns_pairs)
  interleave,  // at most `lanes` points, which lie side by side in memory for each lane: stored as
               // one piece
  // The last axis of a stage of one dot4, or of one dot of bf16, under a vector axis, perhaps the
  // one before it, and its last reduce axis:
  matrix,  // as serial; tile registers sum `lanes` rows, and `lanes` packs a step (loop/matrix.h)
};

/// How the steps of a reduce axis are spelled; a mark without meaning.
enum class Steps : uint8_t {
  loop,
  written_out,  // one after the other, no loop
  kept,         // a loop, which nobody after us may write out
};

struct Axis {
  sym::Expr index;   // a symbol in [0, extent)
  sym::Expr extent;  // may depend on outer axes (min(64, n - 64*x0))
  AxisKind kind = AxisKind::serial;
  int lanes = 1;  // of a vector axis: a power of two, at least the register's and up to 4 registers
  Steps steps = Steps::loop;
  // Marks of a vector axis, without meaning:
  int stride = 1;     // loads of this constant stride or less are wide, of which lanes are taken;
                      // farther apart they gather
  int64_t ahead = 0;  // bytes: masked loads ask for what is read so far behind. Processors do not
                      // see streams of masked loads (AMD Zen 5: 64 MiB take seven times as long)
  bool streams = false;  // so do all loads of buffers that are far
};

/// Whether its points are tasks, or blocks of threads.
inline bool is_parallel(const Axis& axis) {
  return axis.kind == AxisKind::task || axis.kind == AxisKind::block;
}

/// Where the memory of a buffer is, and whose. A processor has one kind of it only.
enum class Space : uint8_t {
  global,     // arguments; of scratch: private to one point of the task axes, and kept through the
              // loops inside of it
  shared,     // scratch of a block, seen by its threads: private to one point of the block axes
  registers,  // scratch of a thread, as long as its block runs
};
/// The word behind `scratch`; empty for global.
std::string_view name_of(Space space);

enum class Access : uint8_t { read, write, read_write, scratch };

struct Buffer {
  DType dtype = DType::f32;
  Access access = Access::read;
  sym::Expr elements;  // of a scratch buffer: its extent
  /// No other buffer of the kernel overlaps it.
  bool no_alias = true;
  std::string label;  // origin; not part of the identity
  Space space = Space::global;
  bool far = false;  // a mark without meaning: loops stream it from memory
};

enum class Combiner : uint8_t {
  sum,
  dot,   // (a, b): sum of a * b; floats by fused multiply-add, one rounding a step
  dot4,  // (a, b), packed: sum of the four products of an unsigned byte of a and a signed one of b
  dot4_saturating,  // as dot4, where sums of two neighbouring products saturate at 16 bits, as
                    // those of vpmaddubsw do: never where bytes of a are at most 127
  dot2,             // (a, b), packed: sum of the two products of signed 16-bit halves; both wrap
  dot_bf16,  // (a, b), the bits of an f32 hold two bf16: the products of the second ones, then of
             // the first, added by fused multiply-add; what is too small for a normal f32 is zero
  prod,
  min,
  max,  // NaN wins
  argmin,
  argmax,     // (value, i64 index): the first NaN, else the lowest index among equals
  logaddexp,  // floats: log(exp a + exp b)
  any,
  all,  // bool
};
std::string_view name_of(Combiner combiner);
std::optional<Combiner> combiner_from_name(std::string_view name);
bool multiplies(Combiner combiner);        // dot…: a sum of products
bool multiplies_bytes(Combiner combiner);  // dot4, dot4_saturating
int arity(Combiner combiner);              // inputs: 2 of products and the arg-reductions, else 1
int results(Combiner combiner);            // locals: 2 of the arg-reductions, else 1
/// How an accumulating store is written: "+=", "*=", "min=", "max="; empty for other combiners.
std::string_view assignment_of(Combiner combiner);
/// What an empty reduction gives (of an arg-reduction: its value part; the index part is the
/// largest i64).
Val identity_of(ScalarPool& pool, Combiner combiner, DType dtype);

/// Combines inputs over the reduce axes. A vectorised reduce axis keeps one accumulator a lane, one
/// of threads one a thread; lanes fold at the end as a tree: i with i + lanes/2, then i + lanes/4,
/// … (those of products by addition). A scan over a vector axis, its only one, combines the lanes
/// of a step among themselves, each with the one 1, then 2, 4, … before it (the identity where
/// there is none), and then with what came before the step.
struct Reduction {
  Combiner combiner = Combiner::sum;
  std::vector<Val> inputs;  // arity(combiner)
  int32_t first_local = 0;  // results(combiner) locals: first_local, first_local + 1
  bool scan = false;
};

struct Store {
  int32_t buffer = 0;
  sym::Expr index;  // may hold indirect symbols
  Val value = nullptr;
  bool accumulate =
      false;  // buffer[index] += value, in source order (never vectorised over equal indices)
  Combiner combiner = Combiner::sum;  // of an accumulating store: sum, prod, min or max
  /// A mark without meaning: whole registers go past the caches. The buffer starts at a multiple of
  /// 64 bytes, and each register at a multiple of its own size.
  bool nontemporal = false;
};

/// A hint without meaning: memory that is read soon. Asked for by a reduction over tiles of rows,
/// once a tile, with the unrolled axis at its first row: at each step of the reduce axes up to the
/// last one that the index depends on. It may lie outside of the buffer.
struct Prefetch {
  int32_t buffer = 0;
  sym::Expr index;
};

/// What a stage is, where more is said of it than its loops do: what mapping may do with it.
enum class StageKind : uint8_t {
  loops,
  /// Computes what the next stage reads of one value at a point of the outer axes, to scratch: its
  /// axes are that stage's reduce axes of more than one element, in their order.
  footprint,
  /// Adds one outer point's part to sums in memory: `b[i, j] = fma(a, b, first ? 0 : b[i, j])`.
  gather,
};
/// The word after `stage`; empty for loops.
std::string_view name_of(StageKind kind);

struct Stage {
  StageKind kind = StageKind::loops;
  bool barrier = false;  // before it all threads of the block wait for one another
  std::vector<Axis> axes;
  std::vector<Axis> reduce_axes;
  std::vector<Reduction> reductions;
  std::vector<Store> body;
  std::vector<Store> after;
  std::vector<Prefetch> prefetches;
};

struct Kernel {
  std::string name;  // for reports; not part of the identity
  std::shared_ptr<sym::Pool>
      symbols;  // owned once canonical; null while it shares the module's pool
  std::shared_ptr<ScalarPool> scalars;
  std::vector<Buffer> buffers;
  std::vector<sym::Expr> sizes;  // size arguments: symbols (of the graph) in argument order
  std::vector<Axis> outer;
  std::vector<Stage> stages;
  int32_t locals = 0;
  std::vector<std::string> errors;  // text of check number i; not part of the identity
  std::string target;               // features it was mapped for
  bool parallel = true;             // false: the task range must run in one piece, in order
  int32_t threads = 0;              // of a block; 0: a kernel of tasks

  /// Number of tasks, or of blocks: product of the extents of those axes.
  sym::Expr tasks() const;
};

/// Whether sums of f32 over the stage's reduce axes are taken in blocks: after kSumBlock steps of
/// the innermost reduce axis, after its last step and, where it is a vector axis, before a last
/// step that has not all lanes, the accumulators are added to totals and start again from 0. The
/// error of a sum of n elements then grows with its blocks, not with n. The result of the reduction
/// is the total. Not under an unrolled axis (register tiles), in scans, or where one short loop is
/// all.
bool sums_in_blocks(const Stage& stage);
/// Of that stage: whether it is so of this reduction.
bool sums_in_blocks(const Reduction& reduction);
/// Along an axis of threads the steps are each thread's own.
inline constexpr int64_t kSumBlock = 64;

/// A copy with a pool of its own and canonical names (x0 … outer axes, y0 … stage axes, r0 … reduce
/// axes, n0 … sizes), so that equal kernels of different graphs have equal text. `sizes` stays
/// parallel.
Kernel canonical(const Kernel& kernel);

/// A copy in a pool that others use, with axes of its own and other expressions for its sizes.
Kernel copied(const Kernel& kernel, std::shared_ptr<ScalarPool> into, std::vector<sym::Expr> sizes);

/// Text form that parses back; see loop/README.md for the grammar.
std::string to_string(const Kernel& kernel);
std::string to_string(Val value);
/// Errors count lines from `first_line`.
Kernel parse_kernel(std::string_view text, int first_line = 1);

/// Violated invariants, empty when well formed.
std::vector<std::string> verify(const Kernel& kernel);
/// The same of what an op computes: what it reads are elements, of any number.
std::vector<std::string> verify_definition(const Kernel& kernel);

/// The text without names: kernels that have the same one are the same.
std::string identity_text(const Kernel& kernel);
/// Its hash, plus nothing else: target and build are added by the cache.
uint64_t identity(const Kernel& kernel);

/// Slow and obvious: runs tasks [lo, hi). Same contract and same reduction tree as compiled code.
int64_t interpret(const Kernel& kernel, void* const* buffers, const int64_t* sizes, int64_t lo,
                  int64_t hi);

}  // namespace tandem::loop
