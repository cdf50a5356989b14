"""Sizes and floats that torch knows of the call at hand. The compiler makes one a number of the
program where it has to be one, or two sizes one, and says which: Dynamo guards these."""

import torch

from tandem import _tandem
from tandem.fakes import hints_of
from tandem.ranges import equations_among
from tandem.sizes import environment_of, sizes_by_symbol, symbol_name


class Hints:
    """By name in the text. `divided`: see divided_symbols; `text_of`: of an expression of sizes."""

    def __init__(self, fakes, divided, text_of):
        symbols = sizes_by_symbol(fakes)
        self._sizes = {symbol_name(symbol): (size, 1) for symbol, size in symbols.items()}
        for part, (symbol, divisor) in divided.items():
            self._sizes[symbol_name(part)] = (symbols[symbol], divisor)
        self._floats = {}
        environment = next(filter(None, map(environment_of, fakes)), None)
        known = hints_of(environment).keys() & symbols.keys() if environment else ()
        self._equations = equations_among(known, environment, text_of) if known else []

    def add_float(self, name, value):
        if isinstance(value, torch.SymFloat) and value.node.has_hint():
            self._floats[name] = value

    def native(self):
        hints = _tandem.Hints()
        hints.sizes = {
            name: int(size.node.hint) // divisor for name, (size, divisor) in self._sizes.items()
        }
        hints.floats = {name: float(value.node.hint) for name, value in self._floats.items()}
        hints.equations = self._equations
        return hints

    def guard(self, assumed):
        """What `GraphFunction.assumed` says. Asking installs the guard."""
        sizes, floats, equal = assumed
        for name in sizes:
            int(self._sizes[name][0])
        for name in floats:
            float(self._floats[name])
        for one, other in equal:
            bool(self._part(one) == self._part(other))

    def _part(self, name):
        size, divisor = self._sizes[name]
        return size if divisor == 1 else size // divisor
