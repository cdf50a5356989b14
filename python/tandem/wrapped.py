"""Graphs whose weights are tensors that hold others: torchao's `quantize_` puts bytes and scales
into one tensor of a class of its own, which says in Python what a linear layer does with them. A
program takes the tensors inside, and the trace runs that Python.
"""

import contextlib
import operator

import torch
from torch import fx
from torch._dynamo.utils import get_static_address_type
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tandem._tandem import Unsupported
from tandem.layouts import Layout, holds_others, parts_of


def is_wrapped(value):
    """Weights without a gradient. Others, and results, are traced on their parts (subclasses.py);
    nested ones are something else than a choice of elements."""
    return (
        holds_others(value)
        and get_static_address_type(value) is not None
        and not value.requires_grad
        and not value.is_nested
    )


def check_results(results):
    """Of a graph."""
    if any(is_traceable_wrapper_subclass(x) for x in pytree.tree_leaves(results)):
        raise Unsupported("a result is a tensor that holds others: Tandem gives elements in memory")


def wrapped_attributes(module):
    """Those that the graph reads, by name."""
    nodes = module.graph.find_nodes(op="get_attr")
    values = {node.target: operator.attrgetter(node.target)(module) for node in nodes}
    return {name: value for name, value in values.items() if is_wrapped(value)}


class Unwrapped:
    """`module` with an input for each tensor that an input holds, and `examples` for it; with an
    attribute for each that an attribute holds."""

    def __init__(self, module, examples):
        graph = fx.Graph()
        copies = {}
        self.examples, self._layouts = [], []
        places = module.graph.find_nodes(op="placeholder")
        attributes = wrapped_attributes(module)
        wrapped = [value for value in (*examples, *attributes.values()) if is_wrapped(value)]
        self._kind = type(wrapped[0]).__name__
        whole = []
        for place, example in zip(places, examples, strict=True):
            layout = Layout(example) if is_wrapped(example) else None
            self._layouts.append(layout)
            if layout is None:
                copies[place] = graph.node_copy(place)
                self.examples.append(example)
            else:
                whole.append((place, layout, self._add_held(graph, place, example)))
        for place, layout, inputs in whole:  # behind all inputs
            copies[place] = graph.call_function(_Rebuild(layout), tuple(inputs))
        for node in module.graph.nodes:
            if node.op == "get_attr" and node.target in attributes:
                copies[node] = _rebuilt(graph, module, node, attributes[node.target])
            elif node.op != "placeholder":
                copies[node] = graph.node_copy(node, lambda each: copies[each])
        self.module = fx.GraphModule(module, graph)

    def _add_held(self, graph, place, example):
        inputs = []
        for i, held in enumerate(parts_of(example)):
            torch._dynamo.mark_static_address(held, guard=False)  # as the weight that holds it is
            inputs.append(graph.placeholder(f"{place.name}_{i}"))
            inputs[-1].meta["example_value"] = held
            self.examples.append(held)
        return inputs

    @contextlib.contextmanager
    def named_in_refusals(self):
        """What such a tensor does in Python may be what cannot be followed."""
        try:
            yield
        except Unsupported as error:
            text = f"an input is a {self._kind}, which holds others: {error}"
            raise Unsupported(text) from error

    def callable(self, call):
        """With the inputs of `module`; `call` takes what they hold."""

        def run(*args):
            flat = []
            for layout, value in zip(self._layouts, args, strict=True):
                flat.extend((value,) if layout is None else layout.parts_in(value))
            return call(*flat)

        return run


def _rebuilt(graph, module, node, value):
    """Of attributes of `module`, which `node` has in the place of `value`. Dynamo numbers equal
    names from behind, so these are numbered in front: they must be none of its own."""
    parts = []
    for i, held in enumerate(parts_of(value)):
        torch._dynamo.mark_static_address(held, guard=False)
        name = f"tandem_part_{i}_of_{node.target.replace('.', '_')}"
        setattr(module, name, held)
        parts.append(graph.get_attr(name))
    return graph.call_function(_Rebuild(Layout(value)), tuple(parts))


class _Rebuild:
    """A function of a graph must have a name."""

    def __init__(self, layout):
        self._layout = layout
        self.__name__ = self.__qualname__ = f"rebuild_{layout.type.__name__}"
        self.__module__ = __name__

    def __call__(self, *values):
        return self._layout.made_of(iter(values))
