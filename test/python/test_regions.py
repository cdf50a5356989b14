"""Regions that are compiled once (torch.compiler.nested_compile_region): calls of one body."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch.compiler import nested_compile_region

import tandem
from compared import beside_eager
from compiled import compile_with


class WrittenOut(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Layer(WrittenOut):
    forward = nested_compile_region(WrittenOut.forward)


def layers(count, kind=Layer, width=16):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[kind(width) for _ in range(count)])


def rows(count, width=16):
    return torch.randn(count, width, requires_grad=True)  # as the results of layers do


def step(model, x):
    result = model(x)
    result.square().mean().backward()
    return [result, *(parameter.grad for parameter in model.parameters())]


def beside(model, x, **options):
    """Results and gradients, compiled (whole, no part in torch) and in eager."""
    torch._dynamo.reset()
    tandem.reset_report()
    compiled = torch.compile(
        copy.deepcopy(model), backend=tandem.backend,
        options={"on_unsupported": "strict", **options},
    )
    for got, wanted in zip(step(compiled, x), step(model, x), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    return tandem.report()["graphs"][0]


def test_what_is_compiled_does_not_grow_with_the_calls():
    few, many = beside(layers(3), rows(4)), beside(layers(12), rows(4))
    assert few["control flow"] == {"invoke_subgraph": 3}
    assert many["control flow"] == {"invoke_subgraph": 12}
    for graph in (few, many):
        assert graph["text"].count("graph @") == 2 and not graph["regions inline"]
    for half in ("forward", "backward"):
        assert few[half]["kernels"] == many[half]["kernels"]


@pytest.mark.parametrize("budget", ["default", "min_memory", 0.5, "min_cut", "as_read"])
def test_every_budget(budget):
    beside(layers(3), rows(4), memory_budget=budget)


def test_bytes_that_nothing_keeps_are_an_error_of_the_regions_as_they_are():
    x = rows(512)
    least = beside(layers(4), x)["memory"]["step"]
    with pytest.raises(Exception, match=f"it takes {least}, arguments included"):
        beside(layers(4), x, memory_budget="1KB")


def test_bytes_that_bodies_would_not_keep_are_kept_with_the_regions_inline():
    """A product that is dear to compute again is saved by a body, whatever the bytes."""
    x = rows(512, 128)
    whole = beside(layers(4, width=128), x)["memory"]["step"]
    with pytest.raises(Exception, match="it takes") as caught:
        beside(layers(4, WrittenOut, 128), x, memory_budget="1KB")
    least = int(re.search(r"it takes (\d+)", str(caught.value))[1])
    assert least < whole
    graph = beside(layers(4, width=128), x, memory_budget=f"{least}B")
    assert graph["memory"]["step"] <= least and "no choice" in graph["regions inline"]


def test_sizes_that_vary():
    model = layers(3)
    compiled = compile_with(copy.deepcopy(model), on_unsupported="strict")
    for count in (4, 7, 9):
        x = rows(count)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def test_frozen_weights_see_no_calls():
    model = layers(3).eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        compiled = compile_with(copy.deepcopy(model), freeze=True, on_unsupported="strict")
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    assert tandem.report()["graphs"][-1]["frozen"]


def test_dropout_is_drawn_by_each_call_and_again_by_its_gradient():
    region = nested_compile_region(lambda x: F.dropout(x, 0.5))
    x = torch.ones(400, requires_grad=True)
    one, other = compile_with(lambda x: (region(x), region(x)), on_unsupported="strict")(x)
    assert not torch.equal(one, other)
    (one + other).sum().backward()
    assert torch.equal(x.grad, one + other)


def test_a_region_in_a_region():
    inner = nested_compile_region(lambda x: torch.tanh(x) * 2)
    outer = nested_compile_region(lambda x, w: (inner(x @ w), inner(x)))

    def f(x, w):
        one, other = outer(x, w)
        again, _ = outer(one, w)
        return again + other

    x = rows(4, 4)
    beside_eager(f, x, torch.randn(4, 4, requires_grad=True))
    assert tandem.report()["graphs"][-1]["control flow"]["invoke_subgraph"] == 2


def test_gradients_of_gradients():
    region = nested_compile_region(lambda x, w: torch.sin(x * w))

    def f(x, w):
        return region(region(x, w), w)

    def penalty(call, x, w):
        (gradient,) = torch.autograd.grad(call(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), (x, w))

    x, w = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    compiled = compile_with(f, on_unsupported="strict")
    for got, wanted in zip(penalty(compiled, x, w), penalty(f, x, w), strict=True):
        torch.testing.assert_close(got, wanted)


def test_one_whole_step_of_autocast():
    model = layers(2)
    x = torch.randn(4, 16)
    compiled = compile_with(copy.deepcopy(model), on_unsupported="strict")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, wanted = compiled(x), model(x)
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["writes", "counts"])
def test_what_cannot_be_a_body_runs_inline_and_the_report_says_why(name):
    def writes(x, buffer):
        buffer.add_(1)
        return x * buffer

    def counts(x, buffer):
        return F.batch_norm(x, buffer, torch.ones(4), training=True)

    region = nested_compile_region({"writes": writes, "counts": counts}[name])

    def f(x, buffer):
        return region(x, buffer) + region(x, buffer)

    x = torch.randn(5, 4)
    mine, theirs = torch.ones(4), torch.ones(4)
    tandem.reset_report()
    compiled = compile_with(f, on_unsupported="strict")
    torch.testing.assert_close(compiled(x, mine), f(x, theirs))
    torch.testing.assert_close(mine, theirs)
    assert tandem.report()["graphs"][0]["regions inline"]
    assert "regions run inline" in str(tandem.report())
