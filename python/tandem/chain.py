"""Graphs with sizes and numbers that only data tell (`nonzero`, `x[mask]`, `item`).

The sizes of a program follow from its arguments. So such a graph is cut at the nodes that make the
unknown symbols (cutting.py). What lies between them are segments, each a compiled graph function
that takes the symbols as arguments; the nodes themselves run in torch, numbers are computed in
Python. Autograd goes through the chain as through any functions that are called in turn.
"""

import collections

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tandem.capture import Captured
from tandem.control_flow import Control
from tandem.cutting import Cut, Segment, cut, is_evaluated, segment_graph
from tandem.fakes import is_tensor, storage_of
from tandem.history import nodes_with_history
from tandem.seeds import draw_seed
from tandem.sizes import evaluate, symbol_readers


class Chain:
    """What runs a captured graph in segments. `compile_segment(captured, fallback)` gives a
    Compiled, or raises Unsupported; `compile_body` is as Control.compile takes it."""

    def __init__(self, captured, compile_segment, compile_body):
        self._module = captured.graph_module
        self._captured = captured
        self._compile_segment = compile_segment
        self._compile_body = compile_body
        graph = captured.graph_module.graph
        self._history = nodes_with_history(graph, captured.requires_grad, captured.no_grad)
        self._readers = symbol_readers(captured.fakes)
        self._places = graph.find_nodes(op="placeholder")
        self.segments = []  # Compiled
        self.between_segments = collections.Counter()  # operators that torch runs
        self.controls = []
        self.takes_seed = False
        self.writes_inputs = False
        (self._output,) = graph.find_nodes(op="output")
        parts = cut(captured)
        self._steps = [self._step(part) for part in parts]
        self._dead = _dead_after(parts, self._output.all_input_nodes)

    def callable(self):
        return self.__call__

    def __call__(self, *arguments):
        symbols = {symbol: read(arguments) for symbol, read in self._readers.items()}
        held = (arguments + tuple(self._captured.lifted))[: len(self._places)]
        values = dict(zip(self._places, held, strict=True))
        for step, dead in zip(self._steps, self._dead, strict=True):
            step(values, symbols)
            for node in dead:
                del values[node]
        results = self._output.args[0]
        results = results if isinstance(results, (list, tuple)) else [results]
        return [values[each] if isinstance(each, fx.Node) else each for each in results]

    def _step(self, part):
        if isinstance(part, Segment):
            return self._segment_step(part)
        if isinstance(part, Cut):
            name = str(part.node.target).removesuffix(".default")
            if isinstance(part.node.target, Control):
                return self._control_step(part)
            self.between_segments[name] += 1
            return _torch_step(part)
        return self._plain_step(part.node)

    def _segment_step(self, segment):
        """Inputs of its graph: what it reads of others, then the symbols of their sizes."""
        graph, symbols = segment_graph(segment)
        wanted = [symbol.node.expr for symbol in symbols]  # compiling may make them numbers
        module = fx.GraphModule(self._module, graph)
        places = graph.find_nodes(op="placeholder")
        flags = [node in self._history and is_tensor(node) for node in segment.inputs]
        flags += [False] * len(symbols)
        fakes = [place.meta["val"] for place in places]
        captured = Captured(module, fakes, flags, [], "segment", self._captured.bodies)
        captured.no_grad, captured.autocast = self._captured.no_grad, self._captured.autocast
        captured.users = {i for i, node in enumerate(segment.inputs) if node.op == "placeholder"}
        compiled = self._compile_segment(captured, module.forward)
        self.segments.append(compiled)
        self.takes_seed = self.takes_seed or compiled.takes_seed
        own = {storage_of(node.meta["val"]) for node in self._places if is_tensor(node)}
        for number in compiled.written:
            written = storage_of(segment.inputs[number].meta["val"])
            self.writes_inputs = self.writes_inputs or written in own
        call = compiled.callable()

        def run(values, known):
            given = [values[node] for node in segment.inputs]
            results = call(*given, *[known[symbol] for symbol in wanted])
            values.update(zip(segment.outputs, results, strict=True))

        return run

    def _control_step(self, part):
        control, node = part.node.target, part.node
        wanted = [symbol.node.expr for symbol in control.symbols]
        flags = [arg in self._history and part.grad for arg in node.args]
        control.compile(self._compile_body, flags)
        self.controls.append(control)
        self.takes_seed = self.takes_seed or control.takes_seed

        def run(values, known):
            operands = fx.node.map_arg(node.args, lambda each: values[each])
            seed = draw_seed() if control.takes_seed else None
            with torch.set_grad_enabled(part.grad and torch.is_grad_enabled()):
                results = control.run(operands, [known[symbol] for symbol in wanted], seed)
            _learn(node, results, known)
            values[node] = results

        return run

    def _plain_step(self, node):
        if node.op == "get_attr":
            constant = getattr(self._module, node.target)
            return lambda values, known: values.update({node: constant})
        if is_evaluated(node):
            value = node.meta["val"]
            return lambda values, known: values.update({node: evaluate(value, known)})
        return _run_step(node)


def _run_step(node):
    def run(values, known):
        values[node] = _run(node, values)

    return run


def _torch_step(part):
    node = part.node

    def run(values, known):
        with torch.set_grad_enabled(part.grad and torch.is_grad_enabled()):
            values[node] = _run(node, values)
        _learn(node, values[node], known)

    return run


def _run(node, values):
    args = fx.node.map_arg(node.args, lambda each: values[each])
    kwargs = fx.node.map_arg(dict(node.kwargs), lambda each: values[each])
    return node.target(*args, **kwargs)


def _learn(node, result, known):
    """Values of the symbols that the node makes."""
    for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
        known[symbol] = pytree.key_get(result, path)


def _dead_after(parts, results):
    """For each part, nodes that nothing behind it reads."""
    last = {}
    for number, part in enumerate(parts):
        last.update(dict.fromkeys((*part.inputs, *part.outputs), number))
    dead = [[] for _ in parts]
    for node in last.keys() - set(results):
        dead[last[node]].append(node)
    return dead
