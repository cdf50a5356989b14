// What was frozen must be noticed when it changes, at every call and over hundreds of tensors. An
// object's identity tells that it was replaced, its version counter that eager wrote to it, its
// address that `p.data = other` gave it other memory (the memory it had is held, so no other can
// lie there). Writes through `p.data` or NumPy change none of these: only elements tell, and
// reading all of them is an option.
#include "python/frozen.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "python/tensors.h"

namespace tandem::python {
namespace {

using runtime::Array;

constexpr int64_t kNoVersion = -1;  // of what was made in inference mode

/// Eight running products, so that memory sets the pace. Each step is a bijection of its sum: two
/// arrays that differ in one word never agree.
uint64_t checksum(const Array& array, uint64_t sum) {
  constexpr size_t kLanes = 8;
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  using Block = std::array<uint64_t, kLanes>;
  Block sums;
  for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] = sum + lane;
  const std::byte* bytes = static_cast<const std::byte*>(array.raw());
  size_t left =
      static_cast<size_t>(runtime::extent(array.sizes(), array.strides()) * size_of(array.dtype()));
  while (left > 0) {
    Block block{};
    const size_t count = std::min(left, sizeof(Block));
    std::memcpy(block.data(), bytes, count);
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] = (sums[lane] ^ block[lane]) * kFactor;
    bytes += count;
    left -= count;
  }
  for (uint64_t each : sums) sum = ((sum ^ (each >> 32)) * kFactor) ^ each;
  return sum;
}

/// To a program complex numbers are their parts, along a last dimension.
Array with_parts(const Array& array) {
  if (!is_complex(array.dtype())) return array;
  std::vector<int64_t> sizes(array.sizes().begin(), array.sizes().end());
  std::vector<int64_t> strides;
  for (int64_t stride : array.strides()) strides.push_back(2 * stride);
  sizes.push_back(2);
  strides.push_back(1);
  const auto keep = [array](void*) {};
  return Array::borrow(array.raw(), part_type(array.dtype()), sizes, strides, keep);
}

}  // namespace

/// What a set was made of.
struct FrozenSets::Set {
  struct Seen {
    const PyObject* tensor;
    int64_t version;
    Array array;  // holds the memory
  };
  std::vector<Seen> seen;  // empty: a tensor is gone
  std::shared_ptr<runtime::ConstantSet> constants;
  std::vector<nb::object> watches;  // weak references
  uint64_t bound_sum = 0;
  int64_t last_use = 0;

  uint64_t checksum_now() const {
    uint64_t sum = 0;
    for (const Seen& each : seen) sum = checksum(each.array, sum);
    return sum;
  }
};

FrozenSets::FrozenSets(nb::object function, std::vector<std::string> names, nb::object version,
                       bool is_checked)
    : held_function_(std::move(function)),
      function_(nb::cast<driver::GraphFunction&>(held_function_)),
      names_(std::move(names)),
      version_(std::move(version)),
      is_checked_(is_checked) {}

FrozenSets::~FrozenSets() {
  for (const std::shared_ptr<Set>& set : sets_) release(*set);
}

Constants FrozenSets::find(nb::tuple tensors) {
  if (tensors.size() != names_.size())
    throw UserError("a frozen graph has " + std::to_string(names_.size()) + " weights, " +
                    std::to_string(tensors.size()) + " were given");
  std::shared_ptr<Set> set = known(tensors);
  if (set == nullptr || !is_unchanged(set, tensors)) set = bind(tensors);
  set->last_use = ++clock_;
  return {set->constants};
}

std::shared_ptr<FrozenSets::Set> FrozenSets::known(nb::tuple tensors) const {
  for (const std::shared_ptr<Set>& set : sets_) {
    size_t i = 0;
    while (i < set->seen.size() && set->seen[i].tensor == tensors[i].ptr()) ++i;
    if (i == names_.size()) return set;
  }
  return nullptr;
}

// The tensors are at hand, so nobody releases the set meanwhile.
bool FrozenSets::is_unchanged(const std::shared_ptr<Set>& set, nb::tuple tensors) const {
  for (size_t i = 0; i < set->seen.size(); ++i) {
    const Set::Seen& seen = set->seen[i];
    const int64_t version = version_of(tensors[i]);
    if (version == kNoVersion || version != seen.version || !is_view_of(seen.array, tensors[i]))
      return false;
  }
  if (!is_checked_) return true;
  nb::gil_scoped_release release;
  return set->checksum_now() == set->bound_sum;
}

// Versions and sums are taken before setup reads elements: what is written later is a change.
std::shared_ptr<FrozenSets::Set> FrozenSets::bind(nb::tuple tensors) {
  std::shared_ptr<Set> set = std::make_shared<Set>();
  runtime::ConstantValues values;
  for (size_t i = 0; i < names_.size(); ++i) {
    const int64_t version = version_of(tensors[i]);
    nb::object alone = tensors[i].attr("detach")();  // keeps the memory it has now
    if (nb::cast<bool>(alone.attr("is_conj")())) alone = alone.attr("resolve_conj")();
    set->seen.push_back(
        {tensors[i].ptr(), version, array_of(alone, "constant '" + names_[i] + "'")});
    values.insert_or_assign(names_[i], with_parts(set->seen.back().array));
  }
  ++bindings_;
  {
    nb::gil_scoped_release release;
    if (is_checked_) set->bound_sum = set->checksum_now();
    set->constants = function_.make_constants(values);
  }
  keep(set, tensors);
  return set;
}

void FrozenSets::keep(const std::shared_ptr<Set>& set, nb::tuple tensors) {
  if (const std::shared_ptr<Set> older = known(tensors)) release(*older);
  std::erase_if(sets_, [](const std::shared_ptr<Set>& each) { return each->seen.empty(); });
  if (sets_.size() >= kMostSets) drop_least_recent();
  const nb::object gone = nb::cpp_function([this, watched = std::weak_ptr<Set>(set)](nb::handle) {
    if (const std::shared_ptr<Set> held = watched.lock()) release(*held);
  });
  for (nb::handle tensor : tensors) {
    set->watches.push_back(nb::steal(PyWeakref_NewRef(tensor.ptr(), gone.ptr())));
    if (!set->watches.back().is_valid()) nb::raise_python_error();
  }
  sets_.push_back(set);
}

// Its watches stay until it is taken out of the list: one of them may be what calls.
void FrozenSets::release(Set& set) {
  if (set.constants != nullptr) function_.retire(*set.constants);
  const std::vector<Set::Seen> seen = std::exchange(set.seen, {});
  set.constants.reset();
}

void FrozenSets::drop_least_recent() {
  const std::vector<std::shared_ptr<Set>>::iterator oldest = std::min_element(
      sets_.begin(), sets_.end(), [](const std::shared_ptr<Set>& a, const std::shared_ptr<Set>& b) {
        return a->last_use < b->last_use;
      });
  const std::shared_ptr<Set> set = *oldest;  // goes after the list is whole again
  sets_.erase(oldest);
  release(*set);
}

int64_t FrozenSets::version_of(nb::handle tensor) const {
  PyObject* const descriptor = version_.ptr();
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor.ptr()));
  const nb::object version =
      nb::steal(Py_TYPE(descriptor)->tp_descr_get(descriptor, tensor.ptr(), type));
  if (version.is_valid()) return PyLong_AsLongLong(version.ptr());
  PyErr_Clear();
  return kNoVersion;
}

nb::dict FrozenSets::counts() const {
  int64_t sets = 0;
  int64_t bytes = 0;
  for (const std::shared_ptr<Set>& set : sets_) {
    if (set->constants == nullptr) continue;
    ++sets;
    bytes += driver::GraphFunction::kept_bytes(*set->constants);
  }
  nb::dict counts;
  counts["bindings"] = bindings_;
  counts["sets"] = sets;
  counts["bytes"] = bytes;
  return counts;
}

}  // namespace tandem::python
