"""When two implementations of a model are equal: judged against the truth.

The truth is eager in f64 with the same weights and inputs. The error of a tensor is the largest
difference from the truth. Tandem is equal where the error of every tensor is at most
    max(FACTOR x error of eager, FLOOR x scale)
Eager's error is the largest of several runs in the model's own dtype: with weights and inputs as
they are, and with every element of both moved by up to one rounding. Moving them measures the
conditioning of the model at this point: a difference that eager itself shows when its inputs change
in the last place is not an error of who computes it. A single run may be lucky: a sum that happens
to be exact, a ReLU on the right side of zero. Rounding takes another side of a kink only now and
then, so where three runs do not explain a difference, up to MOST_RUNS are made, and the row says
how many it took. There is no tolerance beside that: what no run of eager shows is an error.

FACTOR: the errors of one computation are draws from some distribution, of which eager's few runs
give the largest; another order of the sums draws again, with a constant that depends on the order.
FLOOR: eager's error may be zero, or that of one rounding, where Tandem adds some in between: eight
halves of eps each way round a value, a scale, a sum and a cast, each in forward and in backward.
The scale is the largest element of the tensor itself. A gradient that is zero in exact arithmetic,
as of a bias before a batch norm, is rounding noise in the truth as well: under NOISE of the largest
of all gradients a tensor has no scale of its own, and gets that of all. So do buffers, as the mean
of numbers around zero has not the scale of the numbers, and movements of parameters.
"""

import dataclasses
import itertools

import torch
from torch.overrides import TorchFunctionMode

FACTOR = 4
FLOOR = 8  # in eps of the dtype
NOISE = 1e-10  # what f64 leaves of a zero, and no gradient that teaches a weight anything
RUNS, MOST_RUNS = 3, 27


def grouped_mm(rows, matrices, offs, bias=None, out_dtype=None):
    """torch's own has no f64. Rows from one offset to the next with a matrix each."""
    assert bias is None and out_dtype is None
    first, parts = 0, []
    for last, matrix in zip(offs.tolist(), matrices, strict=True):
        parts.append(rows[first:last] @ matrix)
        first = last
    return torch.cat(parts)


class Wide(TorchFunctionMode):
    """Models ask for f32 by name here and there (softmax, norms). In the truth that is f64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if x is torch.float32 else x

        args = tuple(wide(arg) for arg in args)
        kwargs = {name: wide(value) for name, value in (kwargs or {}).items()}
        if function is torch.Tensor.float:
            return args[0].double()
        if function is torch._grouped_mm:
            return grouped_mm(*args, **kwargs)
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
    runs: int = 0  # of eager that it took

    @property
    def is_equal(self):
        return not self.reason

    def add(self, name, ratio, reason):
        if ratio > self.ratio:
            self.ratio, self.where = ratio, name
            self.reason = f"{name}: {reason}" if ratio > 1 else ""


def judge(actual, eager, truth):
    """Of dicts of tensors by name; `eager` is a list of them."""
    verdict = Verdict(runs=len(eager))
    if actual.keys() != truth.keys():
        names = sorted(actual.keys() ^ truth.keys())
        verdict.add(names[0], float("inf"), "only one of eager and Tandem has it")
        return verdict
    for name in truth:
        runs = [each[name] for each in eager]
        compare(verdict, name, actual[name], runs, truth[name], scale_of(name, truth))
    return verdict


def judge_by_runs(actual, runs, truth, most=MOST_RUNS):
    """`runs` gives results of eager, one after the other: as many are taken as it needs."""
    eager = list(itertools.islice(runs, RUNS))
    verdict = judge(actual, eager, truth)
    while not verdict.is_equal and verdict.ratio < float("inf") and len(eager) < most:
        eager.append(next(runs))
        verdict = judge(actual, eager, truth)
    return verdict


def scale_of(name, truth):
    """Of the tensor itself, or of the group of a "grad weight", "buffer mean", "moved weight"."""
    own, group = largest(truth[name]), name.split()[0]
    if group not in ("grad", "buffer", "moved"):
        return own
    shared = max(largest(truth[n]) for n in truth if n.split()[0] == group)
    return own if group == "grad" and own > NOISE * shared else shared


def largest(tensor):
    if tensor is None or tensor.numel() == 0 or not tensor.is_floating_point():
        return 0.0
    return finite(tensor).abs().max().item()


def finite(tensor):
    return tensor.detach().double().nan_to_num(0.0, 0.0, 0.0)


def compare(verdict, name, actual, runs, truth, scale):
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
    info = torch.finfo(actual.dtype)
    floor = FLOOR * info.eps * scale
    allowed = max(FACTOR * theirs, floor, info.tiny)
    reason = f"error {ours:.1e}, eager's {theirs:.1e}, floor {floor:.1e}"
    verdict.add(name, ours / allowed, reason)


def error_of(tensor, truth):
    return (finite(tensor) - finite(truth)).abs().max().item()


def same_specials(actual, eager):
    masks = (torch.isnan, torch.isposinf, torch.isneginf)
    return all(torch.equal(mask(actual), mask(eager)) for mask in masks)
