"""When two implementations of a model are equal: judged against the truth.

The truth is eager in f64 with the same weights and inputs. The error of a tensor is the largest
difference from the truth. Tandem is equal where the error of every tensor is at most
    max(4 x error of eager in f32, FLOOR x scale)
Eager's error is the largest of three runs: with the weights as they are, and twice with every
weight moved by up to one rounding. A single run may be lucky: a sum that happens to be exact, a
ReLU on the right side of zero.

Rounding can still take another side of a kink than all three. So a model that is not equal in f32
is compiled once more in f64, where its error must be at most EXACT x scale; in f32 it must be at
most KINK x scale then, and the row says so ("by f64").
The scale is the largest element of the tensor itself; but of all gradients together for a
gradient, because one that is zero in exact arithmetic, as of a bias before a batch norm, is
rounding noise and has no scale of its own; and likewise of all buffers for a buffer (the mean of
numbers around zero) and of all parameters' movements for a movement.
"""

import dataclasses

import torch
from torch.overrides import TorchFunctionMode

FACTOR = 4
FLOOR = 16 * torch.finfo(torch.float32).eps
EXACT = 1e-9
KINK = 0.05


class Wide(TorchFunctionMode):
    """Models ask for f32 by name here and there (softmax, norms). In the truth that is f64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if x is torch.float32 else x

        args = tuple(wide(arg) for arg in args)
        kwargs = {name: wide(value) for name, value in (kwargs or {}).items()}
        if function is torch.Tensor.float:
            return args[0].double()
        return function(*args, **kwargs)

    def __enter__(self):
        self._before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(self._before)
        return super().__exit__(*error)


@dataclasses.dataclass
class Verdict:
    """`ratio`: the worst error over the largest that is allowed; `where`: of which tensor."""

    ratio: float = 0.0
    where: str = ""
    reason: str = ""
    by_f64: bool = False

    @property
    def is_equal(self):
        return not self.reason

    def add(self, name, ratio, reason):
        if ratio > self.ratio:
            self.ratio, self.where = ratio, name
            self.reason = f"{name}: {reason}" if ratio > 1 else ""


def judge(actual, eager, truth, floor=FLOOR):
    """Of dicts of tensors by name; `eager` is a list of them."""
    verdict = Verdict()
    if actual.keys() != truth.keys():
        names = sorted(actual.keys() ^ truth.keys())
        verdict.add(names[0], float("inf"), "only one of eager and Tandem has it")
        return verdict
    for name in truth:
        runs = [each[name] for each in eager]
        compare(verdict, name, actual[name], runs, truth[name], floor * scale_of(name, truth))
    return verdict


def scale_of(name, truth):
    """Of the whole group for "grad weight", "buffer mean" and "moved weight"."""
    group = name.split()[0]
    is_shared = group in ("grad", "buffer", "moved")
    names = [n for n in truth if n.split()[0] == group] if is_shared else [name]
    return max(largest(truth[n]) for n in names)


def largest(tensor):
    if tensor is None or tensor.numel() == 0 or not tensor.is_floating_point():
        return 0.0
    return finite(tensor).abs().max().item()


def finite(tensor):
    return tensor.detach().double().nan_to_num(0.0, 0.0, 0.0)


def compare(verdict, name, actual, runs, truth, floor):
    eager = runs[0]
    if eager is None or actual is None:
        other = actual if eager is None else eager
        if other is not None and other.any():
            verdict.add(name, float("inf"), "a gradient instead of none, or none")
        return
    if actual.shape != eager.shape or actual.dtype != eager.dtype:
        ours, theirs = [f"{x.dtype} {list(x.shape)}" for x in (actual, eager)]
        verdict.add(name, float("inf"), f"{ours} instead of {theirs}")
        return
    if not eager.is_floating_point():
        if not torch.equal(actual, eager):
            verdict.add(name, float("inf"), "differs")
        return
    if not same_specials(actual, eager):
        verdict.add(name, float("inf"), "infinities or NaN at other places")
        return
    if actual.numel() == 0:
        return
    ours = error_of(actual, truth)
    theirs = max(error_of(run, truth) for run in runs)
    allowed = max(FACTOR * theirs, floor, torch.finfo(torch.float32).tiny)
    reason = f"error {ours:.1e}, eager's {theirs:.1e}, floor {floor:.1e}"
    verdict.add(name, ours / allowed, reason)


def error_of(tensor, truth):
    return (finite(tensor) - finite(truth)).abs().max().item()


def same_specials(actual, eager):
    masks = (torch.isnan, torch.isposinf, torch.isneginf)
    return all(torch.equal(mask(actual), mask(eager)) for mask in masks)
