// Problem: the left factor of a convolution as a product has a row for each place, and neighbouring
// rows hold mostly the same elements: copied row by row, a 3x3 window copies each element nine
// times, which takes longer than tile registers take to multiply. Approach: where the factor
// depends on a place y and a position r of the window only by stride*y + step*r, it is copied once
// for each value u of that, borders and conversions included, and the product reads
// [stride*y + step*r] of the copy: rows at a constant distance, as tile registers load them.
//
// Windows that slide by more than a place meet every second element, say: these are neighbours in
// the copy, [u mod stride, u / stride], so that rows follow one another there as well. So
// they do of an image whose lines and places are skipped by windows of one element: it is copied to
// have one distance between rows, over the ends of lines too.
//
// That it depends on nothing else is shown by writing it in terms of u (y = 0, r = u where step is
// 1; y = u, r = 0 where the stride is 1) and putting stride*y + step*r back: the same expression.
#include "schedule/product_window.h"

#include <algorithm>

#include "loop/stage.h"
#include "schedule/axes.h"

namespace tandem::schedule {
namespace {

using loop::Axis;
using loop::AxisKind;
using loop::Kernel;
using loop::Stage;
using loop::Val;
using sym::Expr;

/// Of one address that walks both.
std::optional<Slide> ratio(Val value, Expr axis, Expr term) {
  const std::vector<Val> roots{value};
  for (const Val part : loop::reachable(roots)) {
    if (!sym::depends_on(part->index, axis) || !sym::depends_on(part->index, term)) continue;
    const std::optional<sym::Affine> along = sym::affine_in(part->index, axis);
    const std::optional<sym::Affine> across = sym::affine_in(part->index, term);
    const std::optional<int64_t> a = along ? along->coefficient.constant() : std::nullopt;
    const std::optional<int64_t> b = across ? across->coefficient.constant() : std::nullopt;
    if (!a || !b || *a < 1 || *b < 1) return std::nullopt;
    const int64_t unit = std::min(*a, *b);
    if (*a % unit != 0 || *b % unit != 0) return std::nullopt;
    return Slide{0, std::nullopt, *a / unit, *b / unit};
  }
  return std::nullopt;
}

/// The value in terms of u.
Val at_position(loop::ScalarPool& pool, Val value, const Slide& slide, Expr axis, Expr term,
                Expr u) {
  const bool by_term = slide.step == 1;
  return loop::substituted(pool, value,
                           {{axis, by_term ? Expr(0) : u}, {term, by_term ? u : Expr(0)}});
}

/// Packs of one place stay neighbours: their axis, the last one, is no window's. Where the packs
/// are all that is summed, windows along a line may slide over them.
bool are_packs(const std::vector<Axis>& terms, size_t term, const Slide& slide, bool along_line) {
  const bool is_all = along_line && terms.size() == 1 && slide.step == 1;
  return term + 1 == terms.size() && terms[term].extent != Expr(1) && !is_all;
}

/// Whether windows see elements that are the same: else there is nothing to copy once, and u counts
/// what lies between them as well. stride*y + step*r = stride*y' + step*r' where y - y' is a
/// multiple of step and r' - r one of stride (one of both is 1): the least of each must be there.
/// Then u takes no more values than there are pairs of y and r. Packed weights are no window: lanes
/// one apart, and a kernel's lines thousands.
bool overlaps(const Slide& slide, Expr places, Expr window) {
  return sym::known_le(slide.step, places - 1) && sym::known_le(slide.stride, window - 1);
}

/// How the factor walks the outer axis and one of the reduced ones that is not taken, if as one.
std::optional<Slide> slide_of(const Kernel& kernel, Val value, size_t axis,
                              std::optional<size_t> taken, bool along_line) {
  loop::ScalarPool& pool = *kernel.scalars;
  const Expr place = kernel.outer[axis].index;
  const std::vector<Axis>& terms = kernel.stages[0].reduce_axes;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (i == taken) continue;
    std::optional<Slide> slide = ratio(value, place, terms[i].index);
    if (!slide || are_packs(terms, i, *slide, along_line)) continue;
    if (!overlaps(*slide, kernel.outer[axis].extent, terms[i].extent)) continue;
    const Expr both = place * slide->stride + terms[i].index * slide->step;
    const Expr u =
        pool.symbols().index("u", (terms[i].extent - 1) * slide->step +
                                      (kernel.outer[axis].extent - 1) * slide->stride + 1);
    const Val again = at_position(pool, value, *slide, place, terms[i].index, u);
    if (loop::substituted(pool, again, {{u, both}}) != value) continue;
    slide->axis = axis;
    slide->term = i;
    return slide;
  }
  return std::nullopt;
}

bool is_row(const Kernel& kernel, const Product& product, size_t axis) {
  const std::vector<Val>& inputs = kernel.stages[0].reductions[0].inputs;
  const Expr index = kernel.outer[axis].index;
  return axis != product.columns && loop::walks(inputs[product.left], index) &&
         !loop::walks(inputs[product.right], index);
}

/// Whether short lines of places lie apart, so that tiles would end with each line.
bool skips_elements(const Kernel& kernel, Val left, size_t lines, size_t places,
                    const Tuning::Products& tuning) {
  const std::optional<int64_t> width = kernel.outer[places].extent.constant();
  if (left->opcode != loop::Opcode::load || !left->args.empty() || !width ||
      *width >= tuning.short_line)
    return false;
  const std::optional<sym::Affine> line = sym::affine_in(left->index, kernel.outer[lines].index);
  const std::optional<sym::Affine> place = sym::affine_in(left->index, kernel.outer[places].index);
  return line && place && line->coefficient.constant() && place->coefficient.constant() &&
         line->coefficient != place->coefficient * *width;
}

}  // namespace

std::optional<SlidingRows> find_sliding_rows(const Kernel& kernel, const Product& product,
                                             const Tuning::Products& tuning) {
  const Val left = kernel.stages[0].reductions[0].inputs[product.left];
  std::vector<size_t> rows;
  for (size_t i = 0; i < kernel.outer.size(); ++i) {
    if (!is_row(kernel, product, i) || kernel.outer[i].extent == Expr(1)) continue;
    if (!kernel.outer[i].extent.constant()) return std::nullopt;
    rows.push_back(i);
  }
  if (rows.empty()) return std::nullopt;
  // A batch comes first, and is no line. Without a border a place may slide with the window's lines
  // as well as with its places: each term goes with one axis.
  SlidingRows found{std::nullopt, std::nullopt, {rows.back(), std::nullopt, 1, 1}};
  if (rows.size() > 2) found.images = rows[rows.size() - 3];
  if (rows.size() > 1)
    found.lines = slide_of(kernel, left, rows[rows.size() - 2], std::nullopt, false);
  const std::optional<size_t> taken = found.lines ? found.lines->term : std::nullopt;
  if (const std::optional<Slide> slide = slide_of(kernel, left, rows.back(), taken, true))
    found.places = *slide;
  if (found.lines || found.places.term) return found;
  if (rows.size() < 2 || !skips_elements(kernel, left, rows[rows.size() - 2], rows.back(), tuning))
    return std::nullopt;
  found.lines = Slide{rows[rows.size() - 2], std::nullopt, 1, 1};
  return found;
}

namespace {

/// Which of the elements that one window skips over, and the number among them.
struct Place {
  Expr phase = 0;
  Expr number;
};

/// Of one walk in the footprint.
struct Span {
  Axis axis;    // of the copy
  Expr length;  // numbers of a phase, at most
  Place written;
  Place read;  // in the product's own axes
  Expr phases = 1;
};

/// In memory: phases before numbers, so that neighbouring windows read neighbours.
Expr position_of(const std::vector<Span>& spans, Place Span::* place) {
  Expr position = 0;
  for (const Span& span : spans) position = position * span.phases + (span.*place).phase;
  for (const Span& span : spans) position = position * span.length + (span.*place).number;
  return position;
}

class Footprint {
 public:
  Footprint(Kernel& kernel, Stage& stage, size_t left, bool in_phases)
      : pool_(*kernel.scalars),
        kernel_(kernel),
        stage_(stage),
        left_(left),
        in_phases_(in_phases) {}

  Stage copy(const std::vector<Walk>& walks, const Target& target) {
    Val& factor = stage_.reductions[0].inputs[left_];
    const DType dtype = factor->dtype;
    std::vector<bool> is_walked(stage_.reduce_axes.size(), false);
    for (const Walk& walk : walks) add(walk, is_walked);
    for (size_t i = 0; i < stage_.reduce_axes.size(); ++i)
      if (!is_walked[i]) add_term(stage_.reduce_axes[i]);
    Expr elements = 1;
    Stage stage;
    for (const Span& span : spans_) {
      elements = elements * span.phases * span.length;
      stage.axes.push_back(span.axis);
    }
    const int32_t number = static_cast<int32_t>(kernel_.buffers.size());
    kernel_.buffers.push_back({dtype, loop::Access::scratch, elements, true, ""});
    const Expr to = position_of(spans_, &Span::written);
    stage.body = {{number, to, loop::substituted(pool_, value_, fresh_), false}};
    factor = pool_.load(number, dtype, position_of(spans_, &Span::read));
    lanes_last(stage.axes);
    stage.axes.back().kind = AxisKind::vector;
    stage.axes.back().lanes = target.lanes();
    return stage;
  }

 private:
  Axis fresh(Expr extent) { return {pool_.symbols().index("y", extent), extent}; }

  void add(const Walk& walk, std::vector<bool>& is_walked) {
    if (value_ == nullptr) value_ = stage_.reductions[0].inputs[left_];
    const Expr most = walk.axis.extent.range().hi;
    if (!walk.slide.term) {
      const Axis axis = fresh(walk.axis.extent);
      fresh_.emplace_back(walk.axis.index, axis.index);
      spans_.push_back({axis, most, {0, axis.index}, {0, walk.axis.index}});
      return;
    }
    is_walked[*walk.slide.term] = true;
    const Axis& term = stage_.reduce_axes[*walk.slide.term];
    const auto length = [&](Expr extent) {
      return (extent - 1) * walk.slide.stride + (term.extent - 1) * walk.slide.step + 1;
    };
    const Axis axis = fresh(length(walk.axis.extent));
    value_ = at_position(pool_, value_, walk.slide, walk.axis.index, term.index, axis.index);
    const bool is_whole = !in_phases_ || is_last(*walk.slide.term);
    const Expr phases = is_whole ? 1 : walk.slide.stride;
    const auto place = [&](Expr u) {
      return Place{sym::mod(u, phases), sym::floor_div(u, phases)};
    };
    Place read = place(term.index * walk.slide.step);
    read.number = read.number + sym::floor_div(walk.axis.index * walk.slide.stride, phases);
    spans_.push_back({axis, sym::ceil_div(length(most), phases), place(axis.index), read, phases});
  }

  /// Packs that are summed stay neighbours.
  bool is_last(size_t term) const {
    const auto is_one = [](const Axis& axis) { return axis.extent == Expr(1); };
    return std::all_of(stage_.reduce_axes.begin() + static_cast<ptrdiff_t>(term) + 1,
                       stage_.reduce_axes.end(), is_one);
  }

  void add_term(const Axis& term) {
    const Axis axis = fresh(term.extent);
    fresh_.emplace_back(term.index, axis.index);
    spans_.push_back({axis, term.extent, {0, axis.index}, {0, term.index}});
  }

  loop::ScalarPool& pool_;
  Kernel& kernel_;
  Stage& stage_;
  size_t left_;
  bool in_phases_;
  Val value_ = nullptr;
  std::vector<Span> spans_;
  sym::Substitution fresh_;
};

}  // namespace

Stage copy_footprint(Kernel& kernel, Stage& stage, size_t left, const std::vector<Walk>& walks,
                     bool in_phases, const Target& target) {
  return Footprint(kernel, stage, left, in_phases).copy(walks, target);
}

}  // namespace tandem::schedule
