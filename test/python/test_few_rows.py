"""A few rows for each of several matrices, as of a token's attention: each matrix is read once, as
it lies or one panel after the other, and lines are asked for far ahead. Beside f64, as the loop
interpreter has it, and with the library."""

import pytest
import tandem
import torch
import torch.nn.functional as F
from graphs import build
from machine import ISAS, has_tiles

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
EPSILON = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
SHAPES = [(64, 80), (80, 64), (64, 200), (200, 64), (40, 33), (33, 48), (300, 40), (1, 64), (7, 1)]


@pytest.fixture(params=ISAS, autouse=True)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)
    monkeypatch.setenv("TANDEM_VERIFY", "1")
    return request.param


def places(batch, rows, columns, turned):
    """A part of each matrix of a cache, whose other places hold what would be seen."""
    sizes = (batch, columns, rows + 3) if turned else (batch, rows + 3, columns)
    whole = torch.full(sizes, torch.nan)
    part = whole.narrow(2 if turned else 1, 0, rows)
    part.copy_(torch.randn(part.shape))
    return whole


def check(actual, left, right):
    """Sums of k terms in any order, with as many roundings, and that of the result."""
    left, right = left.double(), right.double()
    expected, terms = left @ right, left.shape[-1]
    bound = (terms + 1) * 2.0**-24 * (left.abs() @ right.abs())
    bound += EPSILON[actual.dtype] * expected.abs()
    assert ((actual.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("turned", [False, True], ids=["terms_down", "terms_along"])
@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("rows", range(1, 10))
def test_a_matrix_each(rows, dtype, turned, isa, monkeypatch):
    torch.manual_seed(rows)
    # Tile registers take eight rows of bf16, in an order of sums of their own.
    sums_pairs = dtype == torch.bfloat16 and rows >= 8 and isa == "avx512" and has_tiles()
    lines = [f"%p = aten.slice.Tensor(%w, {2 if turned else 1}, 0, {{}})"]
    lines += ["%t = aten.transpose.int(%p, 1, 2)"] if turned else []
    lines += [f"%y = aten.bmm(%x, {'%t' if turned else '%p'})"]
    for terms, columns in SHAPES:
        x = torch.randn(3, rows, terms).to(dtype)
        w = places(3, terms, columns, turned).to(dtype)
        right = w[:, :, :terms].mT if turned else w[:, :terms]
        name = NAMES[dtype]
        inputs = f"%x: {name}{list(x.shape)}, %w: {name}{list(w.shape)}"
        texts = [line.format(terms) for line in lines]
        actual = build(inputs, texts, "%y").run([x, w])[0]
        check(actual, x, right)
        monkeypatch.setenv("TANDEM_LIBRARY", "0")
        loops = build(inputs, texts, "%y")
        summed = loops.run([x, w])[0]
        check(summed, x, right)
        for threads in (1, 2, 3):
            tandem.set_threads(threads)
            assert torch.equal(loops.run([x, w])[0], summed)
        interpreted = build(inputs, texts, "%y", interpret=True).run([x, w])[0]
        check(interpreted, x, right)
        if not sums_pairs:
            assert torch.equal(interpreted, summed)
        monkeypatch.delenv("TANDEM_LIBRARY")


ONE_MATRIX = [
    *SHAPES,
    *[(2048, 33), (512, 1000), (1000, 512), (2100, 1024), (768, 2304), (3072, 768), (1056, 4100)],
]


@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("turned", [False, True], ids=["terms_down", "terms_along"])
def test_one_row_and_one_matrix(turned, dtype, monkeypatch):
    """Large ones whose terms are down are summed in parts, which read whole rows of the matrix."""
    torch.manual_seed(0)
    name = NAMES[dtype]
    lines = [f"%y = aten.{'linear' if turned else 'mm'}(%x, %w)"]
    for terms, columns in ONE_MATRIX:
        x = torch.randn(1, terms).to(dtype)
        w = torch.randn((columns, terms) if turned else (terms, columns)).to(dtype)
        inputs = f"%x: {name}{list(x.shape)}, %w: {name}{list(w.shape)}"
        executable = build(inputs, lines, "%y")
        actual = executable.run([x, w])[0]
        check(actual, x, w.mT if turned else w)
        for threads in (1, 2, 3):
            tandem.set_threads(threads)
            assert torch.equal(executable.run([x, w])[0], actual)
        monkeypatch.setenv("TANDEM_LIBRARY", "0")
        if terms * columns < 1e6:
            loops, interpreted = (build(inputs, lines, "%y", interpret=i) for i in (False, True))
            assert torch.equal(loops.run([x, w])[0], interpreted.run([x, w])[0])
        monkeypatch.delenv("TANDEM_LIBRARY")


def test_one_row_and_a_frozen_matrix():
    torch.manual_seed(0)
    for terms, columns in [(64, 80), (1000, 512), (33, 7)]:
        linear = torch.nn.Linear(terms, columns, bias=False).requires_grad_(False)
        x = torch.randn(1, terms)
        inputs = f"%x: f32[1, {terms}], %w: f32[{columns}, {terms}]"
        live = build(inputs, ["%y = aten.linear(%x, %w)"], "%y")
        frozen = tandem.aot_compile(linear, (x,), options={"freeze": True})
        assert torch.equal(frozen(x), live.run([x, linear.weight])[0])


@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("heads, of_keys", [(4, 4), (8, 2), (12, 2), (8, 1), (9, 1)])
def test_a_token(dtype, heads, of_keys):
    """Of each score, a sum of 64 products, the error is 66 roundings of sum |q| |k| / 8. exp, 90
    terms of the sum that it is divided by, and the division: as many roundings each, and four of
    exp; the weighted sum 91 more. Weights are positive and add to one, so the largest |v| bounds
    what they weigh. In bf16 weights and results are rounded by 2^-9 each."""
    torch.manual_seed(heads)
    query = torch.randn(2, heads, 1, 64).to(dtype)
    keys, values = (torch.randn(2, of_keys, 90, 64).to(dtype) for _ in range(2))
    mask = torch.arange(90)[None] <= 70
    inputs = ", ".join(
        f"%{v}: {NAMES[dtype]}{list(t.shape)}"
        for v, t in (("q", query), ("k", keys), ("v", values))
    )
    lines = ["%y = aten.scaled_dot_product_attention(%q, %k, %v, %m, enable_gqa=true)"]
    executable = build(inputs + ", %m: bool[1, 90]", lines, "%y")
    actual = executable.run([query, keys, values, mask])[0].double()
    q, k, v = (t.double() for t in (query, keys, values))
    exact = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    each = heads // of_keys
    scores = q.abs() @ k.abs().repeat_interleave(each, 1).mT / 8
    weights = 2 * 66 * 2.0**-24 * scores.max() + (90 + 2 * 4 + 2) * 2.0**-24
    bound = (weights + 91 * 2.0**-24 + EPSILON[dtype]) * v.abs().max()
    assert (actual - exact).abs().max() <= bound
