"""Symbolic sizes of torch (sympy expressions of a ShapeEnv) as text of ours."""

import torch

from tandem._tandem import Unsupported


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
        import sympy

        if expr.is_Integer:
            return str(int(expr))
        if expr.is_Symbol:
            self.symbols[str(expr)] = expr
            return str(expr)
        name = type(expr).__name__
        args = [self.print(arg) for arg in expr.args]
        if isinstance(expr, sympy.Add):
            return "(" + " + ".join(args) + ")"
        if isinstance(expr, sympy.Mul):
            return "(" + " * ".join(args) + ")"
        if isinstance(expr, sympy.Pow) and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            return "(" + " * ".join([args[0]] * int(expr.args[1])) + ")"
        if name in ("FloorDiv", "CleanDiv"):
            return f"({args[0]} // {args[1]})"
        if name in ("Mod", "PythonMod"):
            return f"({args[0]} % {args[1]})"
        if name == "ModularIndexing":
            return f"(({args[0]} // {args[1]}) % {args[2]})"
        if name in ("Max", "Min"):
            text = args[0]
            for arg in args[1:]:
                text = f"{name.lower()}({text}, {arg})"
            return text
        if name == "Identity":
            return args[0]
        raise Unsupported(f"the size {expr} is no integer expression that Tandem has")


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


def symbols_of(fakes):
    """Sizes of tensors and integers that are a symbol, by symbol, in order."""
    sizes = {}
    for fake in fakes:
        for size in fake.shape if isinstance(fake, torch.Tensor) else (fake,):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                sizes.setdefault(size.node.expr, size)
    return sizes


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
    sizes = symbols_of(fakes)
    for guard in list(environment.guards):
        symbols = [s for s in sorted(guard.expr.free_symbols, key=str) if s in sizes]
        if type(guard.expr).__name__ == "Equality":
            _tie(symbols, sizes, guard.expr)


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
