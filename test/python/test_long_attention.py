"""Attention whose scores are larger than the cache: forward keeps a number or two of each row,
backward makes the weights again and gives all three gradients in one kernel."""

import os

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with
from graphs import build
from machine import L2_BYTES

# Sizes [batch, heads, heads of keys, rows, keys, width], and the other arguments.
CASES = {
    "plain": ([1, 4, 4, 600, 600, 64], {}),
    "causal": ([1, 4, 4, 640, 640, 64], {"is_causal": True}),
    "causal_tall": ([2, 2, 2, 700, 530, 32], {"is_causal": True}),
    "causal_wide": ([2, 2, 2, 530, 700, 32], {"is_causal": True}),
    "odd": ([1, 5, 5, 571, 613, 40], {}),
    "grouped": ([1, 8, 2, 600, 600, 32], {"is_causal": True, "enable_gqa": True}),
    "bias": ([1, 6, 6, 600, 600, 64], {"attn_mask": torch.randn(600, 600)}),
    "bool_mask": ([2, 3, 3, 600, 520, 64], {"attn_mask": torch.rand(2, 1, 600, 520) < 0.7}),
    "scaled": ([4, 1, 1, 1100, 1100, 128], {"scale": 0.3}),
}


def is_one_kernel(matrices, shared):
    """Its tasks are the matrices; others than a few for each core would leave cores idle. What all
    blocks of a task's rows share, `shared` floats, stays in the core's cache."""
    return matrices % os.cpu_count() == 0 and shared * 4 <= L2_BYTES


def tensors_of(sizes):
    batch, heads, shared, rows, keys, width = sizes
    torch.manual_seed(rows + keys)
    query = torch.randn(batch, heads, rows, width)
    return [query, *(torch.randn(batch, shared, keys, width) for _ in range(2))]


def gradients(function, tensors, tangent):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    saved = result.grad_fn.handle.bytes if hasattr(result.grad_fn, "handle") else 0
    return torch.autograd.grad(result, leaves, tangent), saved


def attention(arguments):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **arguments)


def in_doubles(arguments):
    mask = arguments.get("attn_mask")
    is_bias = mask is not None and mask.is_floating_point()
    return arguments | ({"attn_mask": mask.double()} if is_bias else {})


def check_beside(gradient, eager, reference):
    """Large scores (`scaled`: up to 15) make terms that cancel: there eager's kernel, in f32 too,
    is 1.7e-5 beside 1e-4 of an element. None is farther than its farthest, and the root of the mean
    square of the errors no larger than 1.25 times its own, whose sums over keys are of 512 each."""
    errors = [(t.double() - reference).abs() for t in (gradient, eager)]
    beyond = [(error - 1e-4 * reference.abs()).max() for error in errors]
    assert beyond[0] <= max(1e-5, beyond[1])
    mean, allowed = (error.square().mean().sqrt() for error in errors)
    assert mean <= 1.25 * allowed


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    sizes, arguments = CASES[name]
    tensors = tensors_of(sizes)
    tangent = torch.randn_like(tensors[0])
    actual, saved = gradients(compile_with(attention(arguments)), tensors, tangent)
    doubles = [tensor.double() for tensor in tensors]
    wanted, _ = gradients(attention(in_doubles(arguments)), doubles, tangent.double())
    eager, _ = gradients(attention(arguments), tensors, tangent)
    for gradient, other, reference in zip(actual, eager, wanted, strict=True):
        check_beside(gradient, other, reference)
    batch, heads, _, rows, keys, width = sizes
    # As of eager's kernel: no scores, but results, and here two numbers a row in the place of one.
    assert 0 < saved <= batch * heads * rows * (width + 2) * 4
    (graph,) = tandem.report()["graphs"]
    if is_one_kernel(batch * heads, keys * width):
        assert graph["backward"]["kernel_calls"] <= 4  # and copies of one


def test_few_bytes_are_saved_by_a_minimum_cut_too():
    sizes, arguments = CASES["causal"]
    tensors = tensors_of(sizes)
    tangent = torch.randn_like(tensors[0])
    bytes_of = {}
    for budget in ("default", "as_read", "min_cut"):
        compiled = compile_with(attention(arguments), memory_budget=budget)
        actual, bytes_of[budget] = gradients(compiled, tensors, tangent)
        wanted, _ = gradients(attention(arguments), tensors, tangent)
        for gradient, reference in zip(actual, wanted, strict=True):
            torch.testing.assert_close(gradient, reference, rtol=1e-4, atol=1e-5)
    assert 0 < bytes_of["min_cut"] <= bytes_of["as_read"]


def test_the_same_bits_at_any_number_of_threads():
    sizes, arguments = CASES["causal_tall"]
    tensors = tensors_of(sizes)
    tangent = torch.randn_like(tensors[0])
    results = []
    for threads in (1, 2, 3, 8):
        compiled = compile_with(attention(arguments), threads=threads)
        results.append(gradients(compiled, tensors, tangent)[0])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_dropout_draws_the_same_numbers_again(monkeypatch):
    """Separate kernels, which have the same numbers, give the same gradients; and the result is
    linear in the values."""
    tensors = tensors_of([1, 4, 4, 600, 600, 64])
    tangent = torch.randn_like(tensors[0])
    function = attention({"dropout_p": 0.3})

    def run(compiled):
        torch.manual_seed(5)
        return gradients(compiled, tensors, tangent)

    compiled = compile_with(function)
    actual, saved = run(compiled)
    assert saved <= 4 * 600 * 600 * 4 / 8
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        separate, _ = run(compile_with(function))
    for one, other in zip(actual, separate, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.manual_seed(5)
    with torch.no_grad():
        result = compiled(*tensors)
    along = [(actual[2] * tensors[2]).sum(), (result * tangent).sum()]
    torch.testing.assert_close(*along, rtol=1e-4, atol=1e-2)


def test_blind_rows():
    """What eager's kernel gives where a row sees nothing."""
    tensors = tensors_of([1, 4, 4, 600, 600, 64])
    tangent = torch.randn_like(tensors[0])
    mask = torch.rand(600, 600) < 0.5
    mask[7] = mask[599] = False
    function = attention({"attn_mask": mask})
    actual, _ = gradients(compile_with(function), tensors, tangent)
    doubles = [tensor.double() for tensor in tensors]
    wanted, _ = gradients(function, doubles, tangent.double())
    for gradient, reference in zip(actual, wanted, strict=True):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-4, atol=1e-5)
    assert (actual[0][:, :, 7] == 0).all()


@pytest.mark.parametrize("sizes", [(4, 1040, 520, 16), (6, 517, 511, 24), (4, 65, 2050, 8)])
def test_a_product_that_sums_along_the_rows(sizes):
    """Rows in blocks of different heights, each of which adds to the sums."""
    batch, rows, columns, width = sizes
    torch.manual_seed(0)
    a, d = (torch.randn(batch, rows, width) for _ in range(2))
    b, c = torch.randn(batch, width, columns), torch.randn(batch, columns, width)

    def function(a, b, c, d):
        p = (a @ b).relu()
        return p @ c, p.transpose(1, 2) @ d

    actual = compile_with(function)(a, b, c, d)
    (graph,) = tandem.report()["graphs"]
    is_one = is_one_kernel(batch, max(rows, columns) * width)
    if rows < 100 and L2_BYTES < 1 << 20:  # few rows for each copy of the sums: by the rates
        assert graph["forward"]["kernel_calls"] in (1, 3)
    else:
        assert graph["forward"]["kernel_calls"] == (1 if is_one else 3)
    for one, other in zip(actual, function(*(t.double() for t in (a, b, c, d))), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-3)


def test_the_interpreter_gathers_too():
    """One group of matrices with the loops of a gathering kernel, run statement by statement."""
    inputs = "%a: f32[4, 516, 2], %b: f32[4, 2, 516], %c: f32[4, 516, 2]"
    lines = [
        "%0 = aten.bmm(%a, %b)",
        "%p = aten.relu(%0)",
        "%t = aten.transpose.int(%p, 1, 2)",
        "%d = aten.bmm(%t, %c)",
        "%r = aten.bmm(%p, %c)",
    ]
    torch.manual_seed(0)
    arguments = [torch.randn(4, 516, 2), torch.randn(4, 2, 516), torch.randn(4, 516, 2)]
    compiled = build(inputs, lines, results="%d, %r")
    if is_one_kernel(4, 516 * 2):
        assert compiled.counts["instructions"] == 1
    interpreted = build(inputs, lines, results="%d, %r", interpret=True).run(arguments)
    assert all(map(torch.equal, compiled.run(arguments), interpreted))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [40, 300])
def test_accuracy_of_16_bit_floats(dtype, length):
    """No less accurate than eager's kernel. Scores are not rounded; weights are, to bf16 alone."""
    tensors = [tensor.to(dtype) * 2 for tensor in tensors_of([2, 3, 3, length, length, 32])]
    tangent = torch.randn(tensors[0].shape).to(dtype)

    def values(function, tensors, tangent):
        result = function(*tensors)
        return [result.detach(), *gradients(function, tensors, tangent)[0]]

    function = attention({"is_causal": True})
    exact = values(function, [tensor.double() for tensor in tensors], tangent.double())
    eager = values(function, tensors, tangent)
    actual = values(compile_with(function), tensors, tangent)
    for one, other, reference in zip(actual, eager, exact, strict=True):
        scale = reference.abs().max()
        error, allowed = ((t.double() - reference).abs().max() / scale for t in (one, other))
        assert error <= 1.25 * allowed
