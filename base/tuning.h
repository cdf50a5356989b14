// Every number that was found by measuring, in one table: when values are inlined, what shares a
// kernel, how large blocks are. A Target has its own; these are for processors like the one they
// were measured on (Zen 4 and 5 with 2 cores; docs/measured.md), cache sizes aside, which the
// target says itself.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

struct Tuning {
  int64_t assumed_length = 512;  // of a size that nobody knows

  /// Of one core, in the cost model (schedule/cost.cc): good for telling which of two is less.
  struct Rates {
    int64_t memory = 15000;      // bytes a microsecond; reads alone are at 17000 to 25000
    int64_t l3 = 30000;          // bytes a microsecond
    int64_t l2 = 80000;          // bytes a microsecond
    int64_t lane_flops = 10000;  // a microsecond: products, of each lane of a register
    int64_t launch_ns = 2500;    // waking a team of threads, and waiting for the last one
    /// Of a library's time for the same sums; border rows that are computed twice included.
    int64_t footprint_percent = 120;
    int64_t unknown_size = 128;  // what a symbol counts as
    // Of one element that is computed again: a function is a polynomial, a random number ten rounds
    // of products of 64 bits (measured: 0.64 ns in 16 lanes of Sapphire Rapids, so a dropout's mask
    // of bytes is kept by default: with 64 operations it was drawn again, and BERT's step took 6 %
    // longer).
    int64_t element_operations = 8;
    int64_t draw_operations = 100;
    bool operator==(const Rates&) const = default;
  } rates;

  /// What is written where it is read, and what gets a place of its own.
  struct Inlining {
    int64_t depth = 48;    // longest chain of operations: compile time, and registers
    int64_t operands = 8;  // of a joined value: each element asks each part whether it lies there
    int64_t places = 2;    // where a value is read: doubles what is computed each time
    int64_t picked = 64;   // a gather of one element of that many may join the rows it picks from
    bool operator==(const Inlining&) const = default;
  } inlining;

  /// What shares a kernel.
  struct Fusion {
    int64_t longest_row = 32768;   // elements, of rows with several stages: they stay in cache
    int64_t buffers = 28;          // of a kernel: addresses in registers or on the stack
    int64_t small_result = 1024;   // elements: may be made early, takes no room that matters
    int64_t footprint_terms = 32;  // of a sum that windows compute where they read it
    // Bytes of a written input: saving so few apart, and copying at the end, is nothing beside
    // taking all that follows before the first of them is written.
    int64_t small_input = 65536;
    bool operator==(const Fusion&) const = default;
  } fusion;

  /// The library's products beside emitted ones.
  struct Routes {
    int64_t emitted_terms = 1024;  // f32, of a sum: as fast emitted …
    int64_t emitted_rows = 32;     // … from so many rows on
    int64_t long_terms = 65536;    // the same of longer sums,
    int64_t fewest_long_rows = 64;
    int64_t most_long_rows = 256;
    int64_t transposed_terms = 256;  // the most of a sum whose left factor lies transposed,
    int64_t narrow_terms = 128;      // and of one without AVX-512
    int64_t few_rows = 8;            // f32, at most, of each of several matrices: read once
    int64_t converted_rows = 32;     // bf16 without AVX-512, at most: cheaper than converting it
    int64_t tile_rows = 32;          // bf16 in packs, from so many on
    // f32: bytes from a row of the right factor to the next, of multiples of which the library is
    // slow: 12 KB apart, 108 GFLOP/s and loops 228 (Sapphire Rapids), 84 and 160 (Zen 3). With
    // AVX-512 not where the left factor lies transposed.
    int64_t sharing_rows = 4096;
    int64_t winograd_tiles = 32;    // at least: rows of its products
    int64_t winograd_percent = 90;  // at most, of the estimated time of the convolution's windows
    bool operator==(const Routes&) const = default;
  } routes;

  /// Layouts by bytes moved.
  struct Layouts {
    int64_t reorder = 2;        // passes over a value that lies otherwise than the library wants
    int64_t typical_size = 32;  // of a symbol
    bool operator==(const Layouts&) const = default;
  } layouts;

  /// Long reductions with few results, cut into blocks.
  struct Splitting {
    int64_t enough_results = 4096;     // from here on the results are tasks enough
    int64_t long_reduction = 2048;     // elements of one result
    int64_t many_elements = 1 << 17;   // of a channels-last value: worth several tasks
    int64_t block = 16384;             // elements
    int64_t fewest_column_rows = 128;  // of a block of columns
    // Of a product of one row: the elements of its matrix, from which on a second launch pays, and
    // the rows of a part, at least, and twice as many at most.
    int64_t large_matrix = 1 << 18;
    int64_t part_rows = 96;
    bool operator==(const Splitting&) const = default;
  } splitting;

  /// Products in a row (chains).
  struct Chains {
    int64_t fewest_rows = 32;            // of a block: copying the right factors must pay
    int64_t most_rows = 128;             // of a block
    int64_t narrow_factor = 128;         // columns of keys and values, at most
    int64_t longest_sum = 32768;         // of a product that may end one
    int64_t fewest_gathering_rows = 64;  // what is gathered is read and written for each block
    int64_t few_tasks = 4;               // that gather: at least, and one for each core
    int64_t enough_tasks = 16;
    int64_t large_matrix = 1 << 20;  // bytes for each of a batch; a smaller one stays in cache
    int64_t wider = 4;  // than the factors that it is made of: what forward does not save
    bool operator==(const Chains&) const = default;
  } chains;

  /// Kernels without a reduction.
  struct Points {
    int64_t block = 8192;          // elements of a task
    int64_t smallest_task = 2048;  // elements
    int64_t interleaved = 4;       // values stored side by side, at most
    int64_t tile = 64;             // both sides of a transposing tile
    int64_t pieces = 4;            // of a row, between the places where operands wrap around
    bool operator==(const Points&) const = default;
  } points;

  /// Reductions across memory.
  struct Columns {
    int64_t many_rows = 16;  // from here on sums read whole rows
    int64_t block = 2048;    // columns whose sums stay in the first-level cache
    int64_t few_tasks = 8;
    // Rows that are summed in registers, all that is loaded of them counted, and the fewest: each
    // is a stream. Zen 4, two threads, one product of a row and a matrix, 4, 8, 16 rows at once:
    // 37, 46, 51 GB/s (768 x 2304), 31, 38, 46 (3072 x 768); 64 columns of all rows 21 and 18.
    int64_t rows_at_once = 16;
    int64_t fewest_at_once = 4;
    bool operator==(const Columns&) const = default;
  } columns;

  /// Depthwise stencils.
  struct Windows {
    int64_t most_taps = 64;  // more are a long sum, not a stencil
    int64_t most_stride = 8;
    int64_t most_channels = 160;  // of a task
    int64_t most_summed = 48;     // the same where they are sums, which take no memory
    int64_t few_tasks = 16;       // smaller blocks of rows below this
    int64_t fewest_rows = 4;      // neighbouring rows share what their windows see
    int64_t tile_points = 8;      // of a register tile, two registers each
    // Without AVX-512: what windows of 3 x 3 see of a row, 5 places, stays in registers beside
    // their sums. Zen 3: frozen MobileNet V2 17.1 ms with 6 to 8, 16.7 with 3; 7 x 7 1.85, 1.71.
    int64_t narrow_tile_points = 3;
    bool operator==(const Windows&) const = default;
  } windows;

  /// Emitted products.
  struct Products {
    int64_t fewest_rows = 4;         // fewer do not pay for packing
    int64_t most_dot_rows = 8;       // that meet a matrix as it lies along the terms,
    int64_t dot_columns = 32;        // and its columns of a task
    int64_t most_rows = 256;         // of a task: packing the columns is then a few per cent
    int64_t most_columns = 256;      // of a task: the same of rows that are packed
    int64_t smallest_block = 32;     // rows
    int64_t enough_tasks = 8;        // or four for each core: smaller blocks below this
    int64_t busy_rows = 4;           // of a register tile, whose sums, two a row, keep two
                                     // multipliers of four cycles busy; fewer take as long
    int64_t fewest_matrix_rows = 8;  // half of a tile register; not measured
    // Columns of a task whose sums are taken in parts, and whether a part asks for the next one
    // while it sums, where memory runs along the terms (1): see tuning_of.
    int64_t part_columns = 256;
    int64_t asks_next_part = 0;
    // A sum in parts: the last has from shortest_part + 1 to shortest_part + part_terms terms, for
    // all that is less than a part would be a round trip of the sums for little.
    int64_t part_terms = 192;
    int64_t shortest_part = 64;
    // Rows of a task of unknown height, whose tiles share what is asked for: fewer leave lines
    // unasked, tiles behind them ask again.
    int64_t assumed_rows = 128;
    int64_t rows_ahead = 8;         // that a copy of pieces of rows asks for: 4 to 16 alike
    int64_t steps_asking_once = 8;  // of a register tile, at most, that ask for one line together
    int64_t lines_asked = 32;       // of memory, at once: more would wait for one another
    // Bytes from one term of a transposed left factor to the next, from which on a task copies it:
    // the terms of a register tile would share few sets of the first-level cache.
    int64_t far_terms = 1024;
    int64_t short_line = 64;           // places of an image: with it tiles would end
    int64_t random_columns = 64;       // whose random bits are drawn together
    int64_t farthest_ahead = 1 << 20;  // bytes that a loop asks ahead, at most; not measured
    int64_t group_columns = 64;        // of a panel whose sums of groups are scaled and added …
    int64_t group_rows = 4;            // … and its rows, all of which have accumulators
    // Bytes of the weight that they ask ahead. Zen 4, one thread, 4 bits: 4096 take 1.2 of the
    // time, 7168 1.08, 8192 and more 1.11 to 1.16; two threads wait for memory, and differ little.
    int64_t group_ahead = 5120;
    bool operator==(const Products&) const = default;
  } products;

  /// Blocks of threads; not measured yet.
  struct Blocks {
    int64_t threads = 256;      // of most kernels
    int64_t points = 4;         // of a thread, in kernels without a reduction
    int64_t short_sum = 64;     // terms: a thread adds so few by itself
    int64_t long_row = 8192;    // elements: four times the threads work on one
    int64_t tile = 32;          // both sides of a transposing tile
    int64_t product_side = 64;  // rows and columns of a block of a product
    int64_t product_depth = 16;
    int64_t thread_side = 4;     // rows and columns of a thread's sums
    int64_t chain_rows = 16;     // of a block; what is computed of them stays in shared memory
    int64_t chain_lanes = 32;    // threads along one of these rows
    int64_t chain_numbers = 64;  // of each of them, that pass from stage to stage, at most
    bool operator==(const Blocks&) const = default;
  } blocks;

  /// How loops are spelled.
  struct Loops {
    int64_t written_out = 16;         // steps of a reduction: masks and addresses fold
    int64_t written_out_in_tile = 9;  // the same of a register tile, each step of which is long
    int64_t kept = 64;                // steps of a tile that LLVM would write out, and must not
    int64_t widest_stride = 4;        // of a wide load: of a wider one most would be thrown away
    int64_t ahead = 8192;             // bytes: memory's latency at its full speed, and a margin
    int64_t past_caches = 32 << 20;   // bytes of a result, or half of the last level where that is
                                      // less: who reads it next finds little of it in a cache
    int64_t fewest_once = 16;  // times as many elements as are stored there again: those come
                               // back from memory; not measured
    int64_t far = 8 << 20;     // bytes of what is read: asking for less takes more than it gives
    int64_t far_matrix = 2 << 20;  // the same of what meets one row, each line of which is for once
    bool operator==(const Loops&) const = default;
  } loops;

  /// Which values forward saves for backward.
  struct Saving {
    int64_t bytes_for_microsecond = 4096;  // that computing again may cost, by default
    // Of a search that exchanges products, in edges of the network looked at: the cuts before it go
    // by the nodes, about 5 us of each; what that leaves of 40 ms is for exchanges (at 1.2 ns an
    // edge, the middle of what 1,500 and 5,000 nodes took).
    int64_t edges_of_search = 1 << 25;
    int64_t edges_of_node = 1 << 12;  // fewer, for each node
    int64_t edges_of_repair = 32;     // for each that changed: with fewer a flow is found afresh
    bool operator==(const Saving&) const = default;
  } saving;

  /// The same for all targets: what asks for them knows none, or is written for them.
  struct Fixed {
    static constexpr int64_t kTypicalSize = 256;  // of a symbol, in partitions: lengths of rows,
                                                  // whose squares a step had better not save
    static constexpr int64_t kFewestPacks = 4;    // of 16 that a step of tile registers takes: with
                                                  // fewer it is no cheaper; not measured
    static constexpr int kProductLanes = 16;      // threads of a GPU along each side of a product's
                                                  // block; not measured
  };

  bool operator==(const Tuning&) const = default;
};

/// Of a processor, by LLVM's name, where it is not as above.
inline Tuning tuning_of(std::string_view cpu) {
  Tuning tuning;
  // Zen 5 does not see the short pieces of rows coming that a part copies. Products with weights as
  // they lie, 340 to 430 GFLOP/s without, 430 to 455 so (docs/measured.md). On Sapphire Rapids
  // asking while it sums took more than it gave. Nor on Zen 3, whose second-level cache is half as
  // large: [2048, 768] x [768, 768] 105 to 146 GFLOP/s without, [1024, 1024] x [1024, 4096] 104 to
  // 133, of 24 products none slower by more than the spread. Parts of 768 terms are 1.05 as fast
  // there, but a sum of so many in one register has up to twice the error of eager's.
  if (cpu.starts_with("znver") && cpu >= "znver4") {
    tuning.products.part_columns = 128;
    tuning.products.asks_next_part = 1;
    // Times as fast as the library (Zen 4, two threads, weights in turn), sums of 1536 to 8192
    // terms: 8 to 31 rows 1.03 to 2.4, 320 to 2048 .95 to 1.10; of 256 to 1024 terms 8 to 31 rows
    // .77 to 2.6, in the middle 1.3. Held to AVX2 .83 to 1.45.
    tuning.routes.emitted_rows = 8;
    tuning.routes.fewest_long_rows = 8;
    tuning.routes.most_long_rows = INT64_MAX;
    tuning.loops.far_matrix = tuning.loops.far;  // reads at memory's speed; not measured otherwise
    // Of bf16, 768 to 3072 terms: 4 to 31 rows 1.10 to 2.2, 2 rows .55 to 1.36.
    tuning.routes.tile_rows = 4;
  } else if (cpu.starts_with("znver")) {
    tuning.loops.far_matrix = tuning.loops.far;  // not measured
    tuning.routes.sharing_rows = 2048;  // an odd multiple: 121 to 126 GFLOP/s, and loops 160
  }
  return tuning;
}

/// For base/archive.h. A forgotten member does not compile.
template <class A>
void fields(A& archive, Tuning& tuning) {
  auto& [length, rates, inlining, fusion, routes, layouts, splitting, chains, points, columns,
         windows, products, blocks, loops, saving] = tuning;
  archive(length);
  const auto each = [&](auto&... numbers) { (archive(numbers), ...); };
  auto& [a1, a2, a3, a4, a5, a6, a7, a8, a9] = rates;
  auto& [i1, i2, i3, i4] = inlining;
  auto& [f1, f2, f3, f4, f5] = fusion;
  auto& [t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13] = routes;
  auto& [l1, l2] = layouts;
  auto& [s1, s2, s3, s4, s5, s6, s7] = splitting;
  auto& [c1, c2, c3, c4, c5, c6, c7, c8, c9] = chains;
  auto& [p1, p2, p3, p4, p5] = points;
  auto& [o1, o2, o3, o4, o5] = columns;
  auto& [w1, w2, w3, w4, w5, w6, w7, w8] = windows;
  auto& [r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15, r16, r17, r18, r19, r20,
         r21, r22, r23, r24] = products;
  auto& [b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11] = blocks;
  auto& [k1, k2, k3, k4, k5, k6, k7, k8, k9] = loops;
  auto& [v1, v2, v3, v4] = saving;
  each(a1, a2, a3, a4, a5, a6, a7, a8, a9, i1, i2, i3, i4, f1, f2, f3, f4, f5, t1, t2, t3, t4, t5,
       t6, t7, t8, t9, t10, t11, t12, t13, l1, l2, s1, s2, s3, s4, s5, s6, s7);
  each(c1, c2, c3, c4, c5, c6, c7, c8, c9, p1, p2, p3, p4, p5, o1, o2, o3, o4, o5);
  each(w1, w2, w3, w4, w5, w6, w7, w8, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12);
  each(r13, r14, r15, r16, r17, r18, r19, r20, r21, r22, r23, r24);
  each(b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, k1, k2, k3, k4, k5, k6, k7, k8, k9, v1, v2, v3,
       v4);
}

}  // namespace tandem
