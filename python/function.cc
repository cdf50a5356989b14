// GraphFunction for Python: what an autograd.Function calls. Arguments are borrowed for the length
// of the call; what forward saved for backward lives in a handle.
#include "python/function.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "driver/graph_function.h"
#include "python/call_scope.h"
#include "python/frozen.h"
#include "python/graph_view.h"
#include "python/tensors.h"

namespace tandem::python {
namespace {

using driver::FunctionOptions;
using driver::GraphFunction;
using driver::Saved;
using runtime::Argument;
using runtime::Array;
using runtime::Overlap;
using runtime::Result;

Argument borrowed_argument(nb::handle object, size_t number) {
  PyObject* raw = object.ptr();
  if (PyLong_Check(raw) || PyFloat_Check(raw)) return argument_of(object, number);
  return view_of(object, number);
}

nb::list objects_of(const std::vector<Result>& results) {
  nb::list objects;
  for (const Result& result : results) objects.append(object_of(result));
  return objects;
}

template <typename Sequence>
std::vector<Argument> borrowed_arguments(const Sequence& objects) {
  std::vector<Argument> values;
  values.reserve(nb::len(nb::handle(objects)));
  for (nb::handle object : objects) values.push_back(borrowed_argument(object, values.size()));
  return values;
}

GraphFunction::Forward run_forward(GraphFunction& function, const std::vector<Argument>& values,
                                   std::shared_ptr<runtime::ConstantSet> constants = nullptr) {
  const CallScope scope(function.threads());
  return function.forward(values, std::move(constants));
}

/// (results, handle or None).
nb::tuple forward(GraphFunction& function, nb::args arguments) {
  GraphFunction::Forward made = run_forward(function, borrowed_arguments(arguments));
  nb::object handle = made.saved ? nb::cast(std::move(made.saved)) : nb::none();
  return nb::make_tuple(objects_of(made.results), handle);
}

/// Results alone, of a function without a backward.
nb::list call(GraphFunction& function, nb::args arguments) {
  return objects_of(run_forward(function, borrowed_arguments(arguments)).results);
}

bool found(Overlap& overlap, nb::sequence arguments) {
  return overlap.find(borrowed_arguments(arguments)).has_value();
}

std::vector<std::vector<size_t>> groups(Overlap& overlap, nb::sequence arguments) {
  return overlap.groups(borrowed_arguments(arguments));
}

/// As tuples: (element type, sizes, strides, whether it requires grad, members), a member (name of
/// the input, strides, offset).
driver::SharedMemory shared_memory_of(nb::tuple told) {
  driver::SharedMemory memory;
  const std::string dtype = nb::cast<std::string>(told[0]);
  const std::optional<DType> known = dtype_from_name(dtype);
  if (!known) throw UserError("'" + dtype + "' is no element type");
  memory.dtype = *known;
  memory.sizes = nb::cast<std::vector<int64_t>>(told[1]);
  memory.strides = nb::cast<std::vector<int64_t>>(told[2]);
  memory.requires_grad = nb::cast<bool>(told[3]);
  for (nb::handle each : nb::cast<nb::list>(told[4])) {
    const nb::tuple member = nb::cast<nb::tuple>(each);
    memory.members.push_back({nb::cast<std::string>(member[0]),
                              nb::cast<std::vector<int64_t>>(member[1]),
                              nb::cast<int64_t>(member[2])});
  }
  return memory;
}

std::unique_ptr<GraphFunction> within(const GraphFunction& function, nb::list memories,
                                      const std::map<std::string, int64_t>& sizes) {
  std::vector<driver::SharedMemory> told;
  for (nb::handle memory : memories) told.push_back(shared_memory_of(nb::cast<nb::tuple>(memory)));
  const CallScope scope(function.threads());
  return function.within(told, sizes);
}

/// Results alone, of a function without a backward; None, and nothing has run, where something that
/// the function writes shares memory with another argument. `constants`: null where there are none.
nb::object run(GraphFunction& function, nb::sequence arguments, Overlap& overlap,
               const Constants* constants) {
  const std::vector<Argument> values = borrowed_arguments(arguments);
  if (overlap.find(values)) return nb::none();
  std::shared_ptr<runtime::ConstantSet> set = constants == nullptr ? nullptr : constants->set;
  return objects_of(run_forward(function, values, std::move(set)).results);
}

std::vector<Array> arrays_of(nb::sequence tensors, std::string_view what) {
  std::vector<Array> arrays;
  for (nb::handle tensor : tensors) arrays.push_back(view_of(tensor, what));
  return arrays;
}

/// Gradients of the inputs that have one, in order. The handle lives on only if `keep`.
nb::list backward(GraphFunction& function, Saved& handle, nb::sequence borrowed,
                  nb::sequence tangents, bool keep, nb::sequence later) {
  const std::vector<Array> kept = arrays_of(borrowed, "a saved tensor");
  const std::vector<Array> given = arrays_of(tangents, "a tangent");
  const std::vector<Array> written = arrays_of(later, "a tensor that backward writes");
  // After the tangents are known to be good; a copy, as another thread may release the handle.
  Saved saved = keep ? handle : handle.take();
  std::vector<Result> gradients;
  {
    const CallScope scope(function.threads());
    gradients = function.backward(std::move(saved), kept, given, written);
  }
  return objects_of(gradients);
}

GraphFunction& differentiable_backward(GraphFunction& function) {
  const CallScope scope(function.threads());
  return function.differentiable_backward();
}

/// What has to be handed to backward: ("input" | "output", number).
nb::list borrowed_places(const GraphFunction& function) {
  using Kind = driver::SavedPlace::Kind;
  nb::list places;
  for (const driver::SavedPlace& place : function.saved_places())
    if (place.kind != Kind::own)
      places.append(nb::make_tuple(place.kind == Kind::input ? "input" : "output", place.number));
  return places;
}

/// (input, has a tangent).
nb::list mutations(const GraphFunction& function) {
  nb::list list;
  for (const driver::Mutation& mutation : function.mutations())
    list.append(nb::make_tuple(mutation.input, mutation.has_tangent));
  return list;
}

/// (result, input).
nb::list handed_on(const GraphFunction& function) {
  nb::list list;
  for (const driver::HandedOn& handed : function.handed_on())
    list.append(nb::make_tuple(handed.result, handed.input));
  return list;
}

std::vector<bool> flags(const std::vector<char>& values) { return {values.begin(), values.end()}; }

/// As pairs: the product, and why it stays in floats.
nb::list quantized_products(const GraphFunction& function) {
  nb::list pairs;
  for (const driver::QuantizedProduct& each : function.products())
    pairs.append(nb::make_tuple(each.product, each.reason));
  return pairs;
}

nb::dict times(GraphFunction& function) {
  nb::dict times;
  double schedule = 0;
  double codegen = 0;
  double load = 0;
  for (driver::Executable* part :
       {&function.forward_executable(), function.backward_executable()}) {
    if (part == nullptr) continue;
    schedule += part->times.schedule;
    codegen += part->times.codegen;
    load += part->times.load;
  }
  times["passes"] = function.pass_time();
  times["schedule"] = schedule;
  times["codegen"] = codegen;
  times["load"] = load;
  return times;
}

nb::dict counts_of(driver::Executable* part) {
  nb::dict counts;
  if (part == nullptr) return counts;
  const abi::Program& program = part->program();
  size_t library = 0;
  size_t launches = 0;
  size_t beside = 0;  // in one with the launch before
  for (const abi::Instruction& instruction : program.instructions) {
    library += std::holds_alternative<abi::LibraryCall>(instruction);
    const abi::Launch* launch = std::get_if<abi::Launch>(&instruction);
    launches += launch != nullptr && !launch->beside;
    beside += launch != nullptr && launch->beside;
  }
  counts["kernels"] = program.kernels.size();
  counts["launches"] = launches;
  counts["kernel_calls"] = launches + beside;
  counts["library_calls"] = library;
  counts["arena_bytes"] = part->loaded().arena_bytes();
  return counts;
}

/// Bytes of a step, or None where sizes are not known.
nb::object memory_of(const GraphFunction& function) {
  const std::optional<driver::StepMemory> memory = function.memory();
  if (!memory) return nb::none();
  nb::dict bytes;
  bytes["arguments"] = memory->arguments;
  bytes["saved"] = memory->saved;
  bytes["forward"] = memory->forward;
  bytes["backward"] = memory->backward;
  bytes["step"] = memory->most();
  return bytes;
}

/// What a page tells of the function's steps; those so far are measured.
driver::StepReport step_report(const GraphFunction& function) {
  const CallScope scope(function.threads());
  return function.step_report();
}

std::string step_page(const std::vector<driver::StepReport>& reports) {
  const CallScope scope;
  return driver::step_page(reports);
}

/// `callable(arguments, sizes, results)` as a function of the runtime. The tensors share memory
/// with the program's buffers and must not outlive the call.
runtime::HostFunction host_function(nb::object callable) {
  std::shared_ptr<nb::object> held(new nb::object(std::move(callable)), [](nb::object* object) {
    nb::gil_scoped_acquire gil;
    delete object;
  });
  return [held](std::span<const Array> arguments, std::span<const int64_t> sizes,
                std::span<const Array> results) {
    nb::gil_scoped_acquire gil;
    nb::list given;
    nb::list numbers;
    nb::list wanted;
    for (const Array& array : arguments) given.append(object_of(array));
    for (int64_t size : sizes) numbers.append(size);
    for (const Array& array : results) wanted.append(object_of(array));
    (*held)(given, numbers, wanted);
  };
}

std::unique_ptr<GraphFunction> compile_function(
    const std::string& text, bool differentiate, const std::string& memory_budget,
    const std::string& solver, const std::string& cost, const std::string& save_activations,
    int64_t save_activations_from, const std::vector<std::string>& save_activations_except,
    bool freeze, bool report, bool tune, int threads, nb::list host_functions,
    nb::list joint_passes, nb::object partition, const std::vector<std::string>& partition_knobs,
    const driver::Hints& hints) {
  FunctionOptions options;
  options.joint_passes = caller_passes(joint_passes);
  options.differentiate = differentiate;
  options.partition = driver::partition_named(memory_budget);
  options.budget = driver::budget_named(memory_budget, solver, cost);
  options.budget.knobs = passes::knobs_named(partition_knobs);
  if (!partition.is_none()) {
    options.partition = driver::Partition::caller;
    options.caller_partition = caller_partition(partition);
  }
  options.storage =
      passes::storage_named(save_activations, save_activations_from, save_activations_except);
  options.freeze = freeze;
  options.report = report;
  options.tune = tune;
  options.threads = threads;
  options.hints = hints;
  options.caller_checks_overlap = true;  // function.py, with weights and before views are copied
  for (nb::handle callable : host_functions)
    options.host_functions.push_back(host_function(nb::borrow(callable)));
  const CallScope scope(threads);
  return std::make_unique<GraphFunction>(text, options);
}

/// What the program takes for granted of the hints: (sizes, floats, pairs of equal symbols), names.
nb::tuple assumed(const GraphFunction& function) {
  const ir::Bindings& bindings = function.assumed();
  nb::list sizes;
  nb::list floats;
  nb::list equal;
  for (const auto& [name, size] : bindings.sizes) sizes.append(name);
  for (const auto& [name, number] : bindings.floats) floats.append(name);
  for (const auto& [name, other] : bindings.equal) equal.append(nb::make_tuple(name, other));
  return nb::make_tuple(sizes, floats, equal);
}

/// As lists: (steps, names of what is returned); a step is (operator, arguments, results, whether
/// under no_grad).
nb::tuple replay(const GraphFunction& function) {
  nb::list steps;
  for (const driver::ReplayStep& step : function.replay().steps)
    steps.append(nb::make_tuple(step.op, step.arguments, step.results, step.no_grad));
  return nb::make_tuple(steps, function.replay().returned);
}

}  // namespace

void bind_function(nb::module_& m) {
  nb::class_<Saved>(m, "Saved")
      .def_prop_ro("bytes", &Saved::bytes)
      .def_ro("is_alive", &Saved::is_alive)
      .def("release", &Saved::release);
  nb::class_<Overlap>(m, "Overlap")
      .def(nb::init<const std::vector<size_t>&>(), nb::arg("written"))
      .def("found", &found, nb::arg("arguments"))
      .def("groups", &groups, nb::arg("arguments"));
  nb::class_<Constants>(m, "Constants");
  nb::class_<FrozenSets>(m, "FrozenSets")
      .def(nb::init<nb::object, std::vector<std::string>, nb::object, bool>(), nb::arg("function"),
           nb::arg("names"), nb::arg("version"), nb::arg("is_checked"))
      .def_prop_ro_static("most", [](nb::handle) { return FrozenSets::kMostSets; })
      .def("find", &FrozenSets::find, nb::arg("tensors"))
      .def_prop_ro("counts", &FrozenSets::counts);
  nb::class_<driver::StepReport>(m, "StepReport");
  nb::class_<driver::Hints>(m, "Hints")
      .def(nb::init<>())
      .def_rw("sizes", &driver::Hints::sizes)
      .def_rw("floats", &driver::Hints::floats)
      .def_rw("equations", &driver::Hints::equations);
  m.def("step_page", &step_page, nb::arg("reports"));
  nb::class_<GraphFunction>(m, "GraphFunction", nb::is_weak_referenceable())
      .def("forward", &forward)
      .def("__call__", &call)
      .def("run", &run, nb::arg("arguments"), nb::arg("overlap"),
           nb::arg("constants").none() = nb::none())
      .def("backward", &backward, nb::arg("handle"), nb::arg("borrowed"), nb::arg("tangents"),
           nb::arg("keep"), nb::arg("later") = nb::make_tuple())
      .def("differentiable_backward", &differentiable_backward, nb::rv_policy::reference_internal)
      .def("within", &within, nb::arg("memories"), nb::arg("sizes"))
      .def_prop_ro("reads", [](const GraphFunction& f) { return flags(f.reads()); })
      .def_prop_ro("names", &GraphFunction::names)
      .def_prop_ro("tangents", &GraphFunction::tangents)
      .def_prop_ro("gradient_inputs", &GraphFunction::gradient_inputs)
      .def_prop_ro("takes_seed", &GraphFunction::takes_seed)
      .def_prop_ro("has_backward", &GraphFunction::has_backward)
      .def_prop_ro("has_tangent", [](const GraphFunction& f) { return flags(f.has_tangent()); })
      .def_prop_ro("has_gradient", [](const GraphFunction& f) { return flags(f.has_gradient()); })
      .def_prop_ro("mutations", &mutations)
      .def_prop_ro("later", &GraphFunction::later)
      .def_prop_ro("handed_on", &handed_on)
      .def_prop_ro("replay", &replay)
      .def_prop_ro("signature", &GraphFunction::signature)
      .def_prop_ro("borrowed_places", &borrowed_places)
      .def_prop_ro("constants", &GraphFunction::constants)
      .def_prop_ro("quantized_products", &quantized_products)
      .def_prop_ro("times", &times)
      .def_prop_ro("is_from_cache", &GraphFunction::is_from_cache)
      .def_prop_ro("cache_state", &GraphFunction::cache_state)
      .def_prop_ro("forward_counts",
                   [](GraphFunction& f) { return counts_of(&f.forward_executable()); })
      .def_prop_ro("backward_counts",
                   [](GraphFunction& f) { return counts_of(f.backward_executable()); })
      .def_prop_ro("assumed", &assumed)
      .def_prop_ro("memory", &memory_of)
      .def_prop_ro("cut", &GraphFunction::cut)
      .def("step_report", &step_report)
      .def_prop_ro("forward_report", [](GraphFunction& f) { return f.forward_executable().report; })
      .def_prop_ro("backward_report", [](GraphFunction& f) {
        return f.backward_executable() == nullptr ? std::string() : f.backward_executable()->report;
      });
  m.def("compile_function", &compile_function, nb::arg("text"), nb::arg("differentiate") = false,
        nb::arg("memory_budget") = "default", nb::arg("memory_budget_solver") = "dp",
        nb::arg("memory_budget_cost") = "time", nb::arg("save_activations") = "none",
        nb::arg("save_activations_from") = 65536,
        nb::arg("save_activations_except") = std::vector<std::string>(), nb::arg("freeze") = false,
        nb::arg("report") = false, nb::arg("tune") = false, nb::arg("threads") = 0,
        nb::arg("host_functions") = nb::list(), nb::arg("joint_passes") = nb::list(),
        nb::arg("partition") = nb::none(), nb::arg("partition_knobs") = std::vector<std::string>(),
        nb::arg("hints") = driver::Hints());
  m.def("use_exchange", &use_exchange, nb::arg("type"), nb::arg("capsule"));
}

}  // namespace tandem::python
