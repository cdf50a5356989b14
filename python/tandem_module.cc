// The Python module: tensors cross as DLPack without copies, errors as exceptions. No compiler
// logic here. A result keeps its storage alive through the capsule that owns it; an argument that a
// result is a view of stays alive through the array that borrowed it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "driver/face.h"

namespace nb = nanobind;

namespace tandem {
namespace {

using runtime::Argument;
using runtime::Array;
using runtime::Result;
using Tensor = nb::ndarray<nb::device::cpu>;

struct Numbered {
  DType dtype;
  nb::dlpack::dtype dlpack;
};
nb::dlpack::dtype dlpack(nb::dlpack::dtype_code code, uint8_t bits) {
  return {static_cast<uint8_t>(code), bits, 1};
}

const std::array<Numbered, kDTypeCount>& dtypes() {
  using Code = nb::dlpack::dtype_code;
  static const std::array<Numbered, kDTypeCount> kTable{{
      {DType::f32, dlpack(Code::Float, 32)},
      {DType::f64, dlpack(Code::Float, 64)},
      {DType::bf16, dlpack(Code::Bfloat, 16)},
      {DType::f16, dlpack(Code::Float, 16)},
      {DType::i8, dlpack(Code::Int, 8)},
      {DType::u8, dlpack(Code::UInt, 8)},
      {DType::i16, dlpack(Code::Int, 16)},
      {DType::i32, dlpack(Code::Int, 32)},
      {DType::i64, dlpack(Code::Int, 64)},
      {DType::boolean, dlpack(Code::Bool, 8)},
  }};
  return kTable;
}

DType dtype_of(const Tensor& tensor) {
  for (const Numbered& entry : dtypes())
    if (entry.dlpack == tensor.dtype()) return entry.dtype;
  throw UserError("a tensor of this element type is not supported");
}

nb::dlpack::dtype dlpack_of(DType dtype) {
  for (const Numbered& entry : dtypes())
    if (entry.dtype == dtype) return entry.dlpack;
  throw UserError("no DLPack type for " + std::string(name_of(dtype)));
}

/// Borrows the memory; the tensor lives as long as the array does.
Array borrow(Tensor tensor) {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < tensor.ndim(); ++i) {
    sizes.push_back(static_cast<int64_t>(tensor.shape(i)));
    strides.push_back(tensor.stride(i));
  }
  void* data = tensor.data();
  DType dtype = dtype_of(tensor);
  // Dropped by whichever thread lets go last.
  std::shared_ptr<Tensor> keep(new Tensor(std::move(tensor)), [](Tensor* held) {
    nb::gil_scoped_acquire gil;
    delete held;
  });
  return Array::borrow(data, dtype, sizes, strides, [keep](void*) {});
}

Argument argument_of(nb::handle object, size_t number) {
  if (nb::isinstance<nb::bool_>(object)) return int64_t{nb::cast<bool>(object)};
  if (nb::isinstance<nb::int_>(object)) {
    int64_t integer = 0;
    if (!nb::try_cast(object, integer))
      throw UserError("argument " + std::to_string(number) + " does not fit into 64 bits");
    return integer;
  }
  if (nb::isinstance<nb::float_>(object)) return nb::cast<double>(object);
  Tensor tensor;
  if (!nb::try_cast(object, tensor))
    throw UserError("argument " + std::to_string(number) + " is no CPU tensor, int or float");
  return borrow(std::move(tensor));
}

nb::object object_of(const Result& result) {
  if (const int64_t* integer = std::get_if<int64_t>(&result)) return nb::int_(*integer);
  if (const double* real = std::get_if<double>(&result)) return nb::float_(*real);
  const Array& array = std::get<Array>(result);
  std::vector<size_t> sizes(array.sizes().begin(), array.sizes().end());
  nb::capsule owner(new Array(array),
                    [](void* held) noexcept { delete static_cast<Array*>(held); });
  nb::ndarray<nb::pytorch> tensor(array.raw(), sizes.size(), sizes.data(), owner,
                                  array.strides().data(), dlpack_of(array.dtype()));
  return nb::cast(tensor);
}

nb::list run(driver::Executable& executable, nb::list arguments) {
  std::vector<Argument> values;
  for (nb::handle object : arguments) values.push_back(argument_of(object, values.size()));
  std::vector<Result> results;
  {
    nb::gil_scoped_release release;
    results = executable.run(values);
  }
  nb::list objects;
  for (const Result& result : results) objects.append(object_of(result));
  return objects;
}

std::unique_ptr<driver::Executable> compile_text(const std::string& text,
                                                 const std::string& gradients, bool interpret,
                                                 bool always_parallel, bool report, int level,
                                                 bool freeze) {
  driver::Options options;
  options.gradients = gradients;
  options.interpret = interpret;
  options.always_parallel = always_parallel;
  options.report = report;
  options.level = level;
  options.freeze = freeze;
  return driver::compile_text(text, options);
}

void bind_constants(driver::Executable& executable, nb::dict arrays) {
  runtime::ConstantValues values;
  for (std::pair<nb::handle, nb::handle> entry : arrays) {
    const std::string name = nb::cast<std::string>(entry.first);
    Tensor tensor;
    if (!nb::try_cast(entry.second, tensor))
      throw UserError("constant '" + name + "' is no CPU tensor");
    values.insert_or_assign(name, borrow(std::move(tensor)));
  }
  nb::gil_scoped_release release;
  executable.bind_constants(values);
}

std::vector<std::string> constant_names(driver::Executable& executable) {
  return executable.loaded().constant_names();
}

/// What a call runs, what setup runs, and what is kept between calls.
nb::dict counts_of(driver::Executable& executable) {
  const abi::Program& program = executable.program();
  nb::dict counts;
  counts["instructions"] = program.instructions.size();
  counts["setup_instructions"] =
      program.setup == nullptr ? size_t{0} : program.setup->instructions.size();
  counts["setup_runs"] = executable.loaded().setup_runs();
  counts["constant_bytes"] = executable.loaded().constant_bytes();
  counts["packed_bytes"] = executable.loaded().packed_bytes();
  return counts;
}

std::vector<std::string> output_names(const driver::Executable& executable) {
  std::vector<std::string> names;
  for (const abi::Output& output : executable.program().outputs) names.push_back(output.name);
  return names;
}

std::vector<std::string> input_names(const driver::Executable& executable) {
  std::vector<std::string> names;
  for (const abi::Input& input : executable.program().inputs) names.push_back(input.name);
  return names;
}

nb::dict times_of(const driver::Executable& executable) {
  nb::dict times;
  times["passes"] = executable.times.passes;
  times["schedule"] = executable.times.schedule;
  times["codegen"] = executable.times.codegen;
  return times;
}

void bind_errors(nb::module_& m) {
  nb::handle user_error = nb::exception<UserError>(m, "UserError", PyExc_ValueError);
  nb::exception<Unsupported>(m, "Unsupported", user_error);
}

void bind_ops(nb::module_& m) {
  using driver::OpInfo;
  nb::class_<OpInfo>(m, "Op")
      .def_ro("name", &OpInfo::name)
      .def_ro("schema", &OpInfo::schema)
      .def_ro("samples", &OpInfo::samples)
      .def_ro("sample_dtypes", &OpInfo::sample_dtypes)
      .def_ro("differentiable", &OpInfo::differentiable)
      .def_ro("no_grad", &OpInfo::no_grad)
      .def_ro("random", &OpInfo::random)
      .def_ro("is_view", &OpInfo::is_view)
      .def_ro("mutates", &OpInfo::mutates)
      .def_ro("variants", &OpInfo::variants)
      .def("__repr__", [](const OpInfo& op) { return "<tandem op " + op.schema + ">"; });
  m.def("ops", &driver::vocabulary);
}

}  // namespace
}  // namespace tandem

NB_MODULE(_tandem, m) {
  using tandem::driver::Executable;
  tandem::bind_errors(m);
  tandem::bind_ops(m);
  nb::class_<Executable>(m, "Executable")
      .def("run", &tandem::run, nb::arg("arguments"))
      .def("bind_constants", &tandem::bind_constants, nb::arg("values"))
      .def_prop_ro("constants", &tandem::constant_names)
      .def_prop_ro("counts", &tandem::counts_of)
      .def_prop_ro("inputs", &tandem::input_names)
      .def_prop_ro("outputs", &tandem::output_names)
      .def_prop_ro("times", &tandem::times_of)
      .def_ro("report", &Executable::report);
  m.def("compile_text", &tandem::compile_text, nb::arg("text"), nb::arg("gradients") = "",
        nb::arg("interpret") = false, nb::arg("always_parallel") = false, nb::arg("report") = false,
        nb::arg("level") = -1, nb::arg("freeze") = false, nb::call_guard<nb::gil_scoped_release>());
  m.def("set_threads", &tandem::driver::set_threads, nb::arg("count"));
  m.def("threads", &tandem::driver::threads);
}
