"""Derivatives along tangents beside eager's forward mode: PyTorch's own samples, in f64.
`python forward_derivatives.py [name ...]` prints what differs."""

import sys

import torch
from torch import fx
from torch.autograd import forward_ad

import second_gradients
import tandem
from second_gradients import opdb, random_like
from tandem.capture import capture
from tandem.encode import encode

RTOL, ATOL = 1e-7, 1e-9


# logcumsumexp's gradient takes logarithms of tangents apart by sign: derivatives of that are right
# to six digits. Where two elements go to one place, eager's two ways differ: forward one of them
# counts, backward both.
LEFT_OUT = ("logcumsumexp", "nn.functional.max_unpool1d", "nn.functional.max_unpool2d",
            "nn.functional.max_unpool3d")  # fmt: skip


def entries():
    return {
        name: entry
        for name, entry in second_gradients.entries().items()
        if entry.supports_forward_ad and name not in LEFT_OUT
    }


def tangents_of(inputs):
    generator = torch.Generator().manual_seed(11)
    return [random_like(each, generator) if each.requires_grad else None for each in inputs]


class NoDerivative(Exception):
    """Eager has none for this sample."""


def eager(call):
    """Results, and derivatives of those that have a history."""
    inputs = call.inputs(True)
    flags = [each.requires_grad for each in call(*inputs) if isinstance(each, torch.Tensor)]
    try:
        with forward_ad.dual_level():
            duals = [
                each if tangent is None else forward_ad.make_dual(each.detach(), tangent)
                for each, tangent in zip(inputs, tangents_of(inputs), strict=True)
            ]
            results = [each for each in call(*duals) if isinstance(each, torch.Tensor)]
            pairs = [forward_ad.unpack_dual(each) for each in results]
    except RuntimeError as error:
        raise NoDerivative from error
    primals = [pair.primal for pair in pairs]
    if not any(flags) or any(each.is_complex() for each in [*inputs, *primals]):
        raise NoDerivative
    found = [
        torch.zeros_like(pair.primal) if pair.tangent is None else pair.tangent
        for pair, flag in zip(pairs, flags, strict=True)
        if flag
    ]
    return [each.detach() for each in primals], found


def traced(call, inputs):
    graph = fx.Graph()
    holders = tuple(graph.placeholder(f"x{i}") for i in range(len(inputs)))
    graph.output(graph.call_function(call, holders))
    return encode(capture(fx.GraphModule(torch.nn.Module(), graph), inputs))


def compiled(call):
    """The same of Tandem."""
    inputs = call.inputs(True)
    tangents = tangents_of(inputs)
    try:
        encoded = traced(call, inputs)
    except tandem.Unsupported as error:  # no operator, or one whose size data tell
        raise NoDerivative from error
    program = tandem.compile_text(encoded.text, "forward")
    values = [*inputs, *encoded.lifted]
    named = {name: values[at] for name, at in zip(encoded.names, encoded.arguments, strict=True)}
    for name, number in zip(encoded.names, encoded.arguments, strict=True):
        if number < len(tangents) and tangents[number] is not None:
            named["tangent_" + name] = tangents[number]
    results = program([named[name] for name in program.inputs])
    count = sum(result.kind == "tensor" for result in encoded.results)
    numbers = [result.number for result in encoded.results if result.kind == "tensor"]
    return [results[number] for number in numbers], results[count:]


def problem_of(call):
    results, derivatives = eager(call)
    ours = compiled(call)
    if not ours[1] and not any(each.any() for each in derivatives):
        derivatives = []
    if len(ours[1]) != len(derivatives):
        return f"{len(ours[1])} derivatives, not {len(derivatives)}"
    for what, got, wanted in (("result", ours[0], results), ("derivative", ours[1], derivatives)):
        for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
            one = torch.where(other.isnan(), other, one)
            if not torch.allclose(one, other, RTOL, ATOL, equal_nan=True):
                return f"{what} {number} differs by {(one - other).abs().max().item():.3g}"
    return None


def verdict(entry):
    """"right", "none" (eager has no derivative of the samples, or no operator here has a gradient)
    or what is wrong."""
    checked = 0
    for call in second_gradients.samples(entry):
        try:
            problem = problem_of(call)
        except NoDerivative:
            continue
        except Exception as error:  # noqa: BLE001: the sweep goes on
            if not second_gradients.has_first(call):
                continue
            problem = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
        if problem is not None:
            return problem
        checked += 1
    return "right" if checked else "none"


def sweep(table, verdict, names):
    """Prints what is wrong with entries of these names, or all, and how many are right."""
    found = {name: verdict(table[name]) for name in names or table}
    for name, said in found.items():
        if said not in ("right", "none"):
            print(f"{name}: {said}")
    counts = {word: list(found.values()).count(word) for word in ("right", "none")}
    print(f"{len(found)} operators: {counts}")


if __name__ == "__main__":
    sweep(entries(), verdict, sys.argv[1:])
