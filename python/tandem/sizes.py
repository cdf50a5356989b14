"""Symbolic sizes of torch (sympy expressions of a ShapeEnv) as text of ours."""

import functools
import operator

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from tandem._tandem import Unsupported
from tandem.fakes import hints_of


_FORMS = {
    "Add": " + ",
    "Mul": " * ",
    "Max": "max",
    "Min": "min",
    "FloorDiv": "({} // {})",
    "CleanDiv": "({} // {})",
    "Mod": "({} % {})",
    "PythonMod": "({} % {})",
    "ModularIndexing": "(({0} // {1}) % {2})",
    "Identity": "{}",
}


class Sizes:
    """Symbolic integers as text, and as functions of the arguments. `replacements`: of symbols,
    by numbers or expressions."""

    def __init__(self, replacements=None):
        self.symbols = {}
        self.replacements = replacements or {}

    def text(self, value):
        """A number where there is no text for an expression of known sizes: asking guards it."""
        try:
            return self.expression(value)
        except Unsupported:
            if not value.node.has_hint():
                raise
            return str(int(value))

    def expression(self, value):
        if not isinstance(value, torch.SymInt) or value.node.is_constant():
            return str(int(value))
        return self.print(value.node.expr.xreplace(self.replacements))

    def print(self, expr):
        if expr.is_Integer:
            return str(int(expr))
        if expr.is_Symbol and expr.is_integer:
            self.symbols[symbol_name(expr)] = expr
            return symbol_name(expr)
        form = _FORMS.get(type(expr).__name__)
        if form is None and not self._is_power(expr):
            raise Unsupported(f"the size {expr} is no integer expression that Tandem has")
        args = [self.print(arg) for arg in expr.args]
        if form is None:
            return "(" + " * ".join([args[0]] * int(expr.args[1])) + ")"
        if form in (" + ", " * "):
            return "(" + form.join(args) + ")"
        if form in ("max", "min"):
            return functools.reduce(lambda one, other: f"{form}({one}, {other})", args)
        return form.format(*args)

    @staticmethod
    def _is_power(expr):
        return expr.is_Pow and expr.args[1].is_Integer and int(expr.args[1]) > 0


def symbol_name(symbol):
    """In the text, where u8 is an element type."""
    return str(symbol).replace("u", "data", 1)


def symbols_of(values):
    """SymInts of the symbols in the sizes of `values`, in order of name; those that are among
    `values` themselves are left out."""
    found, given, environment = set(), set(), None
    for value in _leaves(values):
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            given.add(value.node.expr)
        if isinstance(value, (torch.Tensor, torch.SymInt)):
            found |= free_symbols(value)
            environment = environment or environment_of(value)
    hints = {each: hints_of(environment).get(each) for each in found - given}
    return [
        environment.create_symintnode(symbol, hint=None if hint is None else int(hint))
        for symbol, hint in sorted(hints.items(), key=lambda pair: str(pair[0]))
    ]


def _leaves(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def environment_of(value):
    if isinstance(value, torch.Tensor):
        return value.fake_mode.shape_env
    return value.node.shape_env if isinstance(value, (torch.SymInt, torch.SymFloat)) else None


def symbol_readers(fakes):
    """Sympy symbol -> function of the arguments that gives its value."""
    readers = {}
    for number, fake in enumerate(fakes):
        if isinstance(fake, torch.SymInt) and fake.node.expr.is_Symbol:
            readers.setdefault(fake.node.expr, operator.itemgetter(number))
        elif isinstance(fake, torch.Tensor):
            for dim, size in enumerate(fake.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    readers.setdefault(size.node.expr, _size_reader(number, dim))
    return readers


def _size_reader(number, dim):
    return lambda inputs: inputs[number].shape[dim]


def sizes_by_symbol(fakes):
    """Sizes of tensors and integers that are a symbol with a known value, by symbol, in order."""
    sizes = {}
    for fake in fakes:
        for size in fake.shape if isinstance(fake, torch.Tensor) else (fake,):
            is_symbol = isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
            if is_symbol and size.node.has_hint():
                sizes.setdefault(size.node.expr, size)
    return sizes


ASSERTS_ON_DATA = {"aten._assert_async", "aten._assert_async.msg"}

# What these assert, Dynamo guards.
CHECKS_OF_SIZES = {
    "aten._assert_scalar",
    "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size",
    "aten._assert_tensor_metadata",
}


# What these give is known while tracing, or written as an expression where it is read.
QUESTIONS_OF_SIZES = {
    "aten._has_same_storage_numel",
    "aten.is_same_size",
    "aten.sym_size.int",
    "aten.sym_stride.int",
    "aten.sym_numel",
    "aten.sym_storage_offset",
}
