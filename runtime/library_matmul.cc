// out = a b (+ bias), any strides, any batch dimensions. The product is brought to a normal form:
// batch dimensions are merged, folded into m where b is shared, and the whole is transposed when
// the result is column-major. Then it is a list of tasks (batch slice, block of m, block of n),
// each one 2-d product by a primitive made for one thread; k is never cut, so a result element is
// computed by one task, always with the same blocking. Operands without a unit stride are copied
// first. A bias that is one row goes to the primitive; any other one is written to the result and
// the product added to it. A constant right factor without batches is packed: each block of n in
// the layout that oneDNN chooses for it.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "runtime/allocator.h"
#include "runtime/array.h"
#include "runtime/library.h"
#include "runtime/onednn.h"
#include "runtime/parallel_for.h"

namespace tandem::runtime {
namespace {

enum Role : size_t { kA, kB, kBias, kOut, kRoles };
using Steps = std::array<int64_t, kRoles>;  // a stride for each operand

struct Axis {
  int64_t size = 1;
  Steps step{};
};

struct Product {
  std::array<DType, kRoles> dtype{};
  bool has_bias = false;
  std::vector<Axis> batch;  // outermost first
  Axis m, n, k;             // step 0 for operands without the axis

  int64_t slices() const {
    int64_t count = 1;
    for (const Axis& axis : batch) count *= axis.size;
    return count;
  }
  int64_t flops() const { return 2 * slices() * m.size * n.size * k.size; }
};

// --- Normal form ---

[[noreturn]] void mismatch(std::span<const Operand> operands) {
  std::string text = "[matmul] shapes do not fit:";
  for (const Operand& operand : operands) text += " " + describe(operand.dtype, operand.sizes);
  throw UserError(text);
}

// Dimension `from_end` (0 is the last) of an operand broadcast to `size`; its step.
int64_t step_of(std::span<const Operand> operands, size_t which, size_t from_end, int64_t size) {
  const Operand& operand = operands[which];
  const size_t rank = operand.sizes.size();
  if (from_end >= rank) return 0;
  const size_t dim = rank - 1 - from_end;
  if (operand.sizes[dim] == 1) return 0;
  if (operand.sizes[dim] != size) mismatch(operands);
  return operand.strides[dim];
}

void check_types(const Product& product) {
  const auto accepted = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  const bool good =
      accepted(product.dtype[kA]) && product.dtype[kA] == product.dtype[kB] &&
      (product.dtype[kOut] == product.dtype[kA] || product.dtype[kOut] == DType::f32) &&
      (!product.has_bias || accepted(product.dtype[kBias]));
  if (good) return;
  throw Unsupported("[matmul] " + std::string(name_of(product.dtype[kA])) + " times " +
                    std::string(name_of(product.dtype[kB])) + " to " +
                    std::string(name_of(product.dtype[kOut])) +
                    " has no library route; accepted are f32 and bf16");
}

Product product_of(std::span<const Operand> operands, bool has_bias) {
  const size_t out = operands.size() - 1;
  TD_CHECK(operands.size() == (has_bias ? 4u : 3u)) << operands.size() << " operands";
  for (const Operand& operand : operands)
    if (operand.sizes.size() < (&operand == &operands[2] && has_bias ? 0u : 2u)) mismatch(operands);
  Product product;
  product.has_bias = has_bias;
  product.dtype = {operands[0].dtype, operands[1].dtype, operands[has_bias ? 2 : out].dtype,
                   operands[out].dtype};
  check_types(product);
  const Operand& result = operands[out];
  const size_t rank = result.sizes.size();
  if (operands[0].sizes.size() > rank || operands[1].sizes.size() > rank) mismatch(operands);
  const int64_t m = result.sizes[rank - 2];
  const int64_t n = result.sizes[rank - 1];
  const int64_t k = operands[0].sizes.back();
  const auto bias = [&](size_t from_end, int64_t size) {
    return has_bias ? step_of(operands, 2, from_end, size) : 0;
  };
  if (operands[0].sizes[operands[0].sizes.size() - 2] != m || operands[1].sizes.back() != n ||
      operands[1].sizes[operands[1].sizes.size() - 2] != k)
    mismatch(operands);
  product.m = {m, {step_of(operands, 0, 1, m), 0, bias(1, m), step_of(operands, out, 1, m)}};
  product.n = {n, {0, step_of(operands, 1, 0, n), bias(0, n), step_of(operands, out, 0, n)}};
  product.k = {k, {step_of(operands, 0, 0, k), step_of(operands, 1, 1, k), 0, 0}};
  for (size_t from_end = rank - 1; from_end >= 2; --from_end) {
    const int64_t size = result.sizes[rank - 1 - from_end];
    product.batch.push_back(
        {size,
         {step_of(operands, 0, from_end, size), step_of(operands, 1, from_end, size),
          bias(from_end, size), step_of(operands, out, from_end, size)}});
  }
  return product;
}

// `outer` continues `inner` without a gap in every operand.
bool continues(const Axis& outer, const Axis& inner) {
  for (size_t role = 0; role < kRoles; ++role)
    if (outer.step[role] != inner.step[role] * inner.size) return false;
  return true;
}

void merge_batch(Product& product) {
  std::vector<Axis> merged;
  for (const Axis& axis : product.batch) {
    if (axis.size == 1) continue;
    if (!merged.empty() && continues(merged.back(), axis)) {
      merged.back() = {merged.back().size * axis.size, axis.step};
    } else {
      merged.push_back(axis);
    }
  }
  while (!merged.empty() && merged.back().step[kB] == 0 &&
         (product.m.size == 1 || continues(merged.back(), product.m))) {
    const Axis& inner = merged.back();
    product.m = {inner.size * product.m.size, product.m.size == 1 ? inner.step : product.m.step};
    merged.pop_back();
  }
  product.batch = std::move(merged);
}

// (a b)' = b' a': rows and columns change places.
void transpose(Product& product) {
  const auto swap_ab = [](Axis& axis) { std::swap(axis.step[kA], axis.step[kB]); };
  std::swap(product.dtype[kA], product.dtype[kB]);
  std::swap(product.m, product.n);
  swap_ab(product.m);
  swap_ab(product.n);
  swap_ab(product.k);
  for (Axis& axis : product.batch) swap_ab(axis);
}

bool is_column_major(const Product& product) {
  if (product.n.size == 1) return product.m.size > 1 && product.m.step[kOut] == 1;
  return product.n.step[kOut] != 1 && (product.m.step[kOut] == 1 || product.m.size == 1);
}

// The strides of a rows x columns matrix in a form that oneDNN takes: one of them 1, the other no
// less than the extent of the first. False when there is none.
bool fit_matrix(int64_t rows, int64_t columns, int64_t& row_step, int64_t& column_step) {
  if (columns == 1 && (rows == 1 || row_step >= 1)) {
    column_step = 1;
    if (rows == 1) row_step = 1;
    return true;
  }
  if (rows == 1 && column_step >= 1) {
    row_step = column_step == 1 ? columns : 1;
    return true;
  }
  return (column_step == 1 && row_step >= columns) || (row_step == 1 && column_step >= rows);
}

// --- Execution ---

// An operand in scratch memory instead of its own.
struct Staging {
  std::vector<int64_t> sizes;
  std::vector<int64_t> own;      // strides of the caller's memory
  std::vector<int64_t> scratch;  // of the copy
  int64_t bytes = 0;             // 0: not staged
};

struct Cut {
  int64_t m_block;
  int64_t n_block;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of about equal size: multiples of `granule`, or of a smaller power of two where the last
// block would be much smaller than the others, whose threads wait for each other.
int64_t block_of(int64_t size, int64_t pieces, int64_t granule) {
  const int64_t even = ceil_div(size, pieces);
  while (granule > 1 && ceil_div(even, granule) * granule - even > even / 32) granule /= 2;
  return std::min(size, ceil_div(even, granule) * granule);
}

// A count of blocks that no core waits for at the end.
int64_t evened(int64_t pieces, int64_t cores) {
  return pieces <= cores ? pieces : pieces / cores * cores;
}

// Of 16 bits, of whose plain matrices every task makes a copy in the order that the processor's
// instruction for them wants: blocks of many rows cost least, or, where there are few, all rows
// and blocks of columns (measured: docs/measured.md).
Cut cut_of_16_bit(int64_t m, int64_t n, int64_t wanted) {
  constexpr int64_t kRows = 256, kColumns = 384;
  const int64_t cores = machine_cores();
  if (wanted == 1) return {m, n};
  if (m >= kRows * cores) return {block_of(m, evened(std::min(m / kRows, wanted), cores), 16), n};
  const int64_t pieces = ceil_div(ceil_div(n, kColumns), cores) * cores;
  return {m, block_of(n, std::min(pieces, ceil_div(n, 64)), 64)};
}

// Measured: blocks of m cost least, because b is then read as it lies; below 32 rows (64 where b
// has to be transposed on the way) its repacking shows. Few tasks are enough, two for each core of
// the machine. A product of few rows is always cut by n: oneDNN's kernel for the whole is three
// times slower there, unless b is packed. Packed layouts have blocks of 64 columns.
Cut cut_of(const Product& product, bool is_packed) {
  constexpr int64_t kTaskFlops = 1 << 20;  // about 10 us on one core
  constexpr int64_t kFewRows = 16;
  const int64_t m = product.m.size, n = product.n.size;
  const int64_t cores = machine_cores();
  const int64_t most = ceil_div(2 * cores, product.slices());
  int64_t wanted = std::clamp<int64_t>(2 * m * n * product.k.size / kTaskFlops, 1, most);
  if (m < kFewRows && n >= 128 && !is_packed) wanted = std::max<int64_t>(wanted, 2);
  if (product.dtype[kA] == DType::bf16 && !is_packed) return cut_of_16_bit(m, n, wanted);
  const bool b_is_transposed = product.n.step[kB] != 1 && !is_packed;
  const int64_t m_pieces =
      evened(std::clamp<int64_t>(m / (b_is_transposed ? 64 : 32), 1, wanted), cores);
  const bool is_enough = m_pieces >= std::min(wanted, cores);
  const int64_t n_pieces =
      is_enough ? 1 : std::clamp<int64_t>(n / 64, 1, ceil_div(wanted, m_pieces));
  return {block_of(m, m_pieces, 16), block_of(n, n_pieces, is_packed ? 64 : 16)};
}

class MatmulPlan final : public LibraryPlan {
 public:
  MatmulPlan(const Product& product, bool is_constant_weight);
  void execute(std::span<void* const> operands) override;
  int64_t working_bytes() const override;
  void pack(const void* weight, void* block) override;

 private:
  static constexpr int64_t kParallelFlops = 1 << 20;
  static constexpr int64_t kPackedFlops = 1 << 28;  // of a task: a millisecond or more
  using Data = std::array<std::byte*, kRoles>;      // first elements, by role

  void fit_operands();
  void stage(Role role, Axis& rows, Axis& columns);
  void choose_bias();
  void use_cut(const Cut& cut);
  bool may_pack() const;
  bool make_packed_primitives();
  void make_primitives();
  int64_t size_of_block(size_t last, int64_t size, int64_t blocks, int64_t block) const;
  dnnl_memory_desc_t matrix(Role role, const Axis& rows, int64_t row_count, const Axis& columns,
                            int64_t column_count) const;
  std::unique_ptr<TeamPrimitive> make_primitive(int64_t m, int64_t n,
                                                const dnnl_memory_desc_t& b) const;
  void copy_in(Data& data, std::byte* scratch) const;
  void fill(void* out, const void* value) const;
  void run_task(const Data& data, int64_t task, int thread, std::byte* scratchpad) const;
  bool is_parallel() const;
  void run_tasks(const Data& data);

  Product product_;
  bool is_transposed_ = false;
  std::array<Staging, kRoles> staging_;
  bool bias_in_primitive_ = false;
  Cut cut_{};
  int64_t m_blocks_ = 1, n_blocks_ = 1;
  int64_t scratchpad_bytes_ = 0;  // of one thread
  int64_t staged_bytes_ = 0;
  bool packs_on_heap_ = false;  // oneDNN mallocs megabytes in a task
  // Of the right factor, by: last block of n. Given where it is read as it lies.
  std::array<dnnl_memory_desc_t, 2> b_layouts_{};
  int64_t packed_block_bytes_ = 0;  // of a block of n; 0: not packed
  int64_t tile_bytes_ = 0;          // of one thread; 0: results are written in place
  // Index: last block of m, then last block of n.
  std::array<std::array<std::unique_ptr<TeamPrimitive>, 2>, 2> primitives_;
};

MatmulPlan::MatmulPlan(const Product& product, bool is_constant_weight) : product_(product) {
  merge_batch(product_);
  is_transposed_ = is_column_major(product_);
  if (is_transposed_) transpose(product_);
  report_.flops = product_.flops();
  report_.implementation = "none";
  const bool empty = product_.slices() == 0 || product_.m.size == 0 || product_.n.size == 0;
  if (!empty) choose_bias();
  if (empty || product_.k.size == 0) return;
  fit_operands();
  if (is_constant_weight && may_pack() && make_packed_primitives()) return;
  use_cut(cut_of(product_, false));
  for (size_t last = 0; last < 2; ++last)
    b_layouts_[last] = matrix(kB, product_.k, product_.k.size, product_.n,
                              size_of_block(last, product_.n.size, n_blocks_, cut_.n_block));
  make_primitives();
}

void MatmulPlan::use_cut(const Cut& cut) {
  cut_ = cut;
  m_blocks_ = ceil_div(product_.m.size, cut_.m_block);
  n_blocks_ = ceil_div(product_.n.size, cut_.n_block);
}

// The weight is the right factor, one matrix for all slices, and read from where it lies.
bool MatmulPlan::may_pack() const {
  const bool is_one = std::all_of(product_.batch.begin(), product_.batch.end(),
                                  [](const Axis& axis) { return axis.step[kB] == 0; });
  const bool adds = product_.has_bias && !bias_in_primitive_;
  return !is_transposed_ && is_one && staging_[kB].bytes == 0 && !adds;
}

// False, and as before, where the library has no good implementation or no layout of its own. Its
// good ones write a result without gaps, so blocks of n go through a tile of the thread.
bool MatmulPlan::make_packed_primitives() {
  const Product& p = product_;
  use_cut(cut_of(product_, true));
  if (n_blocks_ > 1) tile_bytes_ = cut_.m_block * cut_.n_block * size_of(p.dtype[kOut]);
  bool is_better = false;
  std::array<dnnl_memory_desc_t, 2> own;
  for (size_t last = 0; last < 2; ++last) {
    const int64_t n = size_of_block(last, p.n.size, n_blocks_, cut_.n_block);
    own[last] = matrix(kB, p.k, p.k.size, p.n, n);
    b_layouts_[last] = any_desc(p.dtype[kB], std::array{p.k.size, n});
  }
  try {
    make_primitives();
    for (size_t last = n_blocks_ == 1 ? 1 : 0; last < 2; ++last) {
      is_better |= onednn().memory_desc_equal(&own[last], &b_layouts_[last]) == 0;
      const size_t bytes = onednn().memory_desc_get_size(&b_layouts_[last]);
      packed_block_bytes_ =
          std::max(packed_block_bytes_, ceil_div(static_cast<int64_t>(bytes), 64) * 64);
      packed_layout_ += text_of(own[last]) + "=" + text_of(b_layouts_[last]) + ";";
    }
  } catch (const Unsupported&) {
    is_better = false;
  }
  if (is_better && !report_.is_slow) {
    // The layouts name one block and the last: slices of one constant may agree in these.
    packed_layout_ = std::to_string(n_blocks_) + " blocks;" + packed_layout_;
    report_.packed_bytes = n_blocks_ * packed_block_bytes_;
    return true;
  }
  primitives_ = {};
  packed_layout_.clear();
  packed_block_bytes_ = 0;
  scratchpad_bytes_ = 0;
  tile_bytes_ = 0;
  report_.is_slow = false;
  return false;
}

void MatmulPlan::fit_operands() {
  Product& p = product_;
  if (!fit_matrix(p.m.size, p.k.size, p.m.step[kA], p.k.step[kA])) stage(kA, p.m, p.k);
  if (!fit_matrix(p.k.size, p.n.size, p.k.step[kB], p.n.step[kB])) stage(kB, p.k, p.n);
  // The result must be row-major; broadcast steps cannot occur in what is written.
  const bool row_major =
      (p.n.size == 1 || p.n.step[kOut] == 1) && (p.m.size == 1 || p.m.step[kOut] >= p.n.size);
  if (!row_major) stage(kOut, p.m, p.n);
  if (p.n.size == 1) p.n.step[kOut] = 1;
  if (p.m.size == 1) p.m.step[kOut] = p.n.size;
}

void MatmulPlan::stage(Role role, Axis& rows, Axis& columns) {
  Staging& staging = staging_[role];
  int64_t stride = rows.size * columns.size;
  const int64_t matrix = stride;
  for (const Axis& axis : product_.batch)
    if (axis.step[role] != 0) stride *= axis.size;
  staging.bytes = stride * size_of(product_.dtype[role]);
  report_.staged_bytes += staging.bytes;
  staged_bytes_ += ceil_div(staging.bytes, 64) * 64;
  for (Axis& axis : product_.batch) {
    if (axis.step[role] == 0) continue;
    stride /= axis.size;
    staging.sizes.push_back(axis.size);
    staging.own.push_back(axis.step[role]);
    staging.scratch.push_back(stride);
    axis.step[role] = stride;
  }
  TD_CHECK(stride == matrix);
  staging.sizes.insert(staging.sizes.end(), {rows.size, columns.size});
  staging.own.insert(staging.own.end(), {rows.step[role], columns.step[role]});
  staging.scratch.insert(staging.scratch.end(), {columns.size, 1});
  rows.step[role] = columns.size;
  columns.step[role] = 1;
}

void MatmulPlan::choose_bias() {
  if (!product_.has_bias) return;
  const bool is_row = product_.n.step[kBias] == 1 && product_.m.step[kBias] == 0;
  bias_in_primitive_ = is_row && product_.k.size > 0;
  if (bias_in_primitive_ || product_.dtype[kBias] == product_.dtype[kOut]) return;
  throw Unsupported("[matmul] a bias of type " + std::string(name_of(product_.dtype[kBias])) +
                    " that is not a row, with a result of type " +
                    std::string(name_of(product_.dtype[kOut])) + "; equal types are accepted");
}

// Of a dimension cut into blocks: of the last one, or of any before it.
int64_t MatmulPlan::size_of_block(size_t last, int64_t size, int64_t blocks, int64_t block) const {
  return last == 1 ? size - (blocks - 1) * block : block;
}

void MatmulPlan::make_primitives() {
  for (size_t i = m_blocks_ == 1 ? 1 : 0; i < 2; ++i) {
    for (size_t j = n_blocks_ == 1 ? 1 : 0; j < 2; ++j) {
      const int64_t m = size_of_block(i, product_.m.size, m_blocks_, cut_.m_block);
      const int64_t n = size_of_block(j, product_.n.size, n_blocks_, cut_.n_block);
      primitives_[i][j] = make_primitive(m, n, b_layouts_[j]);
      const Primitive& made = primitives_[i][j]->primitive();
      b_layouts_[j] = made.desc_of(DNNL_ARG_WEIGHTS);
      scratchpad_bytes_ = std::max(scratchpad_bytes_, made.scratchpad_bytes());
      const bool is_jit = made.implementation().find("gemm:jit") != std::string::npos;
      report_.is_slow |= made.implementation().starts_with("ref") || is_jit;
      packs_on_heap_ |= is_jit && 2 * m * n * product_.k.size >= kPackedFlops;
    }
  }
  scratchpad_bytes_ = ceil_div(scratchpad_bytes_, 64) * 64;
  tile_bytes_ = ceil_div(tile_bytes_, 64) * 64;
  report_.implementation = primitives_[1][1]->primitive().implementation();
  report_.tasks = product_.slices() * m_blocks_ * n_blocks_;
}

dnnl_memory_desc_t MatmulPlan::matrix(Role role, const Axis& rows, int64_t row_count,
                                      const Axis& columns, int64_t column_count) const {
  return strided_desc(product_.dtype[role], std::array{row_count, column_count},
                      std::array{rows.step[role], columns.step[role]});
}

std::unique_ptr<TeamPrimitive> MatmulPlan::make_primitive(int64_t m, int64_t n,
                                                          const dnnl_memory_desc_t& b) const {
  const Product& p = product_;
  const dnnl_memory_desc_t a = matrix(kA, p.m, m, p.k, p.k.size);
  const dnnl_memory_desc_t out =
      tile_bytes_ > 0 ? strided_desc(p.dtype[kOut], std::array{m, n}, std::array{n, int64_t{1}})
                      : matrix(kOut, p.m, m, p.n, n);
  dnnl_memory_desc_t bias{};
  if (bias_in_primitive_)
    bias = strided_desc(p.dtype[kBias], std::array{int64_t{1}, n}, std::array{n, int64_t{1}});
  dnnl_matmul_desc_t desc;
  const dnnl_status_t status =
      onednn().matmul_desc_init(&desc, &a, &b, bias_in_primitive_ ? &bias : nullptr, &out);
  TD_CHECK(status == dnnl_success) << "matmul descriptor: " << static_cast<int>(status);
  static constexpr std::array<int, 4> kIds = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                              DNNL_ARG_BIAS};
  return std::make_unique<TeamPrimitive>(&desc, std::span(kIds).first(bias_in_primitive_ ? 4 : 3),
                                         p.has_bias && !bias_in_primitive_);
}

void MatmulPlan::pack(const void* weight, void* block) {
  const Product& p = product_;
  for (int64_t index = 0; index < n_blocks_; ++index) {
    const size_t last = index + 1 == n_blocks_ ? 1 : 0;
    const int64_t n = size_of_block(last, p.n.size, n_blocks_, cut_.n_block);
    TeamPrimitive reorder(matrix(kB, p.k, p.k.size, p.n, n), b_layouts_[last]);
    reorder.prepare(1);
    const int64_t at = index * cut_.n_block * p.n.step[kB] * size_of(p.dtype[kB]);
    std::byte* const from = static_cast<std::byte*>(const_cast<void*>(weight)) + at;
    const std::array<void*, 2> data = {
        from, static_cast<std::byte*>(block) + index * packed_block_bytes_};
    const ScopedBlock scratchpad(reorder.primitive().scratchpad_bytes());
    const OneThread one;
    reorder.run(0, data, scratchpad.data());
  }
}

// Every element of the result becomes its bias; without one, the value.
void MatmulPlan::fill(void* out, const void* value) const {
  std::vector<int64_t> sizes, to, from;
  const auto add = [&](const Axis& axis) {
    sizes.push_back(axis.size);
    to.push_back(axis.step[kOut]);
    from.push_back(axis.step[kBias]);  // 0 where there is no bias
  };
  for (const Axis& axis : product_.batch) add(axis);
  add(product_.m);
  add(product_.n);
  copy_strided(out, to, value, from, sizes, size_of(product_.dtype[kOut]));
}

// Gives staged operands their scratch memory; copies in what is read.
void MatmulPlan::copy_in(Data& data, std::byte* scratch) const {
  for (size_t role = 0; role < kRoles; ++role) {
    const Staging& staging = staging_[role];
    if (staging.bytes == 0) continue;
    if (role != kOut)
      copy_strided(scratch, staging.scratch, data[role], staging.own, staging.sizes,
                   size_of(product_.dtype[role]));
    data[role] = scratch;
    scratch += ceil_div(staging.bytes, 64) * 64;
  }
}

void MatmulPlan::run_task(const Data& data, int64_t task, int thread, std::byte* scratchpad) const {
  const Product& p = product_;
  const int64_t n_index = task % n_blocks_;
  const int64_t m_index = task / n_blocks_ % m_blocks_;
  int64_t slice = task / n_blocks_ / m_blocks_;
  Steps at{};
  for (size_t role = 0; role < kRoles; ++role)
    at[role] = m_index * cut_.m_block * p.m.step[role] + n_index * cut_.n_block * p.n.step[role];
  for (size_t i = p.batch.size(); i-- > 0;) {
    const int64_t index = slice % p.batch[i].size;
    slice /= p.batch[i].size;
    for (size_t role = 0; role < kRoles; ++role) at[role] += index * p.batch[i].step[role];
  }
  const auto pointer = [&](Role role) -> void* {
    return data[role] + at[role] * size_of(p.dtype[role]);
  };
  void* const b = packed_layout_.empty() ? pointer(kB) : data[kB] + n_index * packed_block_bytes_;
  const size_t m_last = m_index + 1 == m_blocks_ ? 1 : 0, n_last = n_index + 1 == n_blocks_ ? 1 : 0;
  const int64_t rows = size_of_block(m_last, p.m.size, m_blocks_, cut_.m_block);
  const bool has_tile = tile_bytes_ > 0 && rows > 1;
  void* const out = has_tile ? scratchpad + scratchpad_bytes_ : pointer(kOut);
  std::array<void*, 4> arguments = {pointer(kA), b, out, nullptr};
  if (bias_in_primitive_) arguments[3] = pointer(kBias);
  primitives_[m_last][n_last]->run(thread, std::span(arguments).first(bias_in_primitive_ ? 4 : 3),
                                   scratchpad);
  if (!has_tile) return;
  const int64_t columns = size_of_block(n_last, p.n.size, n_blocks_, cut_.n_block);
  copy_strided(pointer(kOut), std::array{p.m.step[kOut], int64_t{1}}, out,
               std::array{columns, int64_t{1}}, std::array{rows, columns}, size_of(p.dtype[kOut]));
}

bool MatmulPlan::is_parallel() const {
  return report_.flops >= kParallelFlops && report_.tasks > 1;
}

int64_t MatmulPlan::working_bytes() const {
  if (primitives_[1][1] == nullptr) return 0;
  const int64_t team = (scratchpad_bytes_ + tile_bytes_) * (is_parallel() ? threads() : 1);
  return Allocator::class_bytes(staged_bytes_) + Allocator::class_bytes(team);
}

void MatmulPlan::run_tasks(const Data& data) {
  const int count = is_parallel() ? threads() : 1;
  for (const auto& row : primitives_)
    for (const std::unique_ptr<TeamPrimitive>& primitive : row)
      if (primitive != nullptr) primitive->prepare(count);
  const int64_t own = scratchpad_bytes_ + tile_bytes_;
  const ScopedBlock scratchpads(own * count);
  const auto run_range = [&](int thread, int64_t lo, int64_t hi) {
    const OneThread one;
    std::byte* const scratchpad = scratchpads.data() + thread * own;
    for (int64_t task = lo; task < hi; ++task) {
      if (packs_on_heap_) give_back_ends();
      run_task(data, task, thread, scratchpad);
    }
    if (packs_on_heap_) give_back_ends();
  };
  if (is_parallel()) {
    parallel_for(report_.tasks, [&](int64_t lo, int64_t hi) { run_range(thread_index(), lo, hi); });
  } else {
    run_range(0, 0, report_.tasks);
  }
}

void MatmulPlan::execute(std::span<void* const> operands) {
  const auto operand = [&](size_t i) { return static_cast<std::byte*>(operands[i]); };
  std::byte* const out = operand(operands.size() - 1);
  Data data = {operand(is_transposed_ ? 1 : 0), operand(is_transposed_ ? 0 : 1),
               product_.has_bias ? operand(2) : out, out};
  if (primitives_[1][1] == nullptr) {
    const int64_t zero = 0;
    const void* const value = product_.has_bias ? data[kBias] : static_cast<const void*>(&zero);
    fill(out, value);
    return;
  }
  const ScopedBlock scratch(staged_bytes_);
  copy_in(data, scratch.data());
  if (product_.has_bias && !bias_in_primitive_) fill(data[kOut], data[kBias]);
  run_tasks(data);
  const Staging& staging = staging_[kOut];
  if (staging.bytes != 0)
    copy_strided(out, staging.own, data[kOut], staging.scratch, staging.sizes,
                 size_of(product_.dtype[kOut]));
}

}  // namespace

std::unique_ptr<LibraryPlan> plan_matmul(std::span<const Operand> operands, bool has_bias,
                                         bool is_constant_weight) {
  const PlanMaker make = [has_bias](std::span<const Operand> given, bool is_constant) {
    return std::make_unique<MatmulPlan>(product_of(given, has_bias), is_constant);
  };
  return plan_or_widen(operands, make, is_constant_weight);
}

}  // namespace tandem::runtime
