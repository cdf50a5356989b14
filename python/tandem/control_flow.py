"""Loops and branches: `torch.cond`, `while_loop`, `map` and `scan`; and regions that are compiled
once (`torch.compiler.nested_compile_region`).

Each leaves one node in the trace, whose target is a `Control`: a few lines of Python that decide
which body runs, and how often. The bodies are graphs of their own, captured like any other and
compiled by Tandem. They get everything that they read as arguments: the operands, then the values
of the symbols that the operands' sizes have (`symbols`).
"""

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.utils import reenter_make_fx
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import (
    _constrain_range_for_size,
    statically_known_true,
)
from torch.utils import _pytree as pytree

from tandem._tandem import Unsupported
from tandem.autocast import ambient_autocast
from tandem.fakes import is_row_major
from tandem.modes import restore_modes
from tandem.numbers import NUMBERS, kind_of
from tandem.seeds import seeds_from
from tandem.sizes import symbols_of


class Body:
    """A graph that a control-flow operator runs. Modes are those around the operator. Its tensors
    come row-major: what a program hands to a node need not have eager's strides."""

    def __init__(self, interpreter, module, fakes):
        inner = interpreter.inner(module)
        self.fakes = [_row_major_fake(fake) for fake in fakes]
        self.graph_module = reenter_make_fx(lambda *values: inner.run(*values))(*self.fakes)
        if any(own is not fake for own, fake in zip(self.fakes, fakes, strict=True)):
            self._refuse_strides()
        self.bodies = interpreter.bodies
        self.bodies.graphs.append(self.graph_module)
        self.no_grad = not torch.is_grad_enabled()
        self.autocast = ambient_autocast()
        if interpreter.bodies.behind_autograd:
            restore_modes(self.graph_module, self)
        self.symbols = []
        self.call = None  # compiled
        self.report = None

    def _refuse_strides(self):
        for node in self.graph_module.graph.nodes:
            if node.target is torch.ops.aten.as_strided.default:
                raise Unsupported("as_strided in a body whose operands are not row-major")

    def results(self):
        """Fakes, numbers and None."""
        (output,) = self.graph_module.graph.find_nodes(op="output")
        values = output.args[0] if isinstance(output.args[0], (list, tuple)) else output.args
        return [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in values]

    def eager(self, *arguments):
        numbers = [0] * len(self.symbols)  # the traced graph asks its tensors
        results = self.graph_module(*arguments[: len(self.fakes)], *numbers)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def add_symbols(self, symbols):
        """Inputs behind the others, for what is not among them."""
        self.symbols = symbols
        graph = self.graph_module.graph
        places = graph.find_nodes(op="placeholder")
        with graph.inserting_after(places[-1]) if places else graph.inserting_before():
            for symbol in reversed(symbols):
                graph.placeholder(f"size_{symbol}").meta["val"] = symbol
        self.graph_module.recompile()


class Control:
    """What a control-flow node runs. `bodies` in an order of its own; `symbols` (SymInt): values
    that the bodies get behind their operands."""

    kind = ""

    def __init__(self, bodies):
        self.__name__ = self.kind
        self.bodies = bodies
        self.symbols = symbols_of([fake for body in bodies for fake in body.fakes])
        self.takes_seed = False
        for body in bodies:
            body.add_symbols(self.symbols)

    def compile(self, compile_body, requires_grad):
        """`requires_grad`: of the operands. `compile_body(body, requires_grad)` gives what runs it
        and whether it draws a seed."""
        flags = self._flags(requires_grad)
        for body in self.bodies:
            if body.call is None:
                own = [flag and _is_float(x) for flag, x in zip(flags, body.fakes, strict=True)]
                own += [False] * len(self.symbols)
                body.call, takes_seed = compile_body(body, own)
                self.takes_seed = self.takes_seed or takes_seed

    def run(self, operands, symbols, seed):
        """Results for real operands and values of `symbols`. With `seed`, everything random in the
        bodies follows from it."""
        calls = [_compiled(body.call, symbols) for body in self.bodies]
        with seeds_from(seed):
            return self._run(calls, [_row_major(operand) for operand in operands])

    def __call__(self, *operands):
        """As torch runs the traced bodies."""
        return self._run([body.eager for body in self.bodies], list(operands))

    def _flags(self, requires_grad):
        return requires_grad


class Cond(Control):
    kind = "cond"

    def _flags(self, requires_grad):
        return requires_grad[1:]

    def _run(self, calls, operands):
        taken, other = calls
        return (taken if operands[0] else other)(*operands[1:])


class Region(Control):
    """What several calls run: they have it as their one target."""

    kind = "invoke_subgraph"

    def _run(self, calls, operands):
        return calls[0](*operands)


class Scan(Control):
    """`carried` operands go from step to step; the next `rows` are taken apart along their first
    dimension. `map` is a scan that carries nothing."""

    def __init__(self, body, kind, carried, rows):
        self.kind = kind
        self.carried = carried
        self.rows = rows
        super().__init__([body])

    def _flags(self, requires_grad):
        return [any(requires_grad)] * self.carried + requires_grad[self.carried :]

    def _run(self, calls, operands):
        carry = operands[: self.carried]
        rest = operands[self.carried + self.rows :]
        steps = zip(*[x.unbind(0) for x in operands[self.carried : self.carried + self.rows]])
        columns = []
        for row in steps:
            results = calls[0](*carry, *row, *rest)
            carry = results[: self.carried]
            columns.append(results[self.carried :])
        if not columns:
            raise IndexError(f"{self.kind} over no elements")
        return [*carry, *[_stack(column) for column in zip(*columns, strict=True)]]


class WhileLoop(Control):
    kind = "while_loop"

    def __init__(self, condition, body, carried):
        self.carried = carried
        super().__init__([condition, body])

    def _flags(self, requires_grad):
        return [any(requires_grad)] * self.carried + requires_grad[self.carried :]

    def _run(self, calls, operands):
        condition, body = calls
        carry, rest = operands[: self.carried], operands[self.carried :]
        if not condition(*carry, *rest)[0]:
            return [x.clone() if isinstance(x, torch.Tensor) else x for x in carry]
        carry = body(*carry, *rest)
        while condition(*carry, *rest)[0]:
            carry = body(*carry, *rest)
        return carry


def _compiled(call, symbols):
    return lambda *operands: call(*[_row_major(operand) for operand in operands], *symbols)


def _row_major_fake(value):
    if not isinstance(value, torch.Tensor) or is_row_major(value):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)


def _row_major(value):
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _stack(column):
    return None if column[0] is None else torch.stack(column)


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


# --- while Dynamo's graph is traced


def cond(interpreter, predicate, taken, other, operands, *_, **__):
    if isinstance(predicate, bool) or _is_guardable(predicate):
        return interpreter.inner(taken if predicate else other).run(*operands)
    with disable_proxy_modes_tracing():
        bodies = [Body(interpreter, body, list(operands)) for body in (taken, other)]
        pairs = zip(bodies[0].results(), bodies[1].results(), strict=True)
        results = [_merged(one, two) for one, two in pairs]
    return _emit(Cond(bodies), [predicate, *operands], results)


def _is_guardable(predicate):
    """Of a SymBool: it follows from sizes that are known when compiling."""
    return isinstance(predicate, torch.SymBool) and predicate.node.has_hint()


def _merged(one, two):
    """What either branch may give. Where sizes or numbers differ, only the call tells them."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        if one.dtype != two.dtype or one.dim() != two.dim():
            raise Unsupported(f"[cond] the branches give {_text(one)} and {_text(two)}")
        sizes = [_merged_size(*pair) for pair in zip(one.shape, two.shape, strict=True)]
        if all(size is own for size, own in zip(sizes, one.shape, strict=True)):
            return one
        return one.new_empty(sizes)
    if isinstance(one, torch.Tensor) or isinstance(two, torch.Tensor):
        raise Unsupported("[cond] one branch gives a tensor where the other gives none")
    return one if _is_same(one, two) else _unknown(one)


def _merged_size(one, two):
    if _is_same(one, two):
        return one
    size = _unknown(one)
    _constrain_range_for_size(size)
    return size


def _is_same(one, two):
    return one is two or (one is not None and two is not None and statically_known_true(one == two))


def _unknown(like):
    """A number of this kind."""
    environment = detect_fake_mode().shape_env
    kinds = {"bool": "symbool", "i64": "symint", "f64": "symfloat"}
    return getattr(environment, f"create_unbacked_{kinds[kind_of(like)]}")()


def invoke_subgraph(interpreter, body, identifier, *operands, **_):
    """A node, unless the graph is one whose regions run inline."""
    bodies = interpreter.bodies
    if bodies.inlines or any(each is None for each in operands):
        return interpreter.inner(body).run(*operands)
    key = id(body), torch.is_grad_enabled(), ambient_autocast(), *map(_region_key, operands)
    with disable_proxy_modes_tracing():
        if key not in bodies.calls:
            bodies.calls[key] = Region([Body(interpreter, body, list(operands))])
        region = bodies.calls[key]
        results = region.bodies[0].results()
    if not all(isinstance(each, torch.Tensor) for each in results):
        return interpreter.inner(body).run(*operands)
    needs_grad = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in operands
    )
    return _emit(region, list(operands), results, needs_grad)


def _region_key(value):
    if not isinstance(value, torch.Tensor):
        return str(value)
    return value.dtype, str(value.shape), is_row_major(value) or value.stride(), value.requires_grad


def map_rows(interpreter, body, rows, operands, *_, **__):
    return _scan(interpreter, "map", body, [], list(rows), list(operands))


def scan(interpreter, body, carried, rows, operands=(), *_, **__):
    return _scan(interpreter, "scan", body, list(carried), list(rows), list(operands))


def _scan(interpreter, kind, body, carried, rows, rest):
    with disable_proxy_modes_tracing():
        first = [x.select(0, 0) for x in rows]
        inner = Body(interpreter, body, [*carried, *first, *rest])
        results = inner.results()
        _check_same(kind, "it carries", carried, results[: len(carried)])
        length = rows[0].shape[0]
        columns = [
            None if y is None else y.new_empty([length, *y.shape]) for y in results[len(carried) :]
        ]
    control = Scan(inner, kind, len(carried), len(rows))
    return _emit(control, [*carried, *rows, *rest], [*results[: len(carried)], *columns])


def while_loop(interpreter, condition, body, carried, rest=(), *_, **__):
    carried, rest = list(carried), list(rest)
    with disable_proxy_modes_tracing():
        with detect_fake_mode().shape_env.ignore_fresh_unbacked_symbols():
            inside = [_unknown_number(value) for value in carried]
        inner = Body(interpreter, body, [*inside, *rest])
        results = inner.results()
        _check_same("while_loop", "it carries", carried, results)
        control = WhileLoop(Body(interpreter, condition, [*inside, *rest]), inner, len(carried))
        results = [_unknown_number(value) for value in results]
    return _emit(control, [*carried, *rest], results)


def _unknown_number(value):
    return _unknown(value) if isinstance(value, NUMBERS) else value


def _check_same(kind, what, left, right):
    for one, other in zip(left, right, strict=True):
        if isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor):
            raise Unsupported(f"[{kind}] {what} a tensor on one side alone")
        if isinstance(one, torch.Tensor):
            same = one.dtype == other.dtype and one.dim() == other.dim()
            if not same or any(a != b for a, b in zip(one.shape, other.shape, strict=True)):
                raise Unsupported(
                    f"[{kind}] {what} {_text(one)} and {_text(other)}: sizes and element types "
                    "must not depend on which body runs"
                )


def _text(fake):
    return f"{str(fake.dtype).removeprefix('torch.')}{list(fake.shape)}"


def _emit(control, operands, results, needs_grad=False):
    """The node, with `results` like these, which get a history with `needs_grad`."""
    with disable_proxy_modes_tracing():
        fresh = [_fresh(value, needs_grad) for value in results]
    return tuple(_tracked(control, operands, fresh, control.kind))


def _tracked(target, operands, results, name):
    tracer = get_proxy_mode().tracer
    proxies = pytree.tree_map(tracer.unwrap_proxy, tuple(operands))
    proxy = tracer.create_proxy("call_function", target, proxies, {}, name=name)
    return track_tensor_tree(results, proxy, constant=None, tracer=tracer)


def floored(target, *operands):
    """Python's `//` and `%` of floats as nodes: torch takes the floor of a quotient, which may have
    become a whole number when it was rounded."""
    with disable_proxy_modes_tracing():
        result = _unknown(0.0)
    return _tracked(target, operands, result, target.__name__)


def _fresh(value, needs_grad):
    if not isinstance(value, torch.Tensor):
        return value
    fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return fresh.requires_grad_() if needs_grad and _is_float(value) else fresh
