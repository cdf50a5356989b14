// Runs a kernel as its meaning is written in kernel.h. Problem: an engine whose only virtue is that
// it is right, to hold compiled code against: every loop in source order, every value computed
// where its line stands, nothing hoisted, reductions in the documented tree. Approach: the lines of
// each statement are listed once (walk.h); a point evaluates them in order into a table by scalar
// id. Scratch starts as all ones (NaN) so that a read before a write shows. Threads of a block run
// one after the other, the last lane first; where two of them meet in an element and no barrier
// orders them, it reads as all ones, and all ones are stored.
#include <algorithm>

#include "base/check.h"
#include "loop/evaluate.h"
#include "loop/kernel.h"
#include "loop/races.h"
#include "loop/random.h"
#include "loop/threads.h"
#include "loop/walk.h"
#include "sym/steps.h"

namespace tandem::loop {
namespace {

/// A statement's lines, those of earlier statements of the same point left out.
using Lines = std::vector<Val>;

/// One value a lane, or two.
using Lanes = std::vector<std::vector<Bits>>;

/// Of one reduction.
struct Accumulator {
  Lanes lanes;
  Lanes totals;  // of a sum in blocks
  // Of a scan: `lanes` are the inputs of this step.
  std::vector<Bits> before;   // what came before the step
  std::vector<Bits> running;  // up to this point
};

struct StageLines {
  std::vector<Lines> reductions;
  std::vector<Lines> body;
  std::vector<Lines> after;
  std::vector<sym::Expr> points_ahead;
  std::vector<sym::Expr> steps_ahead;
  std::vector<Axis> threads;  // the axes that threads are counted by
  std::vector<Accumulator> identities;
  std::vector<Accumulator> accumulators;  // of the point that runs
};

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, void* const* buffers, const int64_t* sizes);
  int64_t run(int64_t lo, int64_t hi);

 private:
  void plan(const Stage& stage);
  void run_task(int64_t task);
  void run_outer();
  /// Lives as long as the task or block.
  void make_scratch();
  void run_stage(size_t number);
  void run_point(const Stage& stage, StageLines& lines);
  void run_reduce_point(const Stage& stage, StageLines& lines);
  bool begins_block(const Stage& stage);
  static void end_block(const Reduction& reduction, Accumulator& accumulator, size_t first,
                        size_t count);
  static void scan(const Reduction& reduction, Accumulator& accumulator, size_t lane,
                   const std::vector<Bits>& inputs);
  void finish(const Reduction& reduction, Lanes& lanes);
  void set_locals(const Reduction& reduction, const std::vector<Bits>& values);
  void store(const Store& store);
  void run_stores(const std::vector<Store>& stores, const std::vector<Lines>& lines);
  /// Calls `body` for every point of a nest, row-major; extents may depend on axes further out.
  template <class Body>
  void loop(std::span<const Axis> axes, Body&& body);
  template <class Body>
  void loop_over_threads(std::span<const Axis> axes, Body&& body);
  /// That which runs the point.
  int64_t thread();
  bool is_watched(size_t buffer) const {
    return kernel_.threads > 0 && kernel_.buffers[buffer].access != Access::read &&
           kernel_.buffers[buffer].space != Space::registers;
  }
  int64_t place(size_t buffer, sym::Expr index);

  void evaluate_lines(const Lines& lines);
  Bits compute(Val value);
  Bits load(Val value);
  bool has_points(const std::vector<sym::Expr>& extents) {
    return std::ranges::all_of(extents, [&](const sym::Expr& extent) { return at(extent) > 0; });
  }
  /// An index expression, and where the values of its symbols are: of an axis or a size, or of a
  /// scalar.
  struct Evaluation {
    sym::Steps steps;
    std::vector<const int64_t*> known;
    std::vector<Val> indirect;
  };
  Evaluation& evaluation_of(sym::Expr e);
  /// The value of an operand: inline ones are computed here.
  Bits value_of(Val value);
  int64_t at(sym::Expr e);
  int64_t& axis(const Axis& axis) { return symbols_[axis.index.node()->id]; }
  bool failed() const { return status_ != 0; }

  const Kernel& kernel_;
  std::vector<void*> buffers_;
  std::vector<std::vector<unsigned char>> scratch_;
  std::vector<StageLines> stages_;
  std::unordered_map<uint32_t, int64_t> symbols_;  // axes and sizes by id
  std::vector<Bits> values_;                       // by scalar id
  std::vector<Bits> locals_;
  std::vector<Bits> inputs_;                                      // of a step of a reduction
  std::unordered_map<const sym::Node*, Evaluation> evaluations_;  // only looked up
  int64_t status_ = 0;
  const StageLines* running_ = nullptr;
  Races races_;
};

Interpreter::Interpreter(const Kernel& kernel, void* const* buffers, const int64_t* sizes)
    : kernel_(kernel),
      buffers_(buffers, buffers + kernel.buffers.size()),
      scratch_(kernel.buffers.size()),
      values_(kernel.scalars->size()),
      locals_(static_cast<size_t>(kernel.locals)) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) symbols_[kernel.sizes[i].node()->id] = sizes[i];
  for (const Stage& stage : kernel.stages) plan(stage);
}

int lane_count(const Stage& stage) {
  for (const Axis& axis : stage.reduce_axes)
    if (axis.kind == AxisKind::vector || axis.kind == AxisKind::thread) return axis.lanes;
  return 1;
}

/// What a point begins with.
std::vector<Accumulator> identities_of(const Stage& stage) {
  std::vector<Accumulator> identities;
  const bool in_blocks = sums_in_blocks(stage);
  for (const Reduction& reduction : stage.reductions) {
    const std::vector<Bits> identity = identity_of(reduction.combiner, reduction.inputs[0]->dtype);
    const Lanes lanes(static_cast<size_t>(lane_count(stage)), identity);
    const Lanes totals = in_blocks && sums_in_blocks(reduction) ? lanes : Lanes{};
    identities.push_back({lanes, totals, identity, identity});
  }
  return identities;
}

void Interpreter::plan(const Stage& stage) {
  LineOrder order(*kernel_.scalars);
  StageLines& lines = stages_.emplace_back();
  for (const Reduction& reduction : stage.reductions) {
    Lines& needed = lines.reductions.emplace_back();
    for (Val input : reduction.inputs) order.visit(input, needed);
  }
  for (const Store& each : stage.body) {
    order.visit(each.value, lines.body.emplace_back());
    order.visit_index(each.index, lines.body.back());
  }
  lines.points_ahead = extents_ahead(stage.axes);
  lines.steps_ahead = extents_ahead(stage.reduce_axes);
  lines.threads = thread_axes(stage);
  lines.identities = identities_of(stage);
  // `after` is another point of execution: it computes what it needs again.
  order.clear();
  for (const Store& each : stage.after) {
    order.visit(each.value, lines.after.emplace_back());
    order.visit_index(each.index, lines.after.back());
  }
}

int64_t Interpreter::run(int64_t lo, int64_t hi) {
  for (int64_t task = lo; task < hi && !failed(); ++task) run_task(task);
  return status_;
}

/// Task axes enumerate the range row-major: the last varies fastest.
void Interpreter::run_task(int64_t task) {
  for (size_t i = kernel_.outer.size(); i-- > 0;) {
    const Axis& outer = kernel_.outer[i];
    if (!is_parallel(outer)) continue;
    int64_t extent = at(outer.extent);
    axis(outer) = task % extent;
    task /= extent;
  }
  std::vector<Axis> inside;
  for (const Axis& outer : kernel_.outer)
    if (!is_parallel(outer)) inside.push_back(outer);
  races_.wait();
  make_scratch();
  loop(inside, [&] { run_outer(); });
}

void Interpreter::run_outer() {
  for (size_t i = 0; i < kernel_.stages.size() && !failed(); ++i) run_stage(i);
}

void Interpreter::make_scratch() {
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& buffer = kernel_.buffers[i];
    if (buffer.access != Access::scratch) continue;
    const int64_t owners = buffer.space == Space::registers ? kernel_.threads : 1;
    int64_t bytes = std::max<int64_t>(at(buffer.elements), 0) * size_of(buffer.dtype) * owners;
    scratch_[i].assign(static_cast<size_t>(bytes), 0xFF);
    buffers_[i] = scratch_[i].data();
  }
}

template <class Body>
void Interpreter::loop(std::span<const Axis> axes, Body&& body) {
  if (axes.empty()) return body();
  if (axes[0].kind == AxisKind::thread) return loop_over_threads(axes, body);
  // Depth is the number of axes of a nest.
  int64_t extent = at(axes[0].extent);
  for (int64_t i = 0; i < extent && !failed(); ++i) {
    axis(axes[0]) = i;
    loop(axes.subspan(1), body);
  }
}

/// Lane after lane, the last one first: a lane does all of its points.
template <class Body>
void Interpreter::loop_over_threads(std::span<const Axis> axes, Body&& body) {
  const int64_t extent = at(axes[0].extent);
  for (int64_t lane = axes[0].lanes; lane-- > 0;)
    for (int64_t i = lane; i < extent && !failed(); i += axes[0].lanes) {
      axis(axes[0]) = i;
      loop(axes.subspan(1), body);
    }
}

int64_t Interpreter::thread() {
  int64_t number = 0;
  for (const Axis& each : running_->threads) number = number * each.lanes + axis(each) % each.lanes;
  return number;
}

void Interpreter::run_stage(size_t number) {
  const Stage& stage = kernel_.stages[number];
  running_ = &stages_[number];
  if (stage.barrier) races_.wait();
  if (!has_points(stages_[number].points_ahead)) return;
  loop(stage.axes, [&] { run_point(stage, stages_[number]); });
}

bool has_threads(const std::vector<Axis>& axes) {
  return std::ranges::any_of(axes, [](const Axis& a) { return a.kind == AxisKind::thread; });
}

void Interpreter::run_point(const Stage& stage, StageLines& lines) {
  lines.accumulators = lines.identities;  // in the same memory
  if (has_points(lines.steps_ahead))
    loop(stage.reduce_axes, [&] { run_reduce_point(stage, lines); });
  if (failed()) return;
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    Accumulator& each = lines.accumulators[i];
    if (stage.reductions[i].scan) {
      set_locals(stage.reductions[i], each.running);
      continue;
    }
    end_block(stage.reductions[i], each, 0, each.lanes.size());
    finish(stage.reductions[i], each.totals.empty() ? each.lanes : each.totals);
  }
  for (const Axis& reduce : stage.reduce_axes) axis(reduce) = 0;  // the first lane
  run_stores(stage.after, lines.after);
}

// What is loaded under a mask late may be what is written over early.
void Interpreter::run_stores(const std::vector<Store>& stores, const std::vector<Lines>& lines) {
  for (size_t i = 0; i < stores.size() && !failed(); ++i) evaluate_lines(lines[i]);
  for (size_t i = 0; i < stores.size() && !failed(); ++i) store(stores[i]);
}

void Interpreter::run_reduce_point(const Stage& stage, StageLines& lines) {
  std::vector<Accumulator>& accumulators = lines.accumulators;
  size_t lane = 0;
  for (const Axis& reduce : stage.reduce_axes)
    if (reduce.kind == AxisKind::vector || reduce.kind == AxisKind::thread)
      lane = static_cast<size_t>(axis(reduce) % reduce.lanes);
  const bool begins = begins_block(stage);
  const bool own = has_threads(stage.reduce_axes);
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const Reduction& reduction = stage.reductions[i];
    if (begins)
      end_block(reduction, accumulators[i], own ? lane : 0, own ? 1 : accumulators[i].lanes.size());
    evaluate_lines(lines.reductions[i]);
    if (failed()) return;
    inputs_.clear();
    for (Val input : reduction.inputs) inputs_.push_back(value_of(input));
    if (reduction.scan) {
      scan(reduction, accumulators[i], lane, inputs_);
      set_locals(reduction, accumulators[i].running);
    } else {
      accumulate_bits(reduction.combiner, reduction.inputs[0]->dtype, accumulators[i].lanes[lane],
                      inputs_);
    }
  }
  run_stores(stage.body, lines.body);
}

/// The lanes of a step are combined with those 1, 2, 4, … before them, the identity where there is
/// none; then all of them with what came before the step. A lane needs none behind it.
void Interpreter::scan(const Reduction& reduction, Accumulator& accumulator, size_t lane,
                       const std::vector<Bits>& inputs) {
  const DType dtype = reduction.inputs[0]->dtype;
  if (accumulator.lanes.size() == 1)
    return accumulate_bits(reduction.combiner, dtype, accumulator.running, inputs);
  if (lane == 0) accumulator.before = accumulator.running;
  accumulator.lanes[lane] = inputs;
  Lanes sums(accumulator.lanes.begin(), accumulator.lanes.begin() + static_cast<long>(lane) + 1);
  for (size_t apart = 1; apart < accumulator.lanes.size(); apart *= 2)
    for (size_t i = lane + 1; i-- > 0;) {
      std::vector<Bits> sum = i < apart ? identity_of(reduction.combiner, dtype) : sums[i - apart];
      combine_bits(reduction.combiner, dtype, sum, sums[i]);
      sums[i] = std::move(sum);
    }
  accumulator.running = accumulator.before;
  combine_bits(reduction.combiner, dtype, accumulator.running, sums[lane]);
}

/// Of sums in blocks: whether the step is the first of one. Steps that have not all lanes are a
/// block; threads count their own steps.
bool Interpreter::begins_block(const Stage& stage) {
  if (stage.reduce_axes.empty()) return false;
  const Axis& last = stage.reduce_axes.back();
  if (last.kind == AxisKind::thread) return axis(last) / last.lanes % kSumBlock == 0;
  const int64_t step = last.kind == AxisKind::vector ? last.lanes : 1;
  const int64_t whole = at(last.extent) / step * step;
  return axis(last) == whole || axis(last) % (kSumBlock * step) == 0;
}

/// Adds what each of these lanes has come to since the block began to its total.
void Interpreter::end_block(const Reduction& reduction, Accumulator& accumulator, size_t first,
                            size_t count) {
  if (accumulator.totals.empty()) return;
  const DType dtype = reduction.inputs[0]->dtype;
  for (size_t lane = first; lane < first + count; ++lane) {
    combine_bits(reduction.combiner, dtype, accumulator.totals[lane], accumulator.lanes[lane]);
    accumulator.lanes[lane] = identity_of(reduction.combiner, dtype);
  }
}

/// Lanes fold as a tree: i with i + lanes/2, then i + lanes/4, …
void Interpreter::finish(const Reduction& reduction, Lanes& lanes) {
  DType dtype = reduction.inputs[0]->dtype;
  for (size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i)
      combine_bits(reduction.combiner, dtype, lanes[i], lanes[i + half]);
  set_locals(reduction, lanes[0]);
}

void Interpreter::set_locals(const Reduction& reduction, const std::vector<Bits>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    locals_[static_cast<size_t>(reduction.first_local) + i] = values[i];
}

void Interpreter::store(const Store& store) {
  size_t buffer = static_cast<size_t>(store.buffer);
  DType dtype = kernel_.buffers[buffer].dtype;
  int64_t index = place(buffer, store.index);
  Bits value = value_of(store.value);
  if (store.accumulate) {
    std::vector<Bits> old{read_element(buffers_[buffer], dtype, index)};
    combine_bits(store.combiner, dtype, old, {value});
    value = old[0];
  }
  if (is_watched(buffer) && races_.store(buffer, index, thread())) value = -1;
  write_element(buffers_[buffer], dtype, index, value);
}

/// Where an element lies: each thread has registers of its own.
int64_t Interpreter::place(size_t buffer, sym::Expr index) {
  const int64_t element = at(index);
  if (kernel_.buffers[buffer].space != Space::registers) return element;
  return thread() * at(kernel_.buffers[buffer].elements) + element;
}

void Interpreter::evaluate_lines(const Lines& lines) {
  for (Val value : lines) {
    values_[value->id] = compute(value);
    if (failed()) return;
  }
}

Bits Interpreter::compute(Val value) {
  const std::vector<Val>& args = value->args;
  switch (value->opcode) {
    case Opcode::load: return load(value);
    case Opcode::local: return locals_[static_cast<size_t>(value->slot)];
    case Opcode::fma:
      return multiply_add_bits(value->dtype, value_of(args[0]), value_of(args[1]),
                               value_of(args[2]));
    case Opcode::select: return value_of(value_of(args[0]) != 0 ? args[1] : args[2]);
    case Opcode::cast: return cast_bits(value_of(args[0]), args[0]->dtype, value->dtype);
    case Opcode::bitcast: return bitcast_bits(value_of(args[0]), value->dtype);
    case Opcode::philox:
      return static_cast<int32_t>(philox(static_cast<uint64_t>(value_of(args[0])),
                                         static_cast<uint64_t>(value_of(args[1])),
                                         static_cast<uint64_t>(value_of(args[2]))));
    case Opcode::pack: {
      std::vector<Bits> parts;
      for (Val part : args) parts.push_back(value_of(part));
      return pack_bits(parts);
    }
    case Opcode::check:
      if (value_of(args[0]) == 0) status_ = 1 + value->slot;
      return value_of(args[1]);
    default: break;
  }
  if (args.size() == 1) return unary_bits(value->opcode, args[0]->dtype, value_of(args[0]));
  return binary_bits(value->opcode, args[0]->dtype, value_of(args[0]), value_of(args[1]));
}

Bits Interpreter::load(Val value) {
  if (value->masked && value_of(value->args[0]) == 0) return 0;
  const size_t buffer = static_cast<size_t>(value->slot);
  const int64_t index = place(buffer, value->index);
  if (is_watched(buffer) && races_.load(buffer, index, thread())) return -1;
  return read_element(buffers_[buffer], value->dtype, index);
}

Bits Interpreter::value_of(Val value) {
  if (value->opcode == Opcode::constant) return constant_bits(value);
  if (value->opcode == Opcode::index) return at(value->index);
  return values_[value->id];
}

Interpreter::Evaluation& Interpreter::evaluation_of(sym::Expr e) {
  const auto found = evaluations_.find(e.node());
  if (found != evaluations_.end()) return found->second;
  Evaluation made{sym::Steps(e), {}, {}};
  for (const sym::Expr& symbol : made.steps.symbols()) {
    const auto known = symbols_.find(symbol.node()->id);
    made.known.push_back(known == symbols_.end() ? nullptr : &known->second);
    made.indirect.push_back(kernel_.scalars->indirect(symbol));
    TD_CHECK(made.known.back() != nullptr || made.indirect.back() != nullptr)
        << "no value for " << sym::to_string(symbol) << " of " << sym::to_string(e);
  }
  return evaluations_.emplace(e.node(), std::move(made)).first->second;
}

int64_t Interpreter::at(sym::Expr e) {
  if (e.constant()) return *e.constant();
  Evaluation& made = evaluation_of(e);
  for (size_t i = 0; i < made.known.size(); ++i)
    made.steps.set(i, made.known[i] ? *made.known[i] : value_of(made.indirect[i]));
  const std::optional<int64_t> value = made.steps.run();
  TD_CHECK(value.has_value()) << "no value for " << sym::to_string(e);
  return *value;
}

}  // namespace

int64_t interpret(const Kernel& kernel, void* const* buffers, const int64_t* sizes, int64_t lo,
                  int64_t hi) {
  return Interpreter(kernel, buffers, sizes).run(lo, hi);
}

}  // namespace tandem::loop
