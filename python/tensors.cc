// A call of ten small tensors should cost no more than a few microseconds, so torch's table of C
// functions is used where there is one (torch 2.11 on): some tens of nanoseconds a tensor, against
// half a microsecond for a capsule.
#include "python/tensors.h"

#include <nanobind/stl/string.h>

#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>

#include "python/dlpack.h"

namespace tandem::python {
namespace {

using runtime::Array;
using Capsule = nb::ndarray<nb::device::cpu>;

const dlpack::Exchange* g_exchange = nullptr;
PyTypeObject* g_tensor_type = nullptr;

constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;
constexpr uint8_t kFloat8E4M3FN = 10, kFloat8E5M2 = 12;

struct Numbered {
  DType dtype;
  uint8_t code;
  uint8_t bits;
};
constexpr std::array<Numbered, kDTypeCount> kTypes{{{DType::f32, kFloat, 32},
                                                    {DType::f64, kFloat, 64},
                                                    {DType::bf16, kBfloat, 16},
                                                    {DType::f16, kFloat, 16},
                                                    {DType::i8, kInt, 8},
                                                    {DType::u8, kUInt, 8},
                                                    {DType::i16, kInt, 16},
                                                    {DType::i32, kInt, 32},
                                                    {DType::i64, kInt, 64},
                                                    {DType::boolean, kBool, 8},
                                                    {DType::f8e4m3fn, kFloat8E4M3FN, 8},
                                                    {DType::f8e5m2, kFloat8E5M2, 8},
                                                    {DType::c64, kComplex, 64},
                                                    {DType::c128, kComplex, 128}}};

DType dtype_of(uint8_t code, uint8_t bits, std::string_view what) {
  for (const Numbered& entry : kTypes)
    if (entry.code == code && entry.bits == bits) return entry.dtype;
  throw UserError(std::string(what) + " has an element type that is not supported");
}

dlpack::DataType dlpack_of(DType dtype) {
  for (const Numbered& entry : kTypes)
    if (entry.dtype == dtype) return {entry.code, entry.bits, 1};
  throw UserError("no DLPack type for " + std::string(name_of(dtype)));
}

/// ": it is a Tensor, torch.sparse_coo on cpu".
std::string kind_of(nb::handle object) {
  std::string text = std::string(": it is a ") + Py_TYPE(object.ptr())->tp_name;
  if (!nb::hasattr(object, "layout") || !nb::hasattr(object, "device")) return text;
  const nb::object layout = nb::getattr(object, "layout");
  const nb::object device = nb::getattr(object, "device");
  return text + ", " + nb::str(nb::handle(layout)).c_str() + " on " +
         nb::str(nb::handle(device)).c_str();
}

/// Storage that was resized to nothing under its tensors.
void check_memory(const Array& array, std::string_view what) {
  if (array.raw() == nullptr && array.numel() > 0) [[unlikely]]
    throw UserError(std::string(what) + " is a tensor without memory");
}

bool has_exchange(nb::handle tensor) {
  return g_exchange != nullptr && (Py_TYPE(tensor.ptr()) == g_tensor_type ||
                                   PyType_IsSubtype(Py_TYPE(tensor.ptr()), g_tensor_type) != 0);
}

Array borrow(nb::handle tensor, std::string_view what, std::function<void(void*)> deleter) {
  dlpack::Tensor view{};
  if (g_exchange->view_object(tensor.ptr(), &view) != 0) {
    PyErr_Clear();  // torch's text is a stack trace
    throw UserError(std::string(what) + " is no tensor on the CPU" + kind_of(tensor));
  }
  if (view.device.type != dlpack::kCpu) throw UserError(std::string(what) + " is not on the CPU");
  std::byte* data = static_cast<std::byte*>(view.data) + view.byte_offset;
  const size_t rank = static_cast<size_t>(view.ndim);
  Array array = Array::borrow(data, dtype_of(view.dtype.code, view.dtype.bits, what),
                              {view.shape, rank}, {view.strides, rank}, std::move(deleter));
  check_memory(array, what);
  return array;
}

/// Dropped by whichever thread lets go last.
std::function<void(void*)> keeper(nb::object object) {
  std::shared_ptr<nb::object> keep(new nb::object(std::move(object)), [](nb::object* held) {
    nb::gil_scoped_acquire gil;
    delete held;
  });
  return [keep](void*) {};
}

/// Through a capsule: what has no table of C functions.
Array from_capsule(nb::handle object, std::string_view what) {
  Capsule tensor;
  if (!nb::try_cast(object, tensor))
    throw UserError(std::string(what) + " is no tensor on the CPU" + kind_of(object));
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < tensor.ndim(); ++i) {
    sizes.push_back(static_cast<int64_t>(tensor.shape(i)));
    strides.push_back(tensor.stride(i));
  }
  const nb::dlpack::dtype type = tensor.dtype();
  const DType dtype = dtype_of(type.code, type.bits, what);
  return Array::borrow(tensor.data(), dtype, sizes, strides, keeper(nb::cast(tensor)));
}

/// What a tensor over our memory holds: the array, and its sizes where DLPack points at them.
struct Owned {
  explicit Owned(const Array& from) : array(from), dims(from.sizes().begin(), from.sizes().end()) {
    dims.insert(dims.end(), from.strides().begin(), from.strides().end());
  }
  Array array;
  std::vector<int64_t> dims;
  dlpack::ManagedTensor managed{};
};

nb::object through_exchange(const Array& array) {
  Owned* owned = new Owned(array);
  const int32_t rank = static_cast<int32_t>(array.rank());
  owned->managed.version = {1, 0};
  owned->managed.manager = owned;
  owned->managed.deleter = [](dlpack::ManagedTensor* self) {
    delete static_cast<Owned*>(self->manager);
  };
  owned->managed.tensor = {
      array.raw(),        {dlpack::kCpu, 0},         rank, dlpack_of(array.dtype()),
      owned->dims.data(), owned->dims.data() + rank, 0};
  void* object = nullptr;
  if (g_exchange->to_object(&owned->managed, &object) != 0) nb::raise_python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

nb::object through_capsule(const Array& array) {
  std::vector<size_t> sizes(array.sizes().begin(), array.sizes().end());
  nb::capsule owner(new Array(array),
                    [](void* held) noexcept { delete static_cast<Array*>(held); });
  const dlpack::DataType type = dlpack_of(array.dtype());
  nb::ndarray<nb::pytorch> tensor(array.raw(), sizes.size(), sizes.data(), owner,
                                  array.strides().data(), {type.code, type.bits, type.lanes});
  return nb::cast(tensor);
}

}  // namespace

void use_exchange(nb::object type, nb::object capsule) {
  g_tensor_type = reinterpret_cast<PyTypeObject*>(type.release().ptr());
  const char* name = PyCapsule_GetName(capsule.ptr());
  void* table = PyCapsule_GetPointer(capsule.ptr(), name);
  if (table == nullptr) nb::raise_python_error();
  const dlpack::Exchange* exchange = static_cast<const dlpack::Exchange*>(table);
  if (exchange->header.version.major == 1) g_exchange = exchange;
}

Array view_of(nb::handle tensor, std::string_view what) {
  return has_exchange(tensor) ? borrow(tensor, what, {}) : from_capsule(tensor, what);
}

Array view_of(nb::handle tensor, size_t number) try {
  return view_of(tensor, std::string_view());
} catch (const UserError& error) {
  throw UserError("argument " + std::to_string(number) + error.what());
}

bool is_view_of(const Array& array, nb::handle tensor) {
  dlpack::Tensor view{};
  if (!has_exchange(tensor)) {
    const Array now = from_capsule(tensor.attr("detach")(), "a weight");
    return now.raw() == array.raw() && now.dtype() == array.dtype() &&
           std::ranges::equal(now.sizes(), array.sizes()) &&
           std::ranges::equal(now.strides(), array.strides());
  }
  if (g_exchange->view_object(tensor.ptr(), &view) != 0) {
    PyErr_Clear();
    return false;
  }
  const size_t rank = static_cast<size_t>(view.ndim);
  const dlpack::DataType type = dlpack_of(array.dtype());
  return static_cast<std::byte*>(view.data) + view.byte_offset == array.raw() &&
         view.dtype.code == type.code && view.dtype.bits == type.bits && rank == array.rank() &&
         std::equal(view.shape, view.shape + rank, array.sizes().begin()) &&
         std::equal(view.strides, view.strides + rank, array.strides().begin());
}

Array array_of(nb::handle tensor, std::string_view what) {
  return has_exchange(tensor) ? borrow(tensor, what, keeper(nb::borrow(tensor)))
                              : from_capsule(tensor, what);
}

runtime::ConstantValues constants_of(nb::dict tensors) {
  runtime::ConstantValues values;
  for (std::pair<nb::handle, nb::handle> entry : tensors) {
    const std::string name = nb::cast<std::string>(entry.first);
    values.insert_or_assign(name, array_of(entry.second, "constant '" + name + "'"));
  }
  return values;
}

runtime::Argument argument_of(nb::handle object, size_t number) {
  if (nb::isinstance<nb::bool_>(object)) return int64_t{nb::cast<bool>(object)};
  if (nb::isinstance<nb::int_>(object)) {
    int64_t integer = 0;
    if (!nb::try_cast(object, integer))
      throw UserError("argument " + std::to_string(number) + " does not fit into 64 bits");
    return integer;
  }
  if (nb::isinstance<nb::float_>(object)) return nb::cast<double>(object);
  return array_of(object, "argument " + std::to_string(number));
}

nb::object object_of(const runtime::Result& result) {
  if (const int64_t* integer = std::get_if<int64_t>(&result)) return nb::int_(*integer);
  if (const double* real = std::get_if<double>(&result)) return nb::float_(*real);
  const Array& array = std::get<Array>(result);
  return g_exchange != nullptr ? through_exchange(array) : through_capsule(array);
}

}  // namespace tandem::python
