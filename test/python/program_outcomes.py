"""What a random program and its compiled form must agree in: values, gradients, what inputs hold
afterwards, strides of results, histories, and which results share memory with which inputs and
results."""

import functools
import re

import tandem
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from compiled import compile_with, through_core


def outcome(function, written, sizes=None):
    """Everything that must agree, as (name, value) pairs; or the error."""
    inputs, leaves = written.inputs(**(sizes or {}))
    try:
        with torch.set_grad_enabled(written.starts_grad):
            results = function(*inputs)
    except (RuntimeError, IndexError) as error:
        return error
    try:
        facts = _facts(results, inputs)
        return facts + _gradients(results, inputs, leaves)
    except RuntimeError as error:
        return error


def _facts(results, inputs):
    facts = []
    for i, result in enumerate(results):
        facts.append((f"result {i}", result.detach().clone()))
        facts.append((f"strides of result {i}", _meaningful_strides(result)))
        facts.append((f"result {i} has a history", _has_history(result)))
    for i, x in enumerate(inputs):
        facts.append((f"input {i} afterwards", x.detach().clone()))
        facts.append((f"input {i} has a history afterwards", _has_history(x)))
    facts.append(("sharing", _sharing(results, inputs)))
    return facts


def _gradients(results, inputs, leaves):
    loss = sum((r * _weights(r)).sum() for r in results if r.requires_grad)
    loss = loss + sum((x * _weights(x)).sum() for x in inputs if x.requires_grad)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        loss.backward()
    return [(f"gradient {i}", leaf.grad) for i, leaf in enumerate(leaves)]


def _has_history(result):
    """A gradient of it reaches a tensor of the caller's. To eager a view that was made under
    no_grad requires a gradient too, which ends in that view."""
    if not result.requires_grad or (result.grad_fn is None and result._is_view()):
        return False
    if result.grad_fn is None:
        return True
    pending, seen = [result.grad_fn], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable") and not node.variable._is_view():
            return True
        pending += [each for each, _ in node.next_functions if each is not None]
    return False


def _weights(x):
    return torch.arange(1.0, x.numel() + 1, dtype=x.dtype).reshape(x.shape)


def _meaningful_strides(x):
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)


def _sharing(results, inputs):
    """Of each with elements: the first that is in the same storage, and where it begins there."""
    tensors = [x for x in (*results, *inputs) if x.numel()]
    bases = [x.untyped_storage().data_ptr() for x in tensors]
    offsets = [x.storage_offset() if bases.count(b) > 1 else 0 for x, b in zip(tensors, bases)]
    return [bases.index(b) for b in bases], offsets


def strides_of_fakes(written, sizes):
    """Of each result, as torch's fake tensors tell them: all that a backend of torch.compile sees.
    Where dimensions of one element are broadcast together they are not always eager's."""
    inputs, _ = written.inputs(**(sizes or {}))
    with FakeTensorMode() as mode, torch.set_grad_enabled(written.starts_grad):
        results = written.program(*[mode.from_tensor(x) for x in inputs])
        strides = [_meaningful_strides(result) for result in results]
    torch.set_grad_enabled(True)
    return strides


class Difference:
    """`text` is None, or says what differs; `refusal` is an error of ours. `kind` is the same for
    what may have one cause. Where only torch's fakes have a result's strides,
    `has_strides_of_fakes` says so: who calls counts them."""

    def __init__(self, actual, expected, written, sizes=None):
        self.has_strides_of_fakes = False
        self._written, self._sizes = written, sizes
        self.text = self.kind = self.refusal = None
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            self._compare_errors(actual, expected)
        else:
            self._compare(actual, expected)

    def _compare_errors(self, actual, expected):
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return
        self.refusal = actual
        # Without what differs from program to program.
        said = re.sub(r"%\w+|\d+", "", str(actual)) if isinstance(actual, Exception) else ""
        self.kind = f"{type(actual).__name__} {said[:60]}"
        self.text = f"{_short(actual)} instead of {_short(expected)}"

    def _compare(self, actual, expected):
        for (name, value), (_, wanted) in zip(actual, expected, strict=True):
            if self._is_same(name, value, wanted):
                continue
            self.kind = name.rstrip("0123456789 ")
            self.text = f"{name}: {value} instead of {wanted}"
            return

    def _is_same(self, name, value, wanted):
        if isinstance(wanted, torch.Tensor) and isinstance(value, torch.Tensor):
            if value.shape != wanted.shape:
                return False
            is_close = torch.allclose(value, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
            return is_close or self._is_as_precise(name, value, wanted)
        if _same(value, wanted):
            return True
        if not name.startswith("strides of result"):
            return False
        strides = strides_of_fakes(self._written, self._sizes)
        is_of_fakes = value == strides[int(name.split()[-1])]
        self.has_strides_of_fakes |= is_of_fakes
        return is_of_fakes

    def _is_as_precise(self, name, value, wanted):
        """Where terms of a sum cancel, eager's last digits are no better than others. The error of
        any order of summation is at most B = n eps sum |terms|, which eager's largest error does
        not exceed: at most twice that is at most 2 B."""
        precise = self.in_double.get(name)
        if value.dtype != torch.float32 or precise is None or precise.shape != value.shape:
            return False
        ours, eagers = ((x.double() - precise).abs().max().item() for x in (value, wanted))
        return ours <= 2 * eagers

    @functools.cached_property
    def in_double(self):
        """The outcome in f64, by name."""
        with _Doubles():
            found = outcome(self._written.program, self._written, self._sizes)
        return {} if isinstance(found, Exception) else dict(found)


class _Doubles(TorchFunctionMode):
    """Tensors of random f32 hold the same numbers in f64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function in (torch.randn, torch.rand) and made.dtype == torch.float32:
            return made.double()
        return made


def _same(value, wanted):
    if (value is None) != (wanted is None):
        zero = value if value is not None else wanted
        return isinstance(zero, torch.Tensor) and not zero.any()
    return value == wanted


def _short(value):
    is_error = isinstance(value, Exception)
    return f"{type(value).__name__} {str(value)[:600]}" if is_error else "a result"


# --- the roads that a program takes

STRICT = {"on_unsupported": "strict"}  # nothing in torch, of no call
LARGER = {"a": 5, "b": 7, "c": 6}  # sizes of the second call of a program with any size


def _through_dynamo(written, **how):
    return compile_with(lambda *inputs: written.program(*inputs), **how, **STRICT)


ROADS = {
    "core": lambda written: through_core(written.program, STRICT),
    "torch.compile": _through_dynamo,
    "any_size": lambda written: _through_dynamo(written, dynamic=True),
}


def first_difference(written, road="core"):
    """A Difference of the first call that has one, or that eager refuses; else of the last."""
    function = ROADS[road](written)
    for sizes in (None, LARGER) if road == "any_size" else (None,):
        expected = outcome(written.program, written, sizes)
        found = Difference(_outcome_or_error(function, written, sizes), expected, written, sizes)
        if found.text or isinstance(expected, Exception):
            break
    return found


def _outcome_or_error(function, written, sizes=None):
    try:
        return outcome(function, written, sizes)
    except Exception as error:  # noqa: BLE001: any failure of ours is a difference
        return getattr(error, "inner_exception", None) or error  # Dynamo's, around ours


# What fake tensors cannot run, or their other strides do not allow.
_CANNOT_TRACE = "torch.make_fx cannot trace this program: "
_TRACERS = (_CANNOT_TRACE + "RuntimeError", _CANNOT_TRACE + "ValueError: Cannot view a tensor with")


def is_of_torch(refusal, written, road):
    """Whether torch's own tracers refuse the program, whatever the backend."""
    if any(text in str(refusal) for text in _TRACERS):
        return True
    if road == "core" or isinstance(refusal, tandem.UserError):
        return False
    return any(_is_refused_by(backend, written, road) for backend in ("eager", "aot_eager"))


def _is_refused_by(backend, written, road):
    """The second one traces over symbols, as ours does."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *inputs: written.program(*inputs), backend=backend, dynamic=road == "any_size"
    )
    sizes = (None, LARGER) if road == "any_size" else (None,)
    return any(isinstance(_outcome_or_error(compiled, written, each), Exception) for each in sizes)
