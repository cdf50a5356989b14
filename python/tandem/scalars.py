"""Floats that a graph computes from its inputs: a learning rate that changes arrives as a 0-d
tensor, is read by `item()`, and goes into operators as it is, negated, or times another number. The
program takes each float that an operator reads as an input; here is what computes it before a call.
"""

import math
import operator

import torch

_FUNCTIONS = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
_FORMS = {
    operator.neg: "(-{})",
    operator.pos: "{}",
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.pow: "({} ** {})",
    torch.sym_float: "float({})",
}
for _name in _FUNCTIONS:
    _FORMS[getattr(math, _name)] = f"math.{_name}({{}})"
    _FORMS[getattr(torch, f"_sym_{_name}")] = f"math.{_name}({{}})"


# The second is the first after dispatch.
READS_OF_NUMBERS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


class Scalars:
    """`places`: numbers of the graph's inputs, by node."""

    def __init__(self, places):
        self._places = places
        self._texts = {}  # node -> Python text over `i`, the inputs of the graph
        self._taken = {}  # node -> number among the readers
        self.readers = []  # functions of the inputs

    def note(self, node):
        """False where the node is nothing that can be computed before the call."""
        if node.target in READS_OF_NUMBERS:
            number = self._places.get(node.args[0])
            text = None if number is None else f"i[{number}].item()"
        else:
            text = self._formula(node)
        if text is not None:
            self._texts[node] = text
        return text is not None

    def _formula(self, node):
        form = _FORMS.get(node.target)
        operands = [self._operand(arg) for arg in node.args]
        if form is None or None in operands or node.kwargs:
            return None
        return form.format(*operands)

    def _operand(self, arg):
        if isinstance(arg, (int, float)):
            return f"float('{arg}')" if isinstance(arg, float) else repr(arg)
        if arg in self._texts:
            return self._texts[arg]
        number = self._places.get(arg)
        return None if number is None else f"i[{number}]"

    def take(self, node):
        """Number of the reader that gives the node's value; None where there is none."""
        if node not in self._texts:
            return None
        if node not in self._taken:
            self._taken[node] = len(self.readers)
            code = f"lambda i: {self._texts[node]}"
            self.readers.append(eval(code, {"math": math, "float": float}))  # noqa: S307
        return self._taken[node]
