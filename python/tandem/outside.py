"""Operators that only torch can run: they give sizes or numbers that data tell, and no operator of
ours does that; or they draw from a generator of the caller. They are nodes of the program
(host.py).

What gives such sizes is two nodes: the first one runs it and gives the sizes, the program reads
these, and the second one gives the tensors, for which there is a place then (host_lines.py)."""

import functools

import sympy
import torch
from torch import fx

from tandem._tandem import ops
from tandem.control_flow import Control
from tandem.numbers import FLOORED, NUMBERS, READS_OF_NUMBERS, SYMBOLIC

_ASSERT = torch.ops.aten._assert_scalar.default


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
    """It runs in torch, as a node of the program."""
    return is_told_by_data(node) and (has_generator(node) or not is_in_program(node))


def makes_size(node):
    return bool(node.meta.get("unbacked_bindings")) or is_told_by_data(node)


def is_told_by_data(node):
    """Only data tell a size or a number that it gives. Or it draws from a generator of the caller,
    whose state follows from the draws and their order."""
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


def has_outside(captured):
    return any(map(is_outside, captured.graph_module.graph.nodes))
