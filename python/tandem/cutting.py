"""Where a graph is cut that one program cannot hold (chain.py): into segments, nodes that make
symbols which nothing before them tells, and what Python computes from numbers."""

import dataclasses
import functools
import operator

import sympy
import torch
from torch import fx

from tandem._tandem import ops
from tandem.control_flow import Control
from tandem.numbers import FLOORED, NUMBERS, READS_OF_NUMBERS, SYMBOLIC
from tandem.sizes import symbols_of

_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast
_SET_GRAD = torch._C._set_grad_enabled
_MODES = (_ENTER, _EXIT, _SET_GRAD)
_ASSERT = torch.ops.aten._assert_scalar.default


class Segment:
    """Nodes that are compiled together. `modes`: those before it that change a mode."""

    def __init__(self, modes, grad):
        self.modes = list(modes)
        self.grad = grad  # of the whole graph's beginning
        self.nodes = []

    def finish(self):
        """Once every node is in: `inputs` and `outputs`, nodes that others make and read."""
        own = {*self.nodes, *self.modes}
        read = [source for node in self.nodes for source in node.all_input_nodes]
        self.inputs = [node for node in dict.fromkeys(read) if node not in own]
        self.outputs = [
            node
            for node in self.nodes
            if node.target not in _MODES
            and any(user not in own and not is_evaluated(user) for user in node.users)
        ]


@dataclasses.dataclass
class Cut:
    """A node that runs between segments; `grad`: the mode that it runs in."""

    node: fx.Node
    grad: bool

    @property
    def inputs(self):
        return self.node.all_input_nodes

    @property
    def outputs(self):
        return [self.node]


@dataclasses.dataclass
class Plain:
    """A node that Python computes."""

    node: fx.Node

    @property
    def inputs(self):
        return [] if is_evaluated(self.node) else self.node.all_input_nodes

    @property
    def outputs(self):
        return [self.node]


def is_evaluated(node):
    """Its value follows from the symbols alone."""
    known = isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool))
    return known and node.op == "call_function" and not is_cut(node)


@functools.cache
def _compiled_operators():
    return frozenset(op.name for op in ops() if op.tells_size)


def tells_size(node):
    return str(node.target).removesuffix(".default") in _compiled_operators()


def is_in_program(node):
    """The program has it, and gives the symbols that it makes their values, or compares what a
    check says that they are: a number, or a size of the caller's."""
    symbols = set(node.meta.get("unbacked_bindings") or ())
    value = node.meta["val"]
    if isinstance(node.target, Control):  # sizes of what it gives may depend on what it runs
        numbers = [each.node.expr.free_symbols for each in value if isinstance(each, SYMBOLIC)]
        return symbols <= set().union(*numbers)
    if node.target in FLOORED:
        return True
    if not tells_size(node):
        return False
    if isinstance(value, int) and not isinstance(value, bool):
        return bool(symbols)
    if isinstance(value, torch.SymInt):
        return value.node.expr.is_Integer or value.node.expr.is_Symbol
    if isinstance(value, NUMBERS):
        return True
    if not isinstance(value, (torch.Tensor, tuple, list)):
        return False
    first = value if isinstance(value, torch.Tensor) else value[0]
    exprs = [size.node.expr for size in first.shape if isinstance(size, torch.SymInt)]
    return len(symbols) == 1 and all(expr.is_Symbol or expr.is_Integer for expr in exprs)


def is_outside(node):
    """No program has it."""
    return is_cut(node) and (has_generator(node) or not is_in_program(node))


def makes_size(node):
    return bool(node.meta.get("unbacked_bindings")) or is_cut(node)


def is_cut(node):
    """Only data tell a size of what it gives. Or it draws from a generator
    of the caller, whose state follows from the draws and their order."""
    if node.op != "call_function":
        return False
    if has_generator(node):
        return True
    if node.meta.get("unbacked_bindings"):
        return True
    if isinstance(node.target, Control):
        read = [source.meta.get("val") for source in node.all_input_nodes]
        odd = any(isinstance(value, (torch.SymBool, torch.SymFloat)) for value in read)
        return odd or any(isinstance(value, NUMBERS) for value in node.meta["val"])
    return node.target in READS_OF_NUMBERS and node.args[0].op != "placeholder"


def relation_of(node):
    """Of an `_assert_scalar`, the relation of sizes that it asserts; None where that is no one
    relation, or known."""
    value = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else node.args[0]
    expr = value.node.expr if isinstance(value, torch.SymBool) else value
    return expr if isinstance(expr, sympy.core.relational.Relational) else None


def equal_sizes(nodes):
    """Symbols that nodes make and that an assert makes equal to one made before: by that one. Two
    reads by one mask have two, and what is made of both has one size."""
    made = {}  # symbol -> its place
    for node in nodes:
        for symbol in node.meta.get("unbacked_bindings") or ():
            made.setdefault(symbol, len(made))
    equal = {}
    for node in nodes:
        relation = relation_of(node) if node.target is _ASSERT else None
        if type(relation).__name__ != "Equality" or not {relation.lhs, relation.rhs} <= made.keys():
            continue
        first, second = (_end_of(equal, side) for side in (relation.lhs, relation.rhs))
        if first != second:
            first, second = sorted((first, second), key=made.get)
            equal[second] = first
    return {symbol: _end_of(equal, symbol) for symbol in equal}


def _end_of(equal, symbol):
    while symbol in equal:
        symbol = equal[symbol]
    return symbol


def has_generator(node):
    """Among its arguments is a torch.Generator, which a trace holds as an attribute."""
    return any(_is_generator(each) for each in (*node.args, *node.kwargs.values()))


def _is_generator(value):
    if isinstance(value, fx.Node) and value.op == "get_attr":
        value = getattr(value.graph.owning_module, value.target, None)
    return isinstance(value, torch.Generator)


def needs_chain(captured):
    """Whether no one program can hold the graph."""
    return any(map(is_outside, captured.graph_module.graph.nodes))


class _Cutter:
    def __init__(self, grad):
        self.parts = []
        self._starts = self._grad = grad
        self._modes = []
        self._segment = Segment([], grad)
        self._homes = {}  # node -> segment

    def place(self, node):
        if node.op in ("placeholder", "output"):
            return
        if node.target in _MODES:
            self._grad = node.args[0] if node.target is _SET_GRAD else self._grad
            self._modes.append(node)
            self._segment.nodes.append(node)
        elif is_cut(node):
            self.end()
            self.parts.append(Cut(node, self._grad))
        elif self._is_plain(node):
            self.parts.append(Plain(node))  # before the segment at hand: it reads none of it
        elif node.meta.get("val") is not None:
            home = self._segment
            if node.target is operator.getitem:
                home = self._homes[node.args[0]]
            self._homes[node] = home
            home.nodes.append(node)

    def _is_plain(self, node):
        if node.op == "get_attr" or node.target is _ASSERT:
            return True
        if node.target is operator.getitem:
            return node.args[0] not in self._homes
        return isinstance(node.meta.get("val"), NUMBERS)

    def end(self):
        if self._homes.keys() & set(self._segment.nodes):
            self.parts.append(self._segment)
        self._segment = Segment(self._modes, self._starts)


def cut(captured):
    """Parts in the order in which they run."""
    cutter = _Cutter(not captured.no_grad)
    for node in captured.graph_module.graph.nodes:
        cutter.place(node)
    cutter.end()
    for part in cutter.parts:
        if isinstance(part, Segment):
            part.finish()
    return cutter.parts


def segment_graph(segment):
    """A graph of its own, and the symbols (SymInt) that it takes behind the segment's inputs."""
    graph = fx.Graph()
    copies = {}
    for node in segment.inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta["val"] = node.meta["val"]
    vals = [node.meta.get("val") for node in (*segment.inputs, *segment.nodes)]
    symbols = symbols_of(vals)
    for symbol in symbols:
        graph.placeholder(f"size_{symbol}").meta["val"] = symbol
    for node in (*segment.modes, *segment.nodes):
        copies[node] = graph.node_copy(node, lambda each: copies[each])
    _leave_modes(graph, segment.grad)
    graph.output([copies[node] for node in segment.outputs])
    return graph, symbols


def _leave_modes(graph, grad):
    """For torch, where it runs the graph."""
    entered = graph.find_nodes(op="call_function", target=_ENTER)
    left = {node.args[0] for node in graph.find_nodes(op="call_function", target=_EXIT)}
    for node in reversed(entered):
        if node not in left:
            graph.call_function(_EXIT, (node,))
    if graph.find_nodes(op="call_function", target=_SET_GRAD):
        graph.call_function(_SET_GRAD, (grad,))
