// Problem: a kernel that breaks a rule of kernel.h is compiled to something, so the rules are
// checked where kernels are made, not where they crash. Approach: one walk in text order. Scope
// grows and shrinks with the nest: outer axes, stage axes, reduce axes; locals become readable as
// reductions end. Hazards between loads and stores are judged per stage: inside one, a buffer that
// is stored may be loaded only at the very index of every such store.
#include <algorithm>
#include <bit>

#include "loop/kernel.h"
#include "loop/matrix.h"
#include "loop/stage.h"
#include "loop/threads.h"
#include "loop/types.h"
#include "loop/walk.h"

namespace tandem::loop {
namespace {

using SymbolSet = std::unordered_set<sym::Expr, sym::ExprHash>;

class Verifier {
 public:
  Verifier(const Kernel& kernel, bool takes_elements)
      : kernel_(kernel), takes_elements_(takes_elements), order_(*kernel.scalars) {}
  std::vector<std::string> run();

 private:
  void sizes_and_buffers();
  void outer_axes();
  void axis(const Axis& axis, std::string_view what);
  void marks(const Axis& axis, const std::string& name);
  void tiles(const Stage& stage);
  void stage(const Stage& stage);
  void kind(const Stage& stage);
  void vector_axes(const Stage& stage);
  void prefetch(const Prefetch& hint);
  void reduction(const Stage& stage, const Reduction& reduction);
  void define_locals(const Reduction& reduction);
  void store(const Stage& stage, const Store& store);
  void accumulate(const Stage& stage, const Store& store);
  void nontemporal(const Stage& stage, const Store& store);
  void lines();
  void line(Val value);
  void load(Val value);
  bool carries(int32_t slot) const;
  bool names_buffers(const Stage& stage) const;
  void hazards(const Stage& stage);
  void index(sym::Expr e, std::string_view what);
  bool has_buffer(int32_t number) const {
    return number >= 0 && static_cast<size_t>(number) < kernel_.buffers.size();
  }
  const Buffer& buffer(int32_t number) const {
    return kernel_.buffers[static_cast<size_t>(number)];
  }
  void require(bool holds, std::string text) {
    if (!holds) problems_.push_back(place_ + std::move(text));
  }

  const Kernel& kernel_;
  bool takes_elements_;
  LineOrder order_;
  std::vector<std::string> problems_;
  std::string place_;
  SymbolSet scope_;
  std::unordered_set<int32_t> defined_;          // locals of the stage
  std::unordered_map<int32_t, DType> readable_;  // those of this place
  std::unordered_set<int32_t> written_;          // buffers stored so far
  std::vector<Val> lines_;
  std::vector<Val> loads_;  // of the stage
};

constexpr int64_t kMostSteps = 64;  // that are written out

std::string number(std::string_view letter, int64_t n) {
  return std::string(letter) + std::to_string(n);
}

std::string kind_of(const Axis& outer) { return outer.kind == AxisKind::task ? "task" : "block"; }

std::vector<std::string> Verifier::run() {
  sizes_and_buffers();
  outer_axes();
  for (size_t i = 0; i < kernel_.stages.size(); ++i) {
    place_ = "stage " + std::to_string(i) + ": ";
    stage(kernel_.stages[i]);
  }
  return std::move(problems_);
}

void Verifier::sizes_and_buffers() {
  for (sym::Expr size : kernel_.sizes) {
    require(size.is_symbol(), "size argument " + sym::to_string(size) + " is no symbol");
    if (size.is_symbol()) scope_.insert(size);
  }
  // Scratch is sized before the tasks run: its extent knows no axis.
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const Buffer& each = kernel_.buffers[i];
    if (each.access != Access::scratch) continue;
    bool empty = each.elements.constant().value_or(1) <= 0;
    require(!empty, "scratch buffer " + number("b", static_cast<int64_t>(i)) + " has no extent");
    index(each.elements, "the extent of a scratch buffer");
  }
}

void Verifier::outer_axes() {
  SymbolSet sizes = scope_;
  for (const Axis& outer : kernel_.outer) {
    require(outer.kind != AxisKind::vector, "an outer axis is vector");
    axis(outer, "outer axis ");
    if (!is_parallel(outer)) continue;
    for (sym::Expr symbol : sym::free_symbols(outer.extent))
      require(sizes.contains(symbol),
              "the extent of a " + kind_of(outer) + " axis follows " + symbol.name());
  }
}

void Verifier::axis(const Axis& axis, std::string_view what) {
  if (!axis.index.is_symbol()) return require(false, std::string(what) + "has no symbol");
  std::string name = std::string(what) + axis.index.name();
  index(axis.extent, "the extent of " + name);
  require(axis.extent.constant().value_or(0) >= 0, name + " has a negative extent");
  require(!scope_.contains(axis.index), name + " is declared twice");  // stages may share one
  bool power = axis.lanes > 0 && std::has_single_bit(static_cast<unsigned>(axis.lanes));
  const bool counts_rows = axis.kind == AxisKind::matrix || axis.kind == AxisKind::unroll;
  require(power || (counts_rows && axis.lanes > 0), name + ": lanes are no power of two");
  const bool counts = axis.kind != AxisKind::serial && !is_parallel(axis);
  require(axis.lanes == 1 || counts, name + " has lanes and is neither vector nor unrolled");
  marks(axis, name);
  scope_.insert(axis.index);
}

void Verifier::marks(const Axis& axis, const std::string& name) {
  const bool is_vector = axis.kind == AxisKind::vector;
  require(is_vector || (axis.stride == 1 && axis.ahead == 0), name + " has marks of lanes");
  require(axis.stride >= 1 && axis.stride <= 16, name + ": a wide load of that stride");
  require(axis.ahead >= 0 && axis.ahead <= (1 << 20), name + " asks too far ahead");
  const int64_t steps = axis.extent.constant().value_or(kMostSteps + 1);
  require(
      axis.steps != Steps::written_out || (axis.kind == AxisKind::serial && steps <= kMostSteps),
      name + " is written out, and has no few known steps");
}

void Verifier::index(sym::Expr e, std::string_view what) {
  for (sym::Expr symbol : sym::free_symbols(e))
    if (!scope_.contains(symbol) && kernel_.scalars->indirect(symbol) == nullptr)
      require(false, std::string(what) + " uses " + symbol.name() + ", which is not in scope");
}

void Verifier::stage(const Stage& stage) {
  SymbolSet outside = scope_;
  std::unordered_map<int32_t, DType> readable_outside = readable_;
  order_.clear();
  loads_.clear();
  defined_.clear();
  kind(stage);
  vector_axes(stage);
  if (names_buffers(stage)) tiles(stage);  // whose questions look at what buffers hold
  for (const Axis& each : stage.axes) axis(each, "axis ");
  SymbolSet after_scope = scope_;
  for (const Axis& each : stage.reduce_axes) axis(each, "reduce axis ");
  for (const Reduction& each : stage.reductions) reduction(stage, each);
  for (const Store& each : stage.body) store(stage, each);
  for (const Prefetch& each : stage.prefetches) prefetch(each);
  scope_ = std::move(after_scope);
  // What stands after the loops is computed there: its lines are judged in that scope.
  order_.clear();
  for (const Reduction& each : stage.reductions) define_locals(each);
  for (const Store& each : stage.after) store(stage, each);
  hazards(stage);
  scope_ = std::move(outside);
  if (!stage.axes.empty()) readable_ = std::move(readable_outside);
}

/// Whether all that it reads and stores is there; what is not, the lines below say.
bool Verifier::names_buffers(const Stage& stage) const {
  bool all = true;
  for (const Val value : scalars_of(stage))
    all &= value->opcode != Opcode::load || has_buffer(value->slot);
  for_each_store(stage, [&](const Store& store) { all &= has_buffer(store.buffer); });
  return all;
}

/// What the kinds promise to mapping, as far as one stage shows it.
void Verifier::kind(const Stage& stage) {
  const auto is_scratch = [&](const Store& store) {
    return has_buffer(store.buffer) && buffer(store.buffer).access == Access::scratch;
  };
  if (stage.kind == StageKind::footprint)
    require(stage.reductions.size() == 1 && stage.body.empty() && stage.after.size() == 1 &&
                is_scratch(stage.after[0]),
            "a footprint is one reduction, stored once to scratch");
  if (stage.kind == StageKind::gather)
    require(stage.reductions.empty() && stage.axes.size() == 2 && stage.body.size() == 1 &&
                stage.after.empty() && stage.body[0].value->opcode == Opcode::fma,
            "a gather is one store of an fma under two axes");
}

void Verifier::prefetch(const Prefetch& hint) {
  bool known = hint.buffer >= 0 && static_cast<size_t>(hint.buffer) < kernel_.buffers.size();
  require(known,
          "a prefetch from buffer " + std::to_string(hint.buffer) + ", which does not exist");
  index(hint.index, "a prefetch");
}

void Verifier::vector_axes(const Stage& stage) {
  int vectors = 0;
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& each : *axes) {
      vectors += each.kind == AxisKind::vector ? 1 : 0;
      require(each.kind != AxisKind::task, "a task axis inside a stage");
    }
  require(vectors <= 1, "more than one vector axis");
}

/// Marks of whole stages. Code of what is written out grows with it.
void Verifier::tiles(const Stage& stage) {
  for (const std::vector<Axis>* axes : {&kernel_.outer, &stage.axes})
    for (const Axis& each : *axes)
      require(each.steps == Steps::loop, "steps of an axis that reduces nothing are marked");
  int64_t steps = 1;
  for (const Axis& each : stage.reduce_axes)
    if (each.steps == Steps::written_out)
      steps *= std::clamp<int64_t>(each.extent.constant().value_or(1), 1, kMostSteps + 1);
  require(steps <= kMostSteps, "too many steps are written out");
  const auto is_matrix = [](const Axis& axis) { return axis.kind == AxisKind::matrix; };
  if (std::ranges::any_of(stage.axes, is_matrix) ||
      std::ranges::any_of(stage.reduce_axes, is_matrix)) {
    const std::string problem = matrix_problem(kernel_, stage);
    require(problem.empty(), "a matrix product: " + problem);
  }
  const auto is_tile = [](const Axis& axis) {
    return axis.kind == AxisKind::transpose || axis.kind == AxisKind::interleave;
  };
  const bool reduces = std::any_of(stage.reduce_axes.begin(), stage.reduce_axes.end(), is_tile);
  const bool of_pairs = stage.axes.size() > 2 &&
                        stage.axes[stage.axes.size() - 2].kind == AxisKind::transpose &&
                        stage.axes.back().kind == AxisKind::interleave;
  if (of_pairs) require(turns_pairs(kernel_, stage), "what is transposed are no pairs");
  const bool inside =
      !stage.axes.empty() &&
      std::any_of(stage.axes.begin(), stage.axes.end() - (of_pairs ? 2 : 1), is_tile);
  require(!reduces && !inside, "a tile is not the last axis of its stage");
  if (stage.axes.empty() || !is_tile(stage.axes.back())) return;
  if (stage.axes.back().kind == AxisKind::interleave)
    require(lies_point_by_point(kernel_, stage), "what is interleaved does not lie point by point");
  else
    require(stage.reductions.empty() && !turned_loads(stage).empty(),
            "nothing is transposed along the last axis");
}

std::string input_problem(const Reduction& reduction) {
  DType type = reduction.inputs[0]->dtype;
  switch (reduction.combiner) {
    case Combiner::any:
    case Combiner::all: return type == DType::boolean ? "" : "is over bool";
    case Combiner::dot4:
    case Combiner::dot4_saturating:
    case Combiner::dot2:
      return type == DType::i32 && reduction.inputs[1]->dtype == type ? "" : "takes two of i32";
    case Combiner::dot_bf16:
      return type == DType::f32 && reduction.inputs[1]->dtype == type ? "" : "takes two of f32";
    case Combiner::logaddexp:
      if (!is_float(type)) return "is over floats";
      [[fallthrough]];
    case Combiner::dot:
    case Combiner::sum:
    case Combiner::prod:
      if (reduction.inputs.back()->dtype != type) return "takes two of one type";
      return type == compute_type(type) && type != DType::boolean ? "" : "accumulates in that type";
    case Combiner::argmin:
    case Combiner::argmax:
      return reduction.inputs[1]->dtype == DType::i64 ? "" : "takes an i64 index";
    case Combiner::min:
    case Combiner::max: return "";
  }
  return "";
}

void Verifier::reduction(const Stage& stage, const Reduction& reduction) {
  std::string name(name_of(reduction.combiner));
  size_t count = static_cast<size_t>(arity(reduction.combiner));
  if (reduction.inputs.size() != count)
    return require(false, name + " has the wrong number of inputs");
  for (Val input : reduction.inputs) order_.visit(input, lines_);
  lines();
  std::string problem = input_problem(reduction);
  require(problem.empty(),
          name + " of " + std::string(name_of(reduction.inputs[0]->dtype)) + ": " + problem);
  for (const Axis& each : stage.reduce_axes) {
    const bool has_order = each.kind == AxisKind::serial ||
                           (each.kind == AxisKind::vector && stage.reduce_axes.size() == 1);
    require(!reduction.scan || has_order, "a scan over lanes, and over another axis");
    require(!reduction.scan || each.kind == AxisKind::serial || !multiplies(reduction.combiner),
            "a scan of products over lanes");
  }
  for (size_t i = 0; i < static_cast<size_t>(results(reduction.combiner)); ++i) {
    int32_t local = reduction.first_local + static_cast<int32_t>(i);
    require(local >= 0 && local < kernel_.locals, number("l", local) + " is beyond the locals");
    bool fresh = !readable_.contains(local) && defined_.insert(local).second;
    require(fresh, number("l", local) + " is defined twice");
  }
  if (reduction.scan) define_locals(reduction);
}

void Verifier::define_locals(const Reduction& reduction) {
  size_t count = static_cast<size_t>(results(reduction.combiner));
  for (size_t i = 0; i < std::min(count, reduction.inputs.size()); ++i)
    readable_[reduction.first_local + static_cast<int32_t>(i)] = reduction.inputs[i]->dtype;
}

void Verifier::store(const Stage& stage, const Store& store) {
  order_.visit(store.value, lines_);
  order_.visit_index(store.index, lines_);
  lines();
  std::string name = "store to " + number("b", store.buffer);
  if (!has_buffer(store.buffer)) return require(false, name + ": no such buffer");
  index(store.index, "the index of a " + name);
  const Buffer& to = buffer(store.buffer);
  require(to.access != Access::read, name + ": it is read only");
  require(to.dtype == store.value->dtype, name + ": value is " +
                                              std::string(name_of(store.value->dtype)) +
                                              ", buffer is " + std::string(name_of(to.dtype)));
  if (store.value->opcode == Opcode::index) index(store.value->index, "a stored index");
  if (store.accumulate) accumulate(stage, store);
  if (store.nontemporal) nontemporal(stage, store);
  written_.insert(store.buffer);
}

/// What it needs is a fault of the machine where it is missing.
void Verifier::nontemporal(const Stage& stage, const Store& store) {
  const std::string name = "store to " + number("b", store.buffer);
  require(!store.accumulate && buffer(store.buffer).access == Access::write,
          name + ": what goes past the caches is written once, and not read");
  require(starts_on_registers(stage, store, buffer(store.buffer).dtype),
          name + ": what goes past the caches starts at a multiple of a register");
}

/// Lanes that may hit one element lose additions; so do tasks. What is stored behind a reduction is
/// a number of all its lanes.
void Verifier::accumulate(const Stage& stage, const Store& store) {
  require(!assignment_of(store.combiner).empty(),
          "a store that accumulates by " + std::string(name_of(store.combiner)));
  const std::vector<Indirect> indirects = indirects_of(*kernel_.scalars, store.index);
  const bool is_behind =
      std::ranges::any_of(stage.after, [&](const Store& each) { return &each == &store; });
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& each : *axes) {
      if (each.kind != AxisKind::vector || (is_behind && axes == &stage.reduce_axes)) continue;
      bool distinct = are_lanes_apart(store.index, each, indirects);
      require(distinct, "an accumulating store under vector axis " + each.index.name());
    }
  bool shared =
      buffer(store.buffer).access != Access::scratch && kernel_.parallel && indirects.empty();
  for (const Axis& outer : kernel_.outer)
    if (shared && is_parallel(outer) && outer.extent != sym::Expr(1))
      require(sym::depends_on(store.index, outer.index),
              kind_of(outer) + "s of " + outer.index.name() + " accumulate into one element");
}

void Verifier::lines() {
  for (Val value : lines_) line(value);
  lines_.clear();
}

void Verifier::line(Val value) {
  const bool is_element = takes_elements_ && value->opcode == Opcode::element;
  for (sym::Expr at : value->at) index(at, "the position of an element");
  std::string problem = is_element ? "" : type_problem(value);
  require(problem.empty(), std::string(name_of(value->opcode)) + ": " + problem);
  for (Val arg : value->args)
    if (arg->opcode == Opcode::index) index(arg->index, "an index value");
  if (value->opcode == Opcode::load) load(value);
  if (value->opcode == Opcode::check) {
    bool known = value->slot >= 0 && static_cast<size_t>(value->slot) < kernel_.errors.size();
    require(known, "check: error " + std::to_string(value->slot) + " has no text");
  }
  if (value->opcode != Opcode::local) return;
  std::unordered_map<int32_t, DType>::iterator found = readable_.find(value->slot);
  bool readable = found != readable_.end();
  require(readable, number("l", value->slot) + " is not readable here");
  require(!readable || found->second == value->dtype,
          number("l", value->slot) + " has another type");
}

/// Scratch is kept through the loops inside of a task: what a round has left is there in the next.
bool Verifier::carries(int32_t slot) const {
  const bool has_rounds =
      std::ranges::any_of(kernel_.outer, [](const Axis& axis) { return !is_parallel(axis); });
  bool is_stored = false;
  for (const Stage& stage : kernel_.stages)
    for_each_store(stage, [&](const Store& store) { is_stored |= store.buffer == slot; });
  return has_rounds && is_stored;
}

void Verifier::load(Val value) {
  std::string name = "load of " + number("b", value->slot);
  if (!has_buffer(value->slot)) return require(false, name + ": no such buffer");
  index(value->index, "the index of a " + name);
  const Buffer& from = buffer(value->slot);
  const bool packs = value->dtype == DType::i32 && size_of(from.dtype) <= 2 &&
                     (is_int(from.dtype) || from.dtype == DType::bf16);
  require(from.dtype == value->dtype || packs,
          name + ": value is " + std::string(name_of(value->dtype)) + ", buffer is " +
              std::string(name_of(from.dtype)));
  const bool unwritten =
      from.access == Access::write || (from.access == Access::scratch && !carries(value->slot));
  require(!unwritten || written_.contains(value->slot), name + " before any store to it");
  loads_.push_back(value);
}

void Verifier::hazards(const Stage& stage) {
  for_each_store(stage, [&](const Store& store) {
    for (Val each : loads_)
      require(each->slot != store.buffer || each->index == store.index,
              "load of " + number("b", each->slot) + "[" + sym::to_string(each->index) +
                  "] in the stage that stores it at [" + sym::to_string(store.index) + "]");
  });
}

}  // namespace

std::vector<std::string> verify(const Kernel& kernel) {
  if (kernel.scalars == nullptr) return {"the kernel has no scalar pool"};
  std::vector<std::string> problems = Verifier(kernel, false).run();
  for (std::string& problem : thread_problems(kernel)) problems.push_back(std::move(problem));
  return problems;
}

std::vector<std::string> verify_definition(const Kernel& kernel) {
  return Verifier(kernel, true).run();
}

}  // namespace tandem::loop
