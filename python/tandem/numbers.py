"""Numbers that a graph computes with: Python's integers, floats and bools that only data tell, or
that come with a call. To the program they are tensors without dimensions (i64, f64, bool), and
Python's arithmetic is `tandem.number` of these. What an operator takes as a number is read from
such a tensor; an integer that is no expression of known sizes becomes a symbol there, so that it
can be a size.
"""

import operator

import sympy
import torch
from torch import fx

from tandem._tandem import Unsupported

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
NUMBERS = (*SYMBOLIC, int, float, bool)
# The second is the first after dispatch.
READS_OF_NUMBERS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
FLOORED = (operator.floordiv, operator.mod)


def kind_of(value):
    """The element type of a number's tensor."""
    value = value.meta["val"] if isinstance(value, fx.Node) else value
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    return "i64" if isinstance(value, (int, torch.SymInt)) else "f64"


def is_number(node):
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), NUMBERS)


def numbers_below(node):
    """The nodes that a number is computed from, and itself, operands first."""
    order, waiting = {}, [(node, False)]
    while waiting:
        each, is_done = waiting.pop()
        if is_done:
            order[each] = None
        elif each not in order and is_number(each):
            waiting += [(each, True), *((source, False) for source in each.all_input_nodes)]
    return list(order)


def reads(node, *kinds):
    """A number of these kinds among those below is known to data alone."""
    below = numbers_below(node) if isinstance(node, fx.Node) else ()
    return any(kind_of(each) in kinds and _is_read(each) for each in below)


def _is_read(node):
    if node.op == "placeholder":  # of a body
        return isinstance(node.meta["val"], SYMBOLIC) and not node.meta["val"].node.has_hint()
    return node.target in READS_OF_NUMBERS or node.target is operator.getitem


class NumberLines:
    """The part of the encoder that writes numbers. `_tensors`: the names of those that are written;
    `_scalars`: of what an operator takes as a number."""

    def new(self, operator_name, *arguments):
        name = f"v{len(self._lines)}"
        self._add_line([f"%{name}"], f"{operator_name}({', '.join(arguments)})", self._at)
        return f"%{name}"

    def number(self, value):
        """Name of the tensor of a number."""
        if not isinstance(value, fx.Node):
            return self.new("aten.full", "[]", self._argument(value), f"dtype={kind_of(value)}")
        if value not in self._tensors:  # operands are there before they are read
            for node in [value] if self._is_text(value) else numbers_below(value):
                if node is value or not (node in self._tensors or self._is_text(node)):
                    self._tensors[node] = self._computed(node)
        return self._tensors[value]

    def _is_text(self, node):
        """It is known, an input, or an expression of sizes."""
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            return self._is_expression(value) and not self._may_raise(node)
        if not isinstance(value, (torch.SymFloat, torch.SymBool)):
            return True
        return node in self._scalars

    def _may_raise(self, node):
        """A division by what only data tell: expressions of sizes do not look for 0."""
        return node.target in FLOORED and is_number(node.args[1]) and self._is_made(
            node.args[1].meta["val"]
        )

    def _computed(self, node):
        if self._is_text(node):
            return self.new("aten.full", "[]", self._argument(node), f"dtype={kind_of(node)}")
        if node.op != "call_function" or node.kwargs:
            raise Unsupported(f"[{node.target}] gives a number")
        name = getattr(node.target, "__name__", "").removeprefix("_").removeprefix("sym_")
        given = [each for each in node.args if each is not None]
        operands = ", ".join(map(self.number, given))
        return self.new("tandem.number", f"[{operands}]", f'"{name.rstrip("_")}"')

    def _is_expression(self, value):
        try:
            self._sizes.expression(value)
        except Unsupported:
            return False
        return True

    def _item(self, node, name, value):
        """A number that the program reads. What is written to the tensor later does not change
        it."""
        source = node.args[0]
        if kind_of(value) == "i64":
            return self._integer(node, name, value)
        if isinstance(value, (float, bool)):
            return
        self._made |= value.node.expr.free_symbols
        if source in self._in_tensors:
            self._scalars[node] = self._number_input(self._in_tensors[source])
            self.hints.add_float(self._scalars[node], value)
        else:
            one = self.new("aten.reshape", self.new("aten.detach", self._argument(source)), "[]")
            self._tensors[node] = self.new("aten._to_copy", one, f"dtype={kind_of(value)}")

    def _number_input(self, number):
        """An input of the program that holds the float that comes in a tensor."""
        name = f"f{number}"
        if f"%{name}: f64" not in self._inputs:
            self._inputs.append(f"%{name}: f64")
            self._add_reader(lambda inputs: inputs[number].item())
        return name

    def _add_reader(self, read):
        self._arguments.append(-1 - len(self._readers))
        self._readers.append(read)

    def _note_number(self, node):
        """What is an expression of symbols, or read by nobody, needs no line."""
        value = node.meta["val"]
        if self._is_made(value) and not self._is_text(node):
            self._read_symbol(value.node.expr, self.number(node))

    def _read_symbol(self, expr, tensor):
        symbol = expr
        if not expr.is_Symbol:
            symbol = sympy.Symbol(f"u_{self.name}_{len(self._lines)}", integer=True)
            self._sizes.replacements[expr] = symbol
            self._origins[symbol] = expr
        self._made.add(symbol)
        call = f"tandem.read_scalar({tensor})"
        self._add_line([f"%{self._sizes.print(symbol)}: i64"], call, self._at)

    def _number_argument(self, node):
        """As an operator takes it."""
        value = node.meta["val"]
        if kind_of(value) == "i64":
            return self._sizes.text(value)
        if kind_of(value) == "bool" and not isinstance(value, bool):
            return self.number(node)  # of bools there are operands, but no numbers
        if node not in self._scalars and isinstance(value, (float, bool)):
            return self._argument(value)
        if node not in self._scalars:
            tensor = self.number(node)
            self._scalars[node] = f"f_v{len(self._lines)}"
            self.hints.add_float(self._scalars[node], value)
            self._add_line(
                [f"%{self._scalars[node]}: f64"], f"tandem.read_scalar({tensor})", self._at
            )
        return "%" + self._scalars[node]
