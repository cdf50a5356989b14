"""What torch's guards say about a symbolic size beyond its bounds. Equations stay guards of Dynamo;
ours are ranges of symbols, and symbols times numbers."""

import math

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from tandem.fakes import hints_of
from tandem.sizes import Sizes, environment_of, sizes_by_symbol, symbol_name

_QUOTIENTS = (FloorDiv, Mod, PythonMod)
_PERIODS = 4
_ENDLESS = 2**60


def bounds_of(relation):
    """(symbol, least, greatest) where the relation is one symbol's to a number; else None."""
    if not (relation.lhs.is_Symbol and relation.lhs.is_integer and relation.rhs.is_Integer):
        return None
    number = int(relation.rhs)
    bounds = {
        "Equality": (number, number),
        "StrictLessThan": (-_ENDLESS, number - 1),
        "LessThan": (-_ENDLESS, number),
        "StrictGreaterThan": (number + 1, _ENDLESS),
        "GreaterThan": (number, _ENDLESS),
    }.get(type(relation).__name__)
    return None if bounds is None else (relation.lhs, *bounds)


def ranges_text(symbols, divided, fakes, asserted=(), origins=()):
    """What follows `where`. `divided`: see divided_symbols; `asserted`: relations for bounds_of;
    `origins`: expressions that symbols stand for. What only data tell may be negative."""
    environment = _environment_of_any(fakes)
    ranges = []
    for part in symbols:
        symbol, divisor = divided.get(part, (part, 1))
        known = environment.bound_sympy(dict(origins).get(symbol, symbol))
        is_size = symbol in hints_of(environment) and symbol not in dict(origins)
        lowest = 0 if is_size else -_ENDLESS
        low = int(known.lower) if known.lower.is_Integer else lowest
        high = int(known.upper) if known.upper.is_Integer else _ENDLESS
        low, high = narrowed(symbol, environment.guards, max(low, lowest), high)
        own = [bounds[1:] for bounds in map(bounds_of, asserted) if bounds[0] == symbol]
        low, high = max([low, *(b[0] for b in own)]), min([high, *(b[1] for b in own)])
        high = "inf" if high >= _ENDLESS else high // divisor
        ranges.append(f"{symbol_name(part)} in [{-(-low // divisor)}, {high}]")
    return ", ".join(ranges)


def _environment_of_any(fakes):
    return next(filter(None, (environment_of(fake) for fake in fakes)), None)


def narrowed(symbol, guards, low, high):
    """The range of a symbol, as far as equations of torch say more than its bounds do: an average
    over ceil(s0 / 320) places that is one element wide is a guard, and says that s0 <= 320."""
    for guard in guards:
        equation = guard.expr
        if type(equation).__name__ == "Equality" and equation.rhs.is_Integer:
            found = _solution(equation.lhs, int(equation.rhs), int(equation.rhs))
            if found is not None and found[0] == symbol:
                low, high = max(low, found[1]), min(high, found[2])
    return low, high


def _solution(expr, low, high):
    """(symbol, its least and its greatest value) where `expr` is in [low, high]; None unless it is
    made of one symbol by sums, products and quotients with numbers."""
    if expr.is_Symbol:
        return expr, low, high
    unknown = [arg for arg in expr.args if not arg.is_Integer]
    numbers = [int(arg) for arg in expr.args if arg.is_Integer]
    if len(unknown) != 1 or len(numbers) != 1:
        return None
    inner, number = unknown[0], numbers[0]
    if expr.is_Add:
        return _solution(inner, low - number, high - number)
    if expr.is_Mul and number > 0:
        return _solution(inner, -(-low // number), high // number)
    is_quotient = type(expr).__name__ in ("FloorDiv", "CleanDiv") and expr.args[0] == inner
    if is_quotient and number > 0:
        return _solution(inner, low * number, high * number + number - 1)
    return None


def divided_symbols(fakes):
    """Symbols that stand for parts of others: of each the other one and how many parts it has."""
    environment = _environment_of_any(fakes)
    found = {}
    for symbol in sizes_by_symbol(fakes) if environment is not None else ():
        divisor = divisor_of(symbol, environment.guards)
        if divisor > 1:
            found[sympy.Symbol(f"{symbol}_{divisor}", integer=True)] = (symbol, divisor)
    return found


def divisor_of(symbol, guards):
    """What torch's equations say that a symbol is a multiple of: 4 where halves of halves are put
    together again, as in a U-Net, and must fit what they came from. Sums, products and quotients
    with numbers repeat, apart from a polynomial in the symbol; where some periods have the same
    solutions, so have all."""
    tests = [_test(guard.expr, symbol) for guard in guards]
    tests = [test for test in tests if test is not None]
    period = math.lcm(*[period for period, _ in tests])
    if not tests or period > 256:
        return 1
    places = range(period, (_PERIODS + 1) * period)
    solutions = [n for n in places if all(holds(n) for _, holds in tests)]
    residues = {n % period for n in solutions}
    repeats = len(solutions) == _PERIODS * len(residues)
    return math.gcd(period, *residues) if residues and repeats else 1


def _test(equation, symbol):
    """Of an equation with quotients of one symbol: the least common multiple of their divisors, and
    a function of the symbol."""
    if type(equation).__name__ != "Equality" or equation.free_symbols != {symbol}:
        return None
    divisors = [each.args[1] for each in equation.atoms(*_QUOTIENTS)]
    if not divisors or not all(divisor.is_Integer for divisor in divisors):
        return None
    sizes = Sizes()
    sides = f"{sizes.print(equation.lhs)} == {sizes.print(equation.rhs)}"
    holds = eval(f"lambda {symbol}: {sides}")  # noqa: S307
    return math.lcm(*[int(divisor) for divisor in divisors]), holds
