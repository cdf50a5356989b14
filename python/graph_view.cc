// Problem: a pass in Python holds nodes that its own edits may have removed, and may keep them when
// it is over. Approach: each handle knows the pass that it came from and asks it before it reads;
// the pass forgets the graph at its end, and remembers what was erased.
#include "python/graph_view.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <set>

#include "driver/face.h"
#include "driver/graph_edit.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;

struct Pass {
  ir::Graph* graph = nullptr;          // null when it is over
  std::set<const ir::Node*> erased{};  // asked for only
};
using PassPointer = std::shared_ptr<Pass>;

ir::Graph& graph_of(const PassPointer& pass) {
  if (pass->graph == nullptr) throw UserError("the pass is over: its graph is compiled");
  return *pass->graph;
}

struct GraphView {
  PassPointer pass;
};

struct NodeView {
  PassPointer pass;
  ir::Node* node = nullptr;
  bool operator==(const NodeView& other) const { return node == other.node; }
  ir::Node& get() const {
    graph_of(pass);
    if (pass->erased.contains(node)) throw UserError("the node was erased");
    return *node;
  }
};

struct ValueView {
  PassPointer pass;
  ir::Value* value = nullptr;
  bool operator==(const ValueView& other) const { return value == other.value; }
  ir::Value& get() const {
    graph_of(pass);
    if (value->node != nullptr && pass->erased.contains(value->node))
      throw UserError("the node of the value was erased");
    return *value;
  }
};

nb::object object_of_value(const PassPointer& pass, ir::Value* value) {
  return value == nullptr ? nb::none() : nb::cast(ValueView{pass, value});
}

nb::object object_of_size(sym::Expr size) {
  const std::optional<int64_t> number = size.constant();
  return number ? nb::cast(*number) : nb::cast(sym::to_string(size));
}

template <class T, class F>
nb::list list_of(const std::vector<T>& values, F f) {
  nb::list list;
  for (const T& value : values) list.append(f(value));
  return list;
}

nb::object object_of_arg(const PassPointer& pass, const ir::Arg& arg) {
  const auto value = [&](ir::Value* each) { return object_of_value(pass, each); };
  if (const auto* one = std::get_if<ir::Value*>(&arg)) return value(*one);
  if (const auto* many = std::get_if<ir::Values>(&arg)) return list_of(*many, value);
  if (const auto* size = std::get_if<sym::Expr>(&arg)) return object_of_size(*size);
  if (const auto* sizes = std::get_if<ir::Ints>(&arg)) return list_of(*sizes, object_of_size);
  if (const auto* number = std::get_if<double>(&arg)) return nb::cast(*number);
  if (const auto* numbers = std::get_if<ir::Floats>(&arg)) return nb::cast(*numbers);
  if (const auto* flag = std::get_if<bool>(&arg)) return nb::cast(*flag);
  if (const auto* text = std::get_if<std::string>(&arg)) return nb::cast(*text);
  if (const auto* dtype = std::get_if<DType>(&arg)) return nb::cast(std::string(name_of(*dtype)));
  return nb::none();
}

ir::Value* value_of(nb::handle object, const PassPointer& pass) {
  if (object.is_none()) return nullptr;
  const ValueView view = nb::cast<ValueView>(object);
  if (view.pass != pass) throw UserError("the value is of another graph");
  return &view.get();
}

ir::Arg arg_of_list(nb::sequence list, const PassPointer& pass) {
  ir::Values values;
  ir::Ints sizes;
  ir::Floats numbers;
  for (nb::handle each : list) {
    if (nb::isinstance<ValueView>(each) || each.is_none()) values.push_back(value_of(each, pass));
    if (PyFloat_Check(each.ptr())) numbers.push_back(nb::cast<double>(each));
    if (PyLong_Check(each.ptr())) sizes.emplace_back(nb::cast<int64_t>(each));
    if (nb::isinstance<nb::str>(each))
      sizes.push_back(driver::size_named(graph_of(pass), nb::cast<std::string>(each)));
  }
  const size_t all = nb::len(list);
  if (values.size() == all && all > 0) return values;
  if (numbers.size() == all && all > 0) return numbers;
  if (sizes.size() == all) return sizes;
  throw UserError("a list of an argument holds values, or ints and sizes as text, or floats");
}

ir::Arg arg_of(nb::handle object, const PassPointer& pass) {
  PyObject* raw = object.ptr();
  if (object.is_none()) return ir::None{};
  if (nb::isinstance<ValueView>(object)) return value_of(object, pass);
  if (PyBool_Check(raw)) return nb::cast<bool>(object);
  if (PyLong_Check(raw)) return sym::Expr(nb::cast<int64_t>(object));
  if (PyFloat_Check(raw)) return nb::cast<double>(object);
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object))
    return arg_of_list(nb::cast<nb::sequence>(object), pass);
  throw UserError("an argument of an operator is a value, number, text, None or a list of these");
}

nb::list nodes_of(const GraphView& view) {
  nb::list nodes;
  for (ir::Node* node = graph_of(view.pass).first(); node != nullptr; node = node->next)
    nodes.append(NodeView{view.pass, node});
  return nodes;
}

nb::list inputs_of(const GraphView& view) {
  return list_of(graph_of(view.pass).inputs(),
                 [&](ir::Value* input) { return ValueView{view.pass, input}; });
}

/// (kind, name, value or None)
nb::list outputs_of(const GraphView& view) {
  return list_of(graph_of(view.pass).outputs(), [&](const ir::Output& output) {
    return nb::make_tuple(std::string(name_of(output.kind)), output.name,
                          object_of_value(view.pass, output.value));
  });
}

NodeView insert(const GraphView& view, const std::string& op, nb::args args, nb::kwargs keywords) {
  ir::Node* before = nullptr;
  driver::EditedCall call;
  for (nb::handle each : args) call.positional.push_back(arg_of(each, view.pass));
  for (auto [name, value] : keywords) {
    if (nb::cast<std::string>(name) == "before")
      before = value.is_none() ? nullptr : &nb::cast<NodeView>(value).get();
    else
      call.keywords.emplace_back(nb::cast<std::string>(name), arg_of(value, view.pass));
  }
  return {view.pass, driver::insert_call(graph_of(view.pass), op, std::move(call), before)};
}

void erase(const GraphView& view, const NodeView& node) {
  driver::erase_node(graph_of(view.pass), &node.get());
  view.pass->erased.insert(node.node);
}

nb::list operands_of(const NodeView& view) {
  nb::list operands;
  ir::for_each_operand(view.get().args,
                       [&](ir::Value* value) { operands.append(ValueView{view.pass, value}); });
  return operands;
}

/// By name, as the operator's schema has them, defaults included.
nb::dict arguments_of(const NodeView& view) {
  const ir::Node& node = view.get();
  nb::dict arguments;
  for (size_t i = 0; i < node.args.size(); ++i)
    arguments[node.op->schema.params[i].name.c_str()] = object_of_arg(view.pass, node.args[i]);
  return arguments;
}

/// Each once, in the order of first use.
nb::list readers_of(const ValueView& view) {
  std::vector<const ir::Node*> seen;
  nb::list readers;
  for (const ir::Use& use : view.get().uses) {
    if (use.node == nullptr || std::ranges::find(seen, use.node) != seen.end()) continue;
    seen.push_back(use.node);
    readers.append(NodeView{view.pass, use.node});
  }
  return readers;
}

void bind_node(nb::module_& m) {
  nb::class_<NodeView>(m, "Node")
      .def_prop_ro("op", [](const NodeView& v) { return v.get().op->schema.dotted_name(); })
      .def_prop_ro("operands", &operands_of)
      .def_prop_ro("arguments", &arguments_of)
      .def_prop_ro("results",
                   [](const NodeView& v) {
                     return list_of(v.get().results,
                                    [&](ir::Value* each) { return ValueView{v.pass, each}; });
                   })
      .def_prop_ro("is_backward", [](const NodeView& v) { return v.get().backward; })
      .def_prop_ro("place", [](const NodeView& v) { return v.get().origin.place; })
      .def("__eq__",
           [](const NodeView& v, nb::object other) {
             return nb::isinstance<NodeView>(other) && v == nb::cast<NodeView>(other);
           })
      .def("__hash__", [](const NodeView& v) { return reinterpret_cast<intptr_t>(v.node); })
      .def("__repr__", [](const NodeView& v) { return ir::to_string(v.get()); });
}

void bind_value(nb::module_& m) {
  nb::class_<ValueView>(m, "Value")
      .def_prop_ro("name", [](const ValueView& v) { return v.get().name; })
      .def_prop_ro("is_tensor", [](const ValueView& v) { return v.get().type.is_tensor(); })
      .def_prop_ro("dtype",
                   [](const ValueView& v) { return std::string(name_of(v.get().type.dtype)); })
      .def_prop_ro("sizes",
                   [](const ValueView& v) { return list_of(v.get().type.sizes, object_of_size); })
      .def_prop_ro("node",
                   [](const ValueView& v) -> nb::object {
                     ir::Node* node = v.get().node;
                     return node == nullptr ? nb::none() : nb::cast(NodeView{v.pass, node});
                   })
      .def_prop_ro("readers", &readers_of)
      .def("__eq__",
           [](const ValueView& v, nb::object other) {
             return nb::isinstance<ValueView>(other) && v == nb::cast<ValueView>(other);
           })
      .def("__hash__", [](const ValueView& v) { return reinterpret_cast<intptr_t>(v.value); })
      .def("__repr__", [](const ValueView& v) { return to_string(v.get().type); });
}

/// What it raises goes to whoever compiles. `take` gets what it gives.
template <class F>
void run(const nb::object& callable, ir::Graph& graph, F take) {
  const nb::gil_scoped_acquire acquire;
  const PassPointer pass = std::make_shared<Pass>(Pass{&graph});
  struct End {
    Pass& pass;
    ~End() { pass.graph = nullptr; }
  } end{*pass};
  take(callable(GraphView{pass}), pass);
}

/// Held by a pointer that is copied without the lock, and let go with it.
std::shared_ptr<nb::object> held(nb::handle callable) {
  return {new nb::object(nb::borrow(callable)), [](nb::object* object) {
            const nb::gil_scoped_acquire acquire;
            delete object;
          }};
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

}  // namespace

namespace {

std::string name_of_callable(nb::handle callable) {
  const nb::handle type = callable.type();
  return text_of(nb::hasattr(callable, "__name__") ? callable.attr("__name__")
                                                   : type.attr("__name__"));
}

std::string identity_of(nb::handle callable) {
  return nb::hasattr(callable, "uuid") ? text_of(nb::repr(callable.attr("uuid")())) : "";
}

ir::Values values_of(const nb::object& given, const PassPointer& pass) {
  const char* const rule = "[partition] its function gives values of the graph, in a list";
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr())) throw UserError(rule);
  ir::Values values;
  for (nb::handle each : given) {
    if (!nb::isinstance<ValueView>(each)) throw UserError(rule);
    values.push_back(value_of(each, pass));
  }
  return values;
}

}  // namespace

std::vector<passes::CallerPass> caller_passes(nb::list passes) {
  std::vector<passes::CallerPass> found;
  for (nb::handle each : passes)
    found.push_back({name_of_callable(each),
                     [callable = held(each)](ir::Graph& graph) {
                       run(*callable, graph, [](const nb::object&, const PassPointer&) {});
                     },
                     identity_of(each)});
  return found;
}

passes::CallerPartition caller_partition(nb::handle callable) {
  const auto values = [callable = held(callable)](ir::Graph& graph) {
    ir::Values found;
    run(*callable, graph,
        [&](const nb::object& given, const PassPointer& pass) { found = values_of(given, pass); });
    return found;
  };
  return {name_of_callable(callable), values, identity_of(callable)};
}

void bind_graph(nb::module_& m) {
  bind_node(m);
  bind_value(m);
  nb::class_<GraphView>(m, "Graph")
      .def_prop_ro("nodes", &nodes_of)
      .def_prop_ro("inputs", &inputs_of)
      .def_prop_ro("outputs", &outputs_of)
      .def("insert", &insert, nb::arg("op"), nb::arg("args"), nb::arg("kwargs"))
      .def(
          "replace",
          [](const GraphView& v, const ValueView& old, const ValueView& replacement) {
            driver::replace_value(graph_of(v.pass), &old.get(), &replacement.get());
          },
          nb::arg("old"), nb::arg("replacement"))
      .def("erase", &erase, nb::arg("node"))
      .def("__str__", [](const GraphView& v) { return ir::to_string(graph_of(v.pass)); });
}

}  // namespace tandem::python
