"""The option `verify`: before its first call a compiled graph runs once beside eager, on copies of
the arguments, forward and backward. What must be equal: results, inputs that are written, and
gradients for the same random tangents.

Equal means within a part of the tensor's largest element, because sums are in another order, and a
tenth of that part of the largest element of all gradients (or results): what cancels to zero, like
the gradient of a bias before a batch norm, is rounding alone. Where a result differs, the graph is
compiled once more with every value among its results, and the first one that differs is named.
"""

import threading
import warnings

import torch
from torch import fx

from tandem._tandem import UserError
from tandem.capture import Captured
from tandem.fakes import is_tensor, place_text
from tandem.host import HostDraw

# Of the largest element, by the shortest float type of the graph.
_TOLERANCES = {"bf16": 5e-2, "f16": 1e-2, "f32": 1e-4, "f64": 1e-9}


class VerificationError(RuntimeError):
    """A compiled graph gave something else than eager."""


class Verified:
    """A callable that checks before its first call; one that failed checks again, and raises again.
    `compile_forward(captured)` compiles a graph without gradients."""

    def __init__(self, compiled, module, captured, compile_forward):
        self._compiled = compiled
        self._call = compiled.callable()
        self._module = module
        self._captured = captured
        self._compile_forward = compile_forward
        self._lock = threading.RLock()

    def __call__(self, *args):
        if self._captured is not None:
            with self._lock:
                self._check(args)
        return self._call(*args)

    def _check(self, args):
        if self._captured is None:
            return  # another thread has checked
        reason = _exclusion(self._compiled)
        if reason:
            warnings.warn(f"tandem: a graph is not verified: {reason}", UserWarning, stacklevel=4)
        else:
            self._compare(args)
        self._compiled.verified = f"no: {reason}" if reason else "yes"
        self._captured = self._module = self._compile_forward = None

    def _compare(self, args):
        written = [i for i in self._compiled.written if i < self._compiled.encoded.inputs]
        lifted = self._compiled.encoded.lifted
        tolerance = _tolerance(self._compiled.encoded.text)
        expected = _run(self._module.forward, args, written, lifted)
        actual = _run(self._call, args, written, lifted)
        names = _names(self._module, self._captured.graph_module, args, written)
        problems = _differences(names, actual, expected, tolerance)
        if not problems:
            return
        if not problems[0].startswith("gradient"):
            problems.append(self._first_operator(args, tolerance))
        raise VerificationError(
            "tandem: a compiled graph differs from eager:\n  " + "\n  ".join(problems)
        )

    def _first_operator(self, args, tolerance):
        """Says which operator differs first where every value is a result."""
        try:
            return self._first_of_all_values(args, tolerance)
        except UserError as error:
            return f"which operator differs cannot be found: {error}"

    def _first_of_all_values(self, args, tolerance):
        spread, nodes = _with_all_values(self._captured.graph_module)
        held = self._captured
        captured = Captured(
            spread, held.fakes, [False] * len(held.fakes), [], held.dialect, held.bodies
        )
        captured.autocast = held.autocast
        everything = [*args, *held.lifted]
        with torch.no_grad():
            expected = _run(fx.Interpreter(spread).run, everything, [], [])
            actual = _run(self._compile_forward(captured), everything, [], [])
        for node, *pair in zip(nodes, actual["result"], expected["result"], strict=True):
            difference = _difference(*pair, tolerance)
            if difference:
                return f"the first operator that differs is {_origin(node)}: {difference}"
        return "alone, where every value is stored, all operators are equal"


def _exclusion(compiled):
    if compiled.native.takes_seed:
        return "it draws random numbers, and Tandem's are not eager's"
    if any(isinstance(host, HostDraw) for host in compiled.encoded.host):
        return "it draws from a torch.Generator, which would be drawn from twice"
    return None


# --- one run


def _run(function, args, written, lifted):
    """Results, written inputs and gradients by kind, of a run that leaves nothing behind."""
    copies, leaves = _copies(args, written)
    before = [tensor.detach().clone() for tensor in lifted]
    # Hooks of the user's call must not see what is saved here.
    with torch.autograd.graph.saved_tensors_hooks(_same, _same):
        results = list(function(*copies))
        held = [tensor.detach().clone() for tensor in lifted]
        values = results + [copies[number] for number in written]
        gradients = _gradients(values, leaves + [t for t in lifted if t.requires_grad])
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(lifted)):
        for tensor, value in zip(lifted, before, strict=True):
            tensor.copy_(value)
    return {
        "result": results,
        "input": [copies[number] for number in written] + held,
        "gradient": gradients,
    }


def _copies(args, written):
    """Arguments over memory of their own, shared where the given ones share it; leaves of those
    that require grad."""
    storages = {}
    copies, leaves = [], []
    for number, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            requires_grad = value.requires_grad and torch.is_grad_enabled()
            value = _copy(value, storages).requires_grad_(requires_grad)
            if requires_grad:
                leaves.append(value)
                # Autograd lets nobody write to a leaf.
                value = value.clone() if number in written else value
        copies.append(value)
    return copies, leaves


def _copy(tensor, storages):
    storage = tensor.untyped_storage()
    with torch.no_grad():
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()
        empty = torch.empty(0, dtype=tensor.dtype)
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        return empty.set_(storages[storage._cdata], *place)


def _gradients(values, leaves):
    roots = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
    if not roots or not leaves:
        return []
    generator = torch.Generator().manual_seed(0)
    tangents = [
        torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root.dtype)
        for root in roots
    ]
    return list(torch.autograd.grad(roots, leaves, tangents, allow_unused=True))


def _same(value):
    return value


# --- comparing


def _tolerance(text):
    """A graph is as exact as its shortest float type."""
    return next((part for name, part in _TOLERANCES.items() if name in text), 0.0)


def _differences(names, actual, expected, tolerance):
    found = []
    for kind, values in expected.items():
        others = actual[kind]
        if len(values) != len(others):
            found.append(f"{len(others)} of kind {kind}, eager gives {len(values)}")
            continue
        floor = tolerance / 10 * max(map(_largest, values), default=0.0)
        for number, pair in enumerate(zip(others, values, strict=True)):
            difference = _difference(*pair, tolerance, floor)
            if difference:
                found.append(f"{names[kind](number)}: {difference}")
    return found


def _real(value):
    """Both parts of complex numbers."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _largest(value):
    """Of the absolute values, but infinities."""
    value = _real(value) if isinstance(value, torch.Tensor) else value
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return 0.0
    finite = value.detach().double().nan_to_num(0.0, 0.0, 0.0)
    return finite.abs().max().item() if finite.numel() > 0 else 0.0


def _difference(actual, expected, tolerance, floor=0.0):
    """What is different, or None."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return None if actual == expected else f"{actual!r} instead of {expected!r}"
    kinds = [f"{t.dtype} {list(t.shape)}" for t in (actual, expected)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} instead of {kinds[1]}"
    actual, expected = _real(actual.detach()), _real(expected.detach())
    is_float = expected.is_floating_point()
    a, e = (t.double() if is_float else t for t in (actual, expected))
    allowed = tolerance * _largest(e) + floor if is_float else 0.0
    wrong = (a != e) & ~(a.isnan() & e.isnan())
    if is_float:
        wrong &= ~((a - e).abs() <= allowed)
    if not wrong.any():
        return None
    return _worst(a, e, wrong, allowed)


def _worst(actual, expected, wrong, allowed):
    error = torch.where(wrong, (actual.double() - expected.double()).abs(), -1.0)
    error = error.nan_to_num(nan=float("inf"))
    place = torch.unravel_index(error.argmax(), error.shape)
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements differ by more than {allowed:.3g}, "
        f"most at {[int(i) for i in place]}: {actual[place].item():.6g} instead of "
        f"{expected[place].item():.6g}"
    )


# --- names


def _names(module, graph_module, args, written):
    """By kind, a function from a number to what it is. Dynamo's names of inputs are the user's."""
    inputs = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    outputs = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    leaves = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]

    def argument(numbers, number):
        return inputs[numbers[number]] if number < len(numbers) else "that the graph holds"

    return {
        "result": lambda number: f"result {number}, of {_origin(outputs[number])}",
        "input": lambda number: f"written input {argument(written, number)}",
        "gradient": lambda number: f"gradient of input {argument(leaves, number)}",
    }


def _origin(node):
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return f"input {node}" if isinstance(node, fx.Node) else repr(node)
    maker = node
    while getattr(maker.target, "__name__", "") == "getitem":
        maker = maker.args[0]
    return f"{str(maker.target).removesuffix('.default')}{place_text(maker)}"


def _with_all_values(graph_module):
    """The graph with a copy of every value as its results, and the nodes they are of."""
    graph = fx.Graph()
    copied, snapshots, nodes = {}, [], []
    for node in graph_module.graph.nodes:
        if node.op == "output":
            break
        copied[node] = graph.node_copy(node, lambda each: copied[each])
        if node.op == "call_function" and is_tensor(node) and node.meta["val"].numel() > 0:
            snapshot = graph.call_function(torch.ops.aten.clone.default, (copied[node],))
            snapshot.meta["val"] = node.meta["val"].clone()
            snapshots.append(snapshot)
            nodes.append(node)
    graph.output(tuple(snapshots))
    return fx.GraphModule(graph_module, graph), nodes
