"""Symbolic sizes of torch (sympy expressions of a ShapeEnv) as text of ours."""

import functools
import operator
import re

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
        if isinstance(value, torch.SymInt):
            node = value.node
            if node.is_constant():
                return str(int(value))
            return self.print(node.expr.xreplace(self.replacements))
        return str(int(value))

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


def is_symbolic(captured):
    """A size or a float is not known when compiling."""
    for fake in captured.fakes:
        if isinstance(fake, (torch.SymInt, torch.SymFloat)):
            return True
        if isinstance(fake, torch.Tensor):
            if any(isinstance(size, torch.SymInt) for size in fake.shape):
                return True
            if fake.dim() == 0 and fake.dtype == torch.float64:
                return True
    return False


def sizes_by_symbol(fakes):
    """Sizes of tensors and integers that are a symbol with a known value, by symbol, in order."""
    sizes = {}
    for fake in fakes:
        for size in fake.shape if isinstance(fake, torch.Tensor) else (fake,):
            is_symbol = isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
            if is_symbol and size.node.has_hint():
                sizes.setdefault(size.node.expr, size)
    return sizes


def sizes_to_know(error, sizes):
    """Those of `sizes`, by symbol, that the text of an error asks for as numbers."""
    asked = " ".join(re.findall(r"must be known when compiling: (.*)", error))
    words = set(re.findall(r"[A-Za-z]\w*", asked))
    # What stands for a part of a size (ranges.py) has its name, and how many parts there are.
    words |= {word.rpartition("_")[0] for word in words}
    return {symbol: size for symbol, size in sizes.items() if symbol_name(symbol) in words}


def specialize(sizes):
    """They stay as they are in this program: asking installs the guard."""
    for size in sizes:
        int(size)


def tie_sizes(fakes):
    """Torch keeps equations between sizes (`s0*s1 == s2*s3`) as guards. Ours are expressions only,
    so the symbols of such an equation are made equal pairwise, by their present values, or numbers
    where there is nothing to pair. Asking installs the guard."""
    environments = [f.fake_mode.shape_env for f in fakes if isinstance(f, torch.Tensor)]
    if not environments or environments[0] is None:
        return
    environment = environments[0]
    sizes = sizes_by_symbol(fakes)
    deferred = environment.deferred_runtime_asserts.values()
    asserted = [each.expr for group in deferred for each in group]
    for expr in [guard.expr for guard in environment.guards] + asserted:
        symbols = [s for s in sorted(expr.free_symbols, key=str) if s in sizes]
        if type(expr).__name__ == "Equality":
            _tie(symbols, sizes, expr)


def _tie(symbols, sizes, equation):
    plain = all(
        arg.is_Symbol or arg.is_Integer or arg.is_Mul for arg in (equation.lhs, equation.rhs)
    )
    left = equation.lhs.free_symbols
    for symbol in symbols:
        twins = [
            other
            for other in symbols
            if (other in left) != (symbol in left)
            and sizes[other].node.hint == sizes[symbol].node.hint
        ]
        if plain and twins:
            bool(sizes[symbol] == sizes[twins[0]])
        elif not plain or not equation.rhs.is_Symbol:
            int(sizes[symbol])


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
