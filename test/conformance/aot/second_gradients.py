"""Gradients of gradients beside eager: PyTorch's own samples, in f64, against its own second
gradients. `python second_gradients.py [name ...]` prints what differs."""

import os
import sys
import zlib

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../python"))

import opdb  # noqa: E402

SAMPLES = 3
RTOL, ATOL = 1e-7, 1e-9
# Entries whose samples are random, have no one gradient, or take minutes.
LEFT_OUT = ("nn.functional.dropout", "nn.functional.alpha_dropout", "nn.functional.rrelu",
            "nn.functional.feature_alpha_dropout", "nn.functional.dropout2d",
            "nn.functional.dropout3d", "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d", "nn.functional.scaled_dot_product_attention",
            "nn.functional.multi_head_attention_forward", "normal", "bernoulli",
            "pca_lowrank", "svd_lowrank")  # fmt: skip


def entries():
    """Those of op_db that have second gradients."""
    return {
        name: entry
        for name, entry in opdb.entries().items()
        if entry.supports_gradgrad
        and entry.supports_autograd
        and torch.float64 in entry.supported_dtypes("cpu")
        and entry.name not in LEFT_OUT
    }


def number_of(name):
    """By which a part of the entries is chosen."""
    return zlib.crc32(name.encode())


def samples(entry):
    torch.manual_seed(0)
    found = []
    for sample in list(entry.sample_inputs("cpu", torch.float64, requires_grad=True)):
        call = opdb.Call(entry, sample)
        if any(tensor.requires_grad for tensor in call.tensors):
            found.append(call)
        if len(found) == SAMPLES:
            break
    return found


class NoSecondGradient(Exception):
    """Eager has none for this sample."""


def _ends_and_leaves(function, inputs):
    """Results and inputs that have a history."""
    results = [each for each in function(*inputs) if isinstance(each, torch.Tensor)]
    ends = [each for each in results if each.requires_grad]
    leaves = [each for each in inputs if each.requires_grad]
    if not ends or any(each.is_complex() for each in [*ends, *leaves]):
        raise NoSecondGradient
    return ends, leaves


def _weighted(leaves, gradients, generator):
    """A random sum of all that has a history."""
    sums = []
    for leaf, gradient in zip(leaves, gradients, strict=True):
        weights = random_like(leaf, generator)  # drawn for all, whichever have a gradient
        if gradient is not None and gradient.requires_grad:
            sums.append((gradient * weights).sum())
    if not sums:
        raise NoSecondGradient
    return sum(sums)


def second_gradients(function, inputs):
    """First gradients for random tangents, and those of a random sum of them, to inputs and
    tangents."""
    generator = torch.Generator().manual_seed(5)
    ends, leaves = _ends_and_leaves(function, inputs)
    tangents = [random_like(each, generator).requires_grad_() for each in ends]
    first = torch.autograd.grad(ends, leaves, tangents, create_graph=True, allow_unused=True)
    total = _weighted(leaves, first, generator)
    second = torch.autograd.grad(total, [*leaves, *tangents], allow_unused=True)
    return [*first, *second]


def third_gradients(function, inputs):
    """Those of a random sum of the second gradients, to inputs and tangents; the first of three."""
    generator = torch.Generator().manual_seed(6)
    ends, leaves = _ends_and_leaves(function, inputs)
    tangents = [random_like(each, generator).requires_grad_() for each in ends]
    both = [*leaves, *tangents]
    first = torch.autograd.grad(ends, leaves, tangents, create_graph=True, allow_unused=True)
    total = _weighted(leaves, first, generator)
    second = torch.autograd.grad(total, both, create_graph=True, allow_unused=True)
    total = _weighted(both, second, generator)
    return list(torch.autograd.grad(total, both, allow_unused=True))


def random_like(value, generator):
    return torch.randn(value.shape, generator=generator, dtype=value.dtype)


def zeros_for_none(values, like):
    pairs = zip(values, like, strict=True)
    return [torch.zeros_like(b) if a is None and b is not None else a for a, b in pairs]


def same(ours, eager):
    """Where eager has no number, ours may be one: its second gradients at kinks are often 0 / 0."""
    return torch.allclose(torch.where(eager.isnan(), eager, ours), eager, RTOL, ATOL, True)


def problem_of(call):
    """None, or what differs. NoSecondGradient where eager refuses the sample."""
    try:
        expected = second_gradients(call, call.inputs(True))
    except RuntimeError as error:
        raise NoSecondGradient from error
    inputs = call.inputs(True)
    actual = second_gradients(opdb.compiled(call, inputs, "error"), inputs)
    expected, actual = zeros_for_none(expected, actual), zeros_for_none(actual, expected)
    for number, (ours, eager) in enumerate(zip(actual, expected, strict=True)):
        if eager is None:
            continue
        if not same(ours, eager) and (call.entry, number) not in opdb.OTHER_GRADIENTS:
            worst = (ours - eager).abs().max().item()
            return f"gradient {number} of {len(expected)} differs by {worst:.3g}"
    return None


def first_gradients(function, inputs):
    results = [each for each in function(*inputs) if isinstance(each, torch.Tensor)]
    ends = [each for each in results if each.requires_grad]
    leaves = [each for each in inputs if each.requires_grad]
    tangents = [torch.ones_like(each) for each in ends]
    return torch.autograd.grad(ends, leaves, tangents, allow_unused=True)


def has_first(call):
    inputs = call.inputs(True)
    try:
        first_gradients(opdb.compiled(call, inputs, "error"), inputs)
    except Exception:  # noqa: BLE001: whatever it is, the second one is not why
        return False
    return True


def verdict(entry):
    """"right", "none" (eager has no second gradient of the samples), "no first" (Tandem refuses the
    first one, too), or what is wrong."""
    checked = 0
    for call in samples(entry):
        try:
            problem = problem_of(call)
        except NoSecondGradient:
            continue
        except Exception as error:  # noqa: BLE001: the sweep goes on
            said = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
            problem = said if has_first(call) else "no first"
        if problem:
            return problem
        checked += 1
    return "right" if checked else "none"


def main(names):
    table = entries()
    for name in names or table:
        found = verdict(table[name])
        if found != "right":
            print(name, "-", found, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
