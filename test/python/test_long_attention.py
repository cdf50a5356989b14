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
    # Columns in pieces (schedule/column_pieces.cc): five, and of both sides of the diagonal.
    "far": ([1, 4, 4, 200, 5120, 32], {}),
    "far_causal": ([1, 4, 4, 2304, 2304, 64], {"is_causal": True}),
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


@pytest.mark.parametrize("name", ["plain", "causal", "far", "bool_mask"])
def test_bf16_saves_no_scores(name):
    """Beside its inputs backward reads the result before it is rounded, and two numbers a row."""
    sizes, arguments = CASES[name]
    tensors = [tensor.bfloat16() for tensor in tensors_of(sizes)]
    _, saved = gradients(compile_with(attention(arguments)), tensors, torch.randn_like(tensors[0]))
    batch, heads, _, rows, _, width = sizes
    assert 0 < saved <= batch * heads * rows * (width + 2) * 4


@pytest.mark.parametrize("name", ["plain", "causal", "far_causal", "grouped"])
def test_bf16_gradients(name):
    """Backward adds its sums up in f32 where the weights are made, and rounds them behind: no error
    is larger than eager's, whose kernel rounds as often."""
    sizes, arguments = CASES[name]
    tensors = [tensor.bfloat16() for tensor in tensors_of(sizes)]
    tangent = torch.randn_like(tensors[0])
    actual, _ = gradients(compile_with(attention(arguments)), tensors, tangent)
    eager, _ = gradients(attention(arguments), tensors, tangent)
    doubles = [tensor.double() for tensor in tensors]
    wanted, _ = gradients(attention(arguments), doubles, tangent.double())
    for gradient, other, reference in zip(actual, eager, wanted, strict=True):
        errors = [(t.double() - reference).square().mean().sqrt() for t in (gradient, other)]
        assert errors[0] <= errors[1]
    batch, heads, _, rows, keys, width = sizes
    (graph,) = tandem.report()["graphs"]
    # Numbers of rows twice, one kernel of all products, the roundings of its sums side by side; and
    # what several heads of queries add to one of keys.
    if is_one_kernel(batch * heads, keys * width):
        assert graph["backward"]["launches"] <= (6 if name == "grouped" else 4)


@pytest.mark.parametrize("dims", [3, 4])
def test_bf16_where_one_weight_is_nearly_all(dims):
    """Gradients of scores are differences that cancel there; by eager's way of three dimensions,
    which is in f32 between its products, errors are 2^-9 of the gradients, as their results are."""
    torch.manual_seed(4)
    shape = (1,) * (dims - 3) + (4, 6, 8)
    tensors = [torch.randn(shape).mul(4).bfloat16() for _ in range(3)]
    tangent = torch.randn(shape).bfloat16()
    actual, _ = gradients(compile_with(attention({})), tensors, tangent)
    doubles = [tensor.double() for tensor in tensors]
    wanted, _ = gradients(attention({}), doubles, tangent.double())
    flat = [tensor.reshape(-1, 6, 8) for tensor in (*tensors, tangent)]
    eager, _ = gradients(attention({}), flat[:3], flat[3])
    for mine, other, reference in zip(actual, eager, wanted, strict=True):
        exact = reference.reshape(other.shape)
        errors = [(t.double().reshape(exact.shape) - exact).abs().max() for t in (mine, other)]
        assert errors[0] <= 2 * errors[1]


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


@pytest.mark.parametrize("rows, keys", [(600, 600), (640, 2304), (640, 2311)])
def test_dropout_draws_the_same_numbers_again(rows, keys, monkeypatch):
    """Separate kernels, which have the same numbers, give the same gradients; and the result is
    linear in the values."""
    tensors = tensors_of([1, 4, 4, rows, keys, 64])
    tangent = torch.randn_like(tensors[0])
    function = attention({"dropout_p": 0.3})

    def run(compiled):
        torch.manual_seed(5)
        return gradients(compiled, tensors, tangent)

    compiled = compile_with(function)
    actual, saved = run(compiled)
    assert saved <= 4 * rows * keys * 4 / 8
    torch.manual_seed(5)
    with torch.no_grad():
        result = compiled(*tensors)
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        apart = compile_with(function)
        separate, _ = run(apart)
        torch.manual_seed(5)
        with torch.no_grad():
            other = apart(*tensors)
    # Weights add to at most 1 / 0.7, and each order of n = keys terms is within n u sum |t| of the
    # exact sum, u = 2^-24: two are 1e-4 max |v| apart at most, of 600 keys. This is less.
    torch.testing.assert_close(result, other, rtol=1e-5, atol=1e-5)
    for one, other in zip(actual, separate, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
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
