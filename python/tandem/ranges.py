"""What torch's guards say about a symbolic size, as the text says it: its range, and whether it is
a multiple of a number. The compiler solves the equations (sym/equations.h); Dynamo guards them."""

import sympy

from tandem._tandem import Unsupported, solve_size
from tandem.fakes import hints_of
from tandem.sizes import Sizes, environment_of, sizes_by_symbol, symbol_name

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


def ranges_text(symbols, divided, fakes, asserted=(), origins=(), endless=()):
    """What follows `where`. `divided`: see divided_symbols; `asserted`: relations for bounds_of;
    `origins`: expressions that symbols stand for; `endless`: symbols whose upper bound is not as
    torch knows it. What only data tell may be negative."""
    environment = _environment_of_any(fakes)
    asserted = [*asserted, *_guarded(environment, dict(origins))] if origins else asserted
    ranges = []
    for part in symbols:
        symbol, divisor = divided.get(part, (part, 1))
        known = environment.bound_sympy(dict(origins).get(symbol, symbol))
        is_size = symbol in hints_of(environment) and symbol not in dict(origins)
        lowest = 0 if is_size else -_ENDLESS
        low = int(known.lower) if known.lower.is_Integer else lowest
        is_bounded = known.upper.is_Integer and symbol not in endless
        high = int(known.upper) if is_bounded else _ENDLESS
        own = [bounds[1:] for bounds in map(bounds_of, asserted) if bounds[0] == symbol]
        low = max([low, lowest, *(bounds[0] for bounds in own)])
        high = min([high, *(bounds[1] for bounds in own)])
        low, high, _ = solve_size(symbol_name(symbol), low, high, equations_of(symbol, environment))
        high = "inf" if high >= _ENDLESS else high // divisor
        ranges.append(f"{symbol_name(part)} in [{-(-low // divisor)}, {high}]")
    return ", ".join(ranges)


def _guarded(environment, origins):
    """What guards say of what symbols stand for, as relations for bounds_of: Dynamo asks them of
    the numbers that the expressions are made of."""
    symbols = {expr: symbol for symbol, expr in origins.items()}
    found = []
    for guard in environment.guards if symbols else ():
        for part in sympy.And.make_args(guard.expr):
            relation = part.xreplace(symbols)
            if isinstance(relation, sympy.core.relational.Relational):
                found.append(_solved(relation))
    return [each for each in found if each is not None and each.lhs in origins]


def _solved(relation):
    """For the one symbol that it is of, where it is that symbol or its negative plus a number."""
    if not all(isinstance(side, sympy.Expr) for side in relation.args):
        return None  # of truth values
    difference = sympy.expand(relation.lhs - relation.rhs)
    symbol = next(iter(difference.free_symbols), None)
    factor = difference.coeff(symbol) if symbol is not None else 0
    if factor not in (1, -1) or not (difference - factor * symbol).is_Integer:
        return None
    bound = -factor * (difference - factor * symbol)
    func = relation.func if factor == 1 else relation.reversed.func
    solved = func(symbol, bound, evaluate=False)
    return solved if bounds_of(solved) is not None else None


def equations_of(symbol, environment):
    """Those of torch that hold this one symbol, as text."""
    guards = [guard.expr for guard in environment.guards]
    texts = [_text(expr) for expr in guards if expr.free_symbols == {symbol}]
    return [text for text in texts if text]


def equations_among(symbols, environment, text_of):
    """Those that hold one of these symbols."""
    found = []
    for guard in environment.guards:
        relation = environment.replace(guard.expr)
        if isinstance(relation, sympy.Eq) and relation.free_symbols & symbols:
            found.append(_text(relation, text_of))
    return [text for text in dict.fromkeys(found) if text]


def _text(relation, text_of=None):
    if not isinstance(relation, sympy.Eq):
        return None
    try:
        return " == ".join(map(text_of or Sizes().print, relation.args))
    except Unsupported:
        return None


def _environment_of_any(fakes):
    return next(filter(None, (environment_of(fake) for fake in fakes)), None)


def divided_symbols(fakes):
    """Symbols that stand for parts of others: of each the other one and how many parts it has."""
    environment = _environment_of_any(fakes)
    found = {}
    for symbol in sizes_by_symbol(fakes) if environment is not None else ():
        equations = equations_of(symbol, environment)
        *_, divisor = solve_size(symbol_name(symbol), 0, _ENDLESS, equations)
        if divisor > 1:
            found[sympy.Symbol(f"{symbol}_{divisor}", integer=True)] = (symbol, divisor)
    return found
