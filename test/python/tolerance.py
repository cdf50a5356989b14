"""When an element of a result is eager's: judged by the element's own scale.

It may be off by the dtype's tolerance of itself, and by its room: how far the truth, eager in f64
on the same operands, moves there when every operand moves by that tolerance of itself. That is the
scale of the terms an element is made of: a sum that cancels has the room of its terms, a small
result that nothing cancels in (a softmax over many columns) has next to none.
"""

import itertools

import torch

from samples import NAMES

# What eager raises for a call that it does not take; NotImplementedError is a RuntimeError, and
# operators that are written in Python assert, or divide by a number that is 0.
EAGER_REFUSES = (
    RuntimeError,
    IndexError,
    ValueError,
    TypeError,
    AssertionError,
    ZeroDivisionError,
)

TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 2.0**-9, "bf16": 2.0**-6}
TOLERANCE |= {"f8e4m3fn": 0.0, "f8e5m2": 0.0}  # they are only converted to
DRAWS = 16  # of directions to move operands in
# No room is larger: an operand that is moved over a jump (floor, a bound) moves the result by far.
MOST = 50


def difference(actual, expected, scale=1.0, room=None):
    """None when equal within the tolerance, else what differs. `room()`: of each element, or None
    where it is not known."""
    if not isinstance(actual, torch.Tensor):
        actual = torch.as_tensor(actual, dtype=expected.dtype)
    if actual.dtype != expected.dtype:
        return f"dtype {NAMES[actual.dtype]} instead of {NAMES.get(expected.dtype, expected.dtype)}"
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if expected.numel() == 0:
        return None
    if not expected.dtype.is_floating_point:
        return different_integers(actual, expected)
    rtol = TOLERANCE[NAMES[expected.dtype]] * scale
    a, e = actual.detach().double(), expected.detach().double()
    least = rtol * smallest(e, torch.finfo(expected.dtype))
    if torch.allclose(a, e, rtol=rtol, atol=least, equal_nan=True):
        return None
    allowed = rtol * e.abs() + least + absolute(e, rtol, scale, room)
    error = (a - e).abs()
    wrong = ~((error <= allowed) | (a == e) | (a.isnan() & e.isnan()))
    if not wrong.any():
        return None
    error = error.where(wrong, 0).nan_to_num(torch.inf, torch.inf, torch.inf)
    at = error.argmax().item()
    return (
        f"{wrong.sum().item()} of {a.numel()} differ, max error {error.max().item():.3g}: "
        f"{a.flatten()[at].item()!r} instead of {e.flatten()[at].item()!r} at {at}"
    )


def smallest(expected, info):
    """What counts as zero: beside the largest, and beside 1, it is lost where they are added."""
    finite = expected[expected.isfinite()].abs()
    largest = min(1.0, finite.max().item()) if finite.numel() else 0.0
    return max(info.smallest_normal, info.eps * largest)


def absolute(expected, rtol, scale, room):
    """What an element may be off by besides rtol of itself."""
    finite = expected[expected.isfinite()]
    magnitude = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    most = min(rtol * magnitude, rtol * MOST)
    own = room() if room else None
    return most if own is None else (own * scale).clamp(max=most)


class Rooms:
    """Of the results of `function`, a list of tensors, of these operands. Eager's own rounding
    counts too, on the same moved operands: a result that is zero in exact arithmetic is the noise
    of its terms, and moves with none of them. Nothing is computed before it is asked for."""

    def __init__(self, function, operands, generator):
        self._function, self._operands, self._generator = function, operands, generator
        self._known = {}

    def truth(self):
        """The results in f64; None where eager has none."""
        return self._once("truth", lambda: self._function(widened(self._operands)))

    def of(self, number, dtype):
        """What gives the room of a result, or None."""

        def room():
            found = self._once(dtype, lambda: self._moved(TOLERANCE[NAMES[dtype]]))
            return found and found[number]

        return room

    def _once(self, key, compute):
        if key not in self._known:
            try:
                self._known[key] = compute()
            except EAGER_REFUSES:
                self._known[key] = None
        return self._known[key]

    def _moved(self, tolerance):
        truth = self.truth()
        if truth is None:
            return None
        moved = [torch.zeros_like(t, dtype=torch.float64) if is_float(t) else None for t in truth]
        draws = (nudged(self._operands, tolerance, self._generator) for _ in range(DRAWS))
        for draw in itertools.chain([nudged(self._operands, 0, self._generator)], draws):
            wide, own = self._function(widened(draw)), self._function(draw)
            for room, a, b, c in zip(moved, truth, wide, own, strict=True):
                if room is not None:
                    room.copy_(torch.maximum(room, torch.maximum(apart(a, b), apart(b, c))))
        return moved


def apart(a, b):
    return (a.detach().double() - b.detach().double()).abs().nan_to_num(0.0, 0.0, 0.0)


def widened(tensors):
    """Floats in f64; where there are none integers too, as the result may be one of floats."""
    has_floats = any(tensor.is_floating_point() for tensor in tensors)

    def stays(tensor):
        return not tensor.is_floating_point() and (has_floats or tensor.dtype == torch.bool)

    return [t.clone() if stays(t) else t.detach().double() for t in tensors]


def nudged(tensors, tolerance, generator):
    """Every element moved up or down by the tolerance of itself."""

    def one(tensor):
        if not tensor.is_floating_point():
            return tensor.clone()
        signs = torch.randint(0, 2, tensor.shape, generator=generator).double() * 2 - 1
        return (tensor.detach().double() * (1 + signs * tolerance)).to(tensor.dtype)

    return [one(tensor) for tensor in tensors]


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def different_integers(actual, expected):
    if torch.equal(actual, expected):
        return None
    wrong = (actual != expected).flatten()
    at = wrong.nonzero()[0].item()
    return (
        f"{wrong.sum().item()} of {wrong.numel()} differ: {actual.flatten()[at].item()} instead of "
        f"{expected.flatten()[at].item()} at {at}"
    )


def bits(value):
    if not isinstance(value, torch.Tensor):
        return value
    return list(value.shape), value.contiguous().reshape(-1).view(torch.uint8)


def same_bits(a, b):
    a, b = bits(a), bits(b)
    return a == b if not isinstance(a, tuple) else a[0] == b[0] and torch.equal(a[1], b[1])
