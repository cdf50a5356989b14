// A view's index map at symbolic positions, laid over self's strides: where the address is affine
// in every position its coefficients are the view's strides; where it is not, no strides can say
// it.
#include "passes/strides.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "ops/opdef.h"

namespace tandem::passes {
namespace {

using ir::Sizes;
using sym::Expr;

/// Answers a lowering's loads with their address.
class AddressLowering final : public ops::Lowering {
 public:
  AddressLowering(sym::Pool& symbols, const Sizes& strides) : pool_(symbols), strides_(&strides) {}
  loop::ScalarPool& scalars() override { return pool_; }
  loop::Val load(const ir::Value* tensor, const ops::Index& index, loop::Val) override {
    Expr address = 0;
    for (size_t i = 0; i < index.size() && i < strides_->size(); ++i)
      address = address + index[i] * (*strides_)[i];
    return pool_.load(0, compute_type(tensor->type.dtype), address);
  }
  loop::Val scalar(const ir::Arg&, DType dtype) override { return pool_.constant(dtype, 0); }
  loop::Val launch_number(int64_t number) override { return pool_.integer(DType::i64, number); }
  int32_t error(const std::string&) override { return 0; }

 private:
  loop::ScalarPool pool_;
  const Sizes* strides_;
};

/// A size that may be 0 counts as 1 or as itself: where it is 0 there are no elements to lie.
bool is_contiguous(const Sizes& sizes, const Sizes& strides) {
  Sizes wanted = ir::contiguous_strides(sizes);
  Expr product = 1;
  bool same = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == Expr(0)) return true;
    if (sizes[i] != Expr(1) && strides[i] != wanted[i] && strides[i] != product) same = false;
    product = product * sizes[i];
  }
  return same;
}

/// The layout that a call asks for. Nothing where it takes its operand's.
std::optional<std::string> asked_format(const ir::Node& node) {
  const std::vector<ir::Param>& params = node.op->schema.params;
  const auto is_format = [](const ir::Param& p) { return p.type == ir::ParamType::memory_format; };
  const auto param = std::ranges::find_if(params, is_format);
  if (param == params.end()) return std::nullopt;
  const ir::Arg& arg = node.args[static_cast<size_t>(param - params.begin())];
  const std::string* said = std::get_if<std::string>(&arg);
  if (said == nullptr) return param->optional ? std::nullopt : std::optional("contiguous_format");
  return *said == "preserve_format" ? std::nullopt : std::optional(*said);
}

/// Dimensions from the outermost in memory to the innermost, channels behind those of an image.
std::vector<int64_t> order_of_format(const ir::Node& node, std::string_view format) {
  const int64_t rank = node.results[0]->type.rank();
  std::vector<int64_t> order;
  const bool is_last = format.starts_with("channels_last") && rank >= 4;
  for (int64_t i = 0; i < rank; ++i)
    if (!is_last || i != 1) order.push_back(i);
  if (is_last) order.push_back(1);
  return order;
}

Sizes permuted(const Sizes& sizes, const std::vector<int64_t>& order) {
  Sizes found;
  for (int64_t dim : order) found.push_back(sizes[static_cast<size_t>(dim)]);
  return found;
}

/// Strides without gaps, of dimensions in that order.
Sizes strides_in_order(const Sizes& sizes, const std::vector<int64_t>& order) {
  const Sizes ordered = ir::contiguous_strides(permuted(sizes, order));
  Sizes strides(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) strides[static_cast<size_t>(order[i])] = ordered[i];
  return strides;
}

/// As eager tells the layout of strides that may have gaps: channels innermost, each other
/// dimension around the one before it. Where dimensions of one place leave both open, the images
/// come last, and must not have the channels' stride.
bool seems_channels_last(const Sizes& sizes, const Sizes& strides) {
  if (strides[1] == Expr(0)) return false;
  Expr least = 0;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    const size_t i = dim == sizes.size() - 1 ? 1 : dim == 0 ? 0 : dim + 1;
    if (sizes[i] == Expr(0) || sym::known_lt(strides[i], least)) return false;
    if (i == 0 && least == strides[1]) return false;
    least = sizes[i] == Expr(1) ? strides[i] : strides[i] * sizes[i];
  }
  return true;
}

/// False where eager copies to give the layout that the call asks for. `contiguous` asks for one
/// without gaps, `to` for what the strides look like.
bool lies_as_asked(const ir::Node& view, const Sizes& sizes, const Sizes& strides) {
  const std::optional<std::string> format = asked_format(view);
  if (!format) return true;
  const std::vector<int64_t> order = order_of_format(view, *format);
  if (view.op->schema.name == "aten::contiguous")
    return is_contiguous(permuted(sizes, order), permuted(strides, order));
  const bool may_be_last = sizes.size() == 4 || sizes.size() == 5;
  const bool is_last = may_be_last && seems_channels_last(sizes, strides);
  return is_last == format->starts_with("channels_last");
}

bool is_empty(const Sizes& sizes) { return std::ranges::count(sizes, Expr(0)) > 0; }

/// Whether the op's arguments are places in the storage of its operand.
bool counts_in_storage(const ir::Schema& schema) {
  return schema.find("stride") >= 0 && schema.find("storage_offset") >= 0;
}

/// A view in the sizes of another tensor, which self has already, shows self as it lies.
bool shows_all(const ir::Node& view, const ir::Value* self) {
  return view.op->schema.find("other") >= 0 && view.results[0]->type.sizes == self->type.sizes;
}

/// By insertion: symbolic strides are ordered in part only, and what is not known stays.
std::vector<int64_t> by_stride(const Sizes& sizes, const Sizes& strides) {
  std::vector<int64_t> order;
  const auto comes_behind = [&](int64_t first, int64_t second) {
    const size_t a = static_cast<size_t>(first);
    const size_t b = static_cast<size_t>(second);
    if (sym::known_lt(strides[a], strides[b])) return true;
    if (!sizes[a].constant() && strides[a] * sizes[a] == strides[b]) return true;
    return strides[a] == strides[b] && sizes[a] == Expr(1) && sizes[b] != Expr(1);
  };
  for (size_t i = 0; i < strides.size(); ++i) {
    order.push_back(static_cast<int64_t>(i));
    for (size_t k = i; k > 0 && comes_behind(order[k - 1], order[k]); --k)
      std::swap(order[k - 1], order[k]);
  }
  return order;
}

std::vector<int64_t> order_of(const Sizes& sizes, const Sizes& strides) {
  return dense_order(sizes, strides).value_or(std::vector<int64_t>());
}

/// Dimensions of a result that show a tensor of these sizes again and again.
std::vector<int64_t> broadcast_dims(const Sizes& sizes, const ir::Value& result) {
  std::vector<int64_t> dims;
  const Sizes& shown = result.type.sizes;
  const size_t more = shown.size() - sizes.size();
  for (size_t i = 0; i < shown.size(); ++i)
    if ((i < more || sizes[i - more] == Expr(1)) && shown[i] != Expr(1))
      dims.push_back(static_cast<int64_t>(i));
  return dims;
}

Sizes broadcast_strides(const ir::Value& self, const Sizes& strides, const ir::Value& result) {
  Sizes found(result.type.sizes.size() - strides.size(), Expr(0));
  found.insert(found.end(), strides.begin(), strides.end());
  for (int64_t dim : broadcast_dims(self.type.sizes, result)) found[static_cast<size_t>(dim)] = 0;
  return found;
}

/// Steps through memory as steps along the dimensions of a tensor, none of which leaves it.
class Steps {
 public:
  Steps(const Sizes& sizes, const Sizes& strides)
      : strides_(&strides),
        wanted_(ir::contiguous_strides(sizes)),
        order_(by_stride(sizes, strides)) {
    for (const Expr& size : sizes) room_.push_back(size - 1);
  }

  /// `count` steps of `stride`, as they count in row-major order; takes the room that they need.
  std::optional<Expr> take(Expr stride, Expr count) {
    Expr rest = stride;
    Expr places = 0;
    for (int64_t dim : order_) {
      const size_t i = static_cast<size_t>(dim);
      const Expr along = steps_of(rest, (*strides_)[i]);
      if (along == Expr(0) || !sym::known_le(along * count, room_[i])) continue;
      room_[i] = room_[i] - along * count;
      rest = rest - along * (*strides_)[i];
      places = places + along * wanted_[i];
    }
    if (rest != Expr(0)) return std::nullopt;
    return places;
  }

 private:
  static Expr steps_of(Expr rest, Expr stride) {
    if (rest == stride) return stride == Expr(0) ? 0 : 1;
    if (!rest.constant() || !stride.constant() || *stride.constant() <= 0) return 0;
    return *rest.constant() / *stride.constant();
  }
  const Sizes* strides_;
  Sizes wanted_, room_;
  std::vector<int64_t> order_;
};

}  // namespace

void refuse_gaps(const ir::Node& node, const ir::Value* operand) {
  throw Unsupported(
      fmt::format(
          "[{}] the elements of %{} {} do not lie without gaps from the start of a storage, "
          "as far as is known; a contiguous tensor, made by aten.contiguous, is accepted",
          node.op->schema.full_name(), operand->name, to_string(operand->type)),
      node.origin.place);
}

std::optional<std::vector<int64_t>> dense_order(const Sizes& sizes, const Sizes& strides) {
  if (strides.empty() || strides == ir::contiguous_strides(sizes)) return std::vector<int64_t>();
  std::vector<int64_t> order = by_stride(sizes, strides);
  Sizes ordered_sizes, ordered_strides;
  for (int64_t dim : order) {
    ordered_sizes.push_back(sizes[static_cast<size_t>(dim)]);
    ordered_strides.push_back(strides[static_cast<size_t>(dim)]);
  }
  if (!is_contiguous(ordered_sizes, ordered_strides)) return std::nullopt;
  const bool is_row_major = std::ranges::is_sorted(order) || is_empty(sizes);
  return is_row_major ? std::vector<int64_t>() : order;
}

// Scalar expressions are interned: what is the same at two positions that nothing is known of does
// not depend on the position.
bool is_one_number(const ir::Graph& graph, const ir::Node& node) {
  if (node.results.size() != 1) return false;
  const Sizes strides = ir::contiguous_strides(node.results[0]->type.sizes);
  AddressLowering lowering(graph.pool(), strides);
  const ops::Definition definition = ops::def_of(node).lower(lowering, node.call());
  if (definition.kind != ops::Definition::Kind::map) return false;
  ops::Index first, second;
  for (Expr size : node.results[0]->type.sizes) {
    first.push_back(graph.pool().index("v", size));
    second.push_back(graph.pool().index("w", size));
  }
  return definition.map(0, first) == definition.map(0, second);
}

std::vector<int64_t> memory_order(const ir::Type& type) {
  return order_of(type.sizes, type.strides);
}

std::vector<int64_t> EagerStrides::storage_order(const ir::Node& view,
                                                 const ir::Value* self) const {
  if (!counts_in_storage(view.op->schema) || is_odd_.at(self) != 0) return {};
  return order_of(self->type.sizes, of(self));
}

std::optional<StridedPlaces> EagerStrides::row_major_places(const ir::Node& view,
                                                            const ir::Value* self) const {
  const ir::Call call = view.call();
  // An offset is that of a storage, in which an input begins where the program thinks it does.
  Expr offset = call.has("storage_offset") ? call.integer("storage_offset") : Expr(0);
  if (!knows(self) || (call.has("storage_offset") && self->node != nullptr)) return std::nullopt;
  const Sizes strides = of(self);
  StridedPlaces places{call.ints("stride"), offset};
  if (is_contiguous(self->type.sizes, strides)) return places;
  Steps steps(self->type.sizes, strides);
  const std::optional<Expr> begin = steps.take(offset, 1);
  if (!begin) return std::nullopt;
  places.offset = *begin;
  for (size_t i = 0; i < places.strides.size(); ++i) {
    const Expr count = call.ints("size")[i] - 1;
    const std::optional<Expr> stride =
        count == Expr(0) ? Expr(0) : steps.take(places.strides[i], count);
    if (!stride) return std::nullopt;
    places.strides[i] = *stride;
  }
  return places;
}

Sizes EagerStrides::of(const ir::Value* value) const {
  const Sizes* known = strides_.find(value);
  if (known != nullptr && !known->empty()) return *known;
  return value->type.strides.empty() ? ir::contiguous_strides(value->type.sizes)
                                     : value->type.strides;
}

bool EagerStrides::knows(const ir::Value* value) const {
  const Sizes* known = strides_.find(value);
  const bool is_noted = known != nullptr && !known->empty();
  const bool is_said = value->node == nullptr || !value->type.strides.empty();
  return is_noted || is_said || value->type.rank() == 0;
}

std::optional<StridedPlaces> EagerStrides::view_places(const ir::Node& view,
                                                       const ir::Value* result,
                                                       const Sizes& self) const {
  AddressLowering lowering(graph_->pool(), self);
  ops::Definition definition = ops::def_of(view).lower(lowering, view.call());
  ops::Index index;
  for (Expr size : result->type.sizes) index.push_back(graph_->pool().index("v", size));
  loop::Val element = definition.map(result->index, index);
  if (element->opcode != loop::Opcode::load) return std::nullopt;
  Sizes strides;
  Expr rest = element->index;
  for (size_t i = 0; i < index.size(); ++i) {
    std::optional<sym::Affine> affine = sym::affine_in(rest, index[i]);
    if (!affine) return std::nullopt;
    for (Expr axis : index)
      if (sym::depends_on(affine->coefficient, axis)) return std::nullopt;
    strides.push_back(affine->coefficient);
    rest = affine->rest;
  }
  return StridedPlaces{strides, rest};
}

std::optional<Expr> EagerStrides::begin_of(const ir::Value* value) const {
  if (const std::optional<Expr>* known = begins_.find(value); known != nullptr && *known)
    return *known;
  const bool is_view = value->node != nullptr && value->node->op->is_view();
  return is_view ? std::nullopt : std::optional<Expr>(0);
}

bool EagerStrides::shares_memory(const ir::Node& view, const ir::Value* self) {
  const ops::OpDef& def = ops::def_of(view);
  if (def.copies != nullptr && def.copies(view.call())) return false;
  if (counts_in_storage(view.op->schema)) {
    if (strides_[view.results[0]].empty()) strides_[view.results[0]] = view.call().ints("stride");
    return true;
  }
  Sizes own = of(self);
  if (!lies_as_asked(view, self->type.sizes, own)) return false;
  const auto of_complex = [](const ir::Value* value) { return is_complex(value->type.dtype); };
  if (of_complex(self) || std::ranges::any_of(view.results, of_complex)) return true;
  if (def.lower == nullptr) {
    if (shows_all(view, self)) {
      strides_[view.results[0]] = own;
      begins_[view.results[0]] = begin_of(self);
    }
    if (def.repeats) strides_[view.results[0]] = broadcast_strides(*self, own, *view.results[0]);
    return true;
  }
  for (const ir::Value* result : view.results) {
    const std::optional<StridedPlaces> places = view_places(view, result, own);
    if (!places && view.op->schema.name == "aten::view")
      throw UserError(
          fmt::format("[aten::view] sizes {} do not fit the strides {} of self {}: use reshape",
                      ir::to_string(result->type.sizes), ir::to_string(own), to_string(self->type)),
          view.origin.place);
    if (!places) return false;
    strides_[result] = places->strides;
    if (const std::optional<Expr> begin = begin_of(self)) begins_[result] = *begin + places->offset;
  }
  return true;
}

std::vector<int64_t> EagerStrides::repeated_dims(const ir::Node& view,
                                                 const ir::Value* result) const {
  if (is_empty(result->type.sizes)) return {};  // no place is shown
  std::vector<int64_t> dims;
  const ir::Value* const* self = std::get_if<ir::Value*>(&view.args[0]);
  const ops::OpDef& def = ops::def_of(view);
  if (def.lower == nullptr && def.repeats) return broadcast_dims((*self)->type.sizes, *result);
  if (def.lower == nullptr || self == nullptr) return dims;
  const std::optional<StridedPlaces> places =
      view_places(view, result, ir::contiguous_strides((*self)->type.sizes));
  for (size_t i = 0; places && i < places->strides.size(); ++i)
    if (places->strides[i] == Expr(0) && result->type.sizes[i] != Expr(1))
      dims.push_back(static_cast<int64_t>(i));
  return dims;
}

bool EagerStrides::shows_places_twice(const ir::Value* value) const {
  if (is_empty(value->type.sizes)) return false;
  const Sizes strides = of(value);
  for (size_t i = 0; i < strides.size(); ++i)
    if (strides[i] == Expr(0) && value->type.sizes[i] != Expr(1)) return true;
  return false;
}

bool EagerStrides::overlaps(const ir::Value* value) const {
  const Sizes strides = of(value);
  Expr places = 1;
  for (size_t i = 0; i < strides.size(); ++i)
    places = places + (value->type.sizes[i] - 1) * strides[i];
  return sym::known_lt(places, value->type.numel());
}

bool EagerStrides::counts_elsewhere(const ir::Node& view, const ir::Value* self) const {
  return counts_in_storage(view.op->schema) && !is_row_major(self);
}

bool EagerStrides::is_row_major(const ir::Value* value) const {
  return is_odd_.at(value) == 0 && is_contiguous(value->type.sizes, of(value));
}

bool EagerStrides::note_format(const ir::Node& node, const ir::Value* result) {
  const std::optional<std::string> format = asked_format(node);
  if (!format || !result->type.strides.empty()) return false;
  strides_[result] = strides_in_order(result->type.sizes, order_of_format(node, *format));
  return true;
}

// Ops that work element by element, and others whose result looks like an operand, keep its layout
// in eager; all others give row-major results. `contiguous` does so always.
void EagerStrides::note_layout(const ir::Node& node, bool shared) {
  const ir::Schema& schema = node.op->schema;
  const ir::Value* odd = nullptr;
  ir::for_each_operand(node.args, [&](const ir::Value* operand) {
    if (operand->type.is_tensor() && !is_row_major(operand)) odd = operand;
  });
  if (odd != nullptr && counts_in_storage(schema) && !node.op->is_view()) refuse_gaps(node, odd);
  for (const ir::Value* result : node.results) {
    bool keeps = odd != nullptr && !node.op->is_view() &&
                 (ops::def_of(node).pointwise || result->type.sizes == odd->type.sizes);
    const bool has_self = !node.args.empty() && std::holds_alternative<ir::Value*>(node.args[0]);
    const bool shows = shared || (ops::def_of(node).shows_self && has_self);
    if (shows) {  // strides of views that are other views are not known
      const ir::Value* self = std::get<ir::Value*>(node.args[0]);
      bool is_part = result->type.numel() != self->type.numel();
      keeps = is_part || is_odd_.at(self) != 0 || ops::def_of(node).lower == nullptr;
    }
    // A front end has said them; the result of a write may be a part of a storage all the same.
    if (!shows && !result->type.strides.empty())
      keeps = node.op->mutates() && !is_contiguous(result->type.sizes, result->type.strides);
    if (!shows && note_format(node, result))
      keeps = !is_contiguous(result->type.sizes, strides_[result]);
    is_odd_[result] = keeps ? 1 : 0;
  }
}

}  // namespace tandem::passes
