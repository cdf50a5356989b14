// The Python module: tensors cross without copies, errors as exceptions. No compiler logic here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "driver/cache.h"
#include "driver/face.h"
#include "python/call_scope.h"
#include "python/function.h"
#include "python/graph_view.h"
#include "python/tensors.h"

namespace nb = nanobind;

namespace tandem {
namespace {

using python::array_of;
using python::object_of;
using runtime::Argument;
using runtime::Result;

nb::list run(driver::Executable& executable, nb::list arguments) {
  std::vector<Argument> values;
  for (nb::handle object : arguments) values.push_back(python::argument_of(object, values.size()));
  std::vector<Result> results;
  {
    const python::CallScope scope;
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
  options.gradients = driver::gradients_named(gradients);
  options.interpret = interpret;
  options.always_parallel = always_parallel;
  options.report = report;
  options.level = level;
  options.freeze = freeze;
  const python::CallScope scope;
  return driver::compile_text(text, options);
}

void bind_constants(driver::Executable& executable, nb::dict arrays) {
  const runtime::ConstantValues values = python::constants_of(arrays);
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
  // Eager raises RuntimeError for most of these, and IndexError for some of the last kind.
  const nb::object bases =
      nb::make_tuple(nb::handle(PyExc_ValueError), nb::handle(PyExc_RuntimeError));
  nb::handle user_error = nb::exception<UserError>(m, "UserError", bases);
  nb::exception<Unsupported>(m, "Unsupported", user_error);
  const nb::object of_data =
      nb::make_tuple(user_error, nb::handle(PyExc_IndexError), nb::handle(PyExc_ZeroDivisionError),
                     nb::handle(PyExc_OverflowError));
  nb::exception<DataError>(m, "DataError", of_data);
  nb::exception<InternalError>(m, "InternalError", nb::handle(PyExc_RuntimeError));
}

void bind_ops(nb::module_& m) {
  using driver::OpInfo;
  nb::class_<OpInfo>(m, "Op")
      .def_ro("name", &OpInfo::name)
      .def_ro("schema", &OpInfo::schema)
      .def_ro("samples", &OpInfo::samples)
      .def_ro("sample_dtypes", &OpInfo::sample_dtypes)
      .def_ro("route", &OpInfo::route)
      .def_ro("differentiable", &OpInfo::differentiable)
      .def_ro("no_grad", &OpInfo::no_grad)
      .def_ro("random", &OpInfo::random)
      .def_ro("is_view", &OpInfo::is_view)
      .def_ro("mutates", &OpInfo::mutates)
      .def_ro("tells_size", &OpInfo::tells_size)
      .def_ro("autocast", &OpInfo::autocast)
      .def_ro("variants", &OpInfo::variants)
      .def("__repr__", [](const OpInfo& op) { return "<tandem op " + op.schema + ">"; });
  m.def("ops", &driver::vocabulary);
}

nb::tuple solve_size(const std::string& name, int64_t low, int64_t high,
                     const std::vector<std::string>& equations) {
  const driver::SizeInfo found = driver::solve_size(name, low, high, equations);
  return nb::make_tuple(found.low, found.high, found.divisor);
}

}  // namespace
}  // namespace tandem

NB_MODULE(_tandem, m) {
  using tandem::driver::Executable;
  nanobind::set_leak_warnings(false);  // torch's caches keep callables to the end
  tandem::bind_errors(m);
  tandem::bind_ops(m);
  tandem::python::bind_graph(m);
  tandem::python::bind_function(m);
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
        nb::arg("level") = -1, nb::arg("freeze") = false);
  m.def(
      "export_text",
      [](const std::string& text, std::optional<size_t> loss, bool joint) {
        const tandem::python::CallScope scope;
        return tandem::driver::export_text(text, {loss, joint});
      },
      nb::arg("text"), nb::arg("loss").none() = nb::none(), nb::arg("joint") = false);
  m.def("solve_size", &tandem::solve_size, nb::arg("name"), nb::arg("low"), nb::arg("high"),
        nb::arg("equations"));
  m.def("set_threads", &tandem::driver::set_threads, nb::arg("count"));
  m.def("threads", &tandem::driver::threads);
  m.def("memory_use", [] {
    const tandem::driver::AllocatorCounters counters = tandem::driver::memory_use();
    nb::dict use;
    use["live_bytes"] = counters.live_bytes;
    use["cached_bytes"] = counters.cached_bytes;
    use["peak_live_bytes"] = counters.peak_live_bytes;
    return use;
  });
  m.def("reset_peak_memory", &tandem::driver::reset_peak_memory);
  m.def("empty_cache", &tandem::driver::release_cached_memory);
  m.def("cache_command", &tandem::driver::cache_command, nb::arg("words"));
  m.def("use_torch_threads", &tandem::python::use_torch_threads, nb::arg("callable"));
  m.def("watch_signals", &tandem::python::watch_signals, nb::arg("thread"));
}
