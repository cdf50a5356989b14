"""Products in a row as one kernel (attention): against eager in f64, the same bits as separate
kernels give, at any number of threads, and by the loop interpreter; at sizes not known when
compiling."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from graphs import build
from machine import ISAS, L2_BYTES, multiplies_bf16
from test_long_attention import check_beside

OP = "%r = aten.scaled_dot_product_attention(%q, %k, %v, {mask}, 0.0, {causal}, enable_gqa={gqa})"

SLOW_TO_INTERPRET = 20000  # elements of an operand
LONGEST_WHOLE_SUM = 256  # of a product that is no chain: longer ones are taken in parts

# Sizes [batch, heads, heads of keys, rows, keys, width], the mask's declaration, causal.
CASES = {
    "plain": ([2, 3, 3, 128, 128, 64], "", False),
    "small": ([1, 2, 2, 40, 40, 32], "", False),
    "causal": ([1, 2, 2, 160, 160, 32], "", True),
    "causal_small": ([1, 2, 2, 70, 40, 32], "", True),
    "causal_wide": ([2, 2, 2, 70, 200, 32], "", True),
    "causal_tall": ([2, 2, 2, 200, 70, 32], "", True),
    "odd": ([2, 3, 3, 197, 197, 40], "", False),
    "few_columns": ([1, 2, 2, 64, 37, 24], "", False),
    "grouped": ([1, 4, 2, 48, 80, 32], "", True),
    "bool_mask": ([2, 2, 2, 48, 48, 32], "bool[2, 1, 48, 48]", False),
    "key_mask": ([2, 3, 3, 96, 80, 32], "bool[2, 1, 1, 80]", False),
    "bias": ([2, 2, 2, 48, 48, 32], "f32[2, 48, 48]", False),
    "one_head": ([1, 1, 1, 150, 150, 64], "", True),
    "long": ([1, 1, 1, 64, 4500, 64], "", False),
    "long_causal": ([1, 1, 1, 2100, 2100, 64], "", True),
    "longest": ([1, 1, 1, 64, 33000, 64], "", False),  # sums that the library computes
}


def declaration(sizes, gradients, dtype="f32"):
    batch, heads, shared, rows, keys, width = sizes
    grad = " {input grad}" if gradients else ""
    q = f"%q: {dtype}[{batch}, {heads}, {rows}, {width}]{grad}"
    rest = [f"%{n}: {dtype}[{batch}, {shared}, {keys}, {width}]{grad}" for n in "kv"]
    return ", ".join([q, *rest])


def graph(case, gradients=False, dtype="f32"):
    sizes, mask, causal = case
    line = OP.format(
        mask="%m" if mask else "none",
        causal="true" if causal else "false",
        gqa="true" if sizes[1] != sizes[2] else "false",
    )
    inputs = declaration(sizes, gradients, dtype) + (f", %m: {mask}" if mask else "")
    return inputs, [line]


def tensors_of(case, dtype=torch.float32):
    (batch, heads, shared, rows, keys, width), mask, _ = case
    torch.manual_seed(rows * keys)
    tensors = [torch.randn(batch, heads, rows, width).to(dtype)]
    tensors += [torch.randn(batch, shared, keys, width).to(dtype) for _ in range(2)]
    if not mask:
        return tensors, None
    sizes = [int(size) for size in mask[mask.index("[") + 1 : -1].split(",")]
    if not mask.startswith("bool"):
        return tensors, torch.randn(sizes)
    seen = torch.rand(sizes) < 0.7
    seen[..., 0, :] &= sizes[-2] == 1  # rows that may see nothing
    return tensors, seen


def eager(case, tensors, mask):
    sizes, _, causal = case
    if mask is not None and mask.is_floating_point():
        mask = mask.to(tensors[0].dtype)
    return F.scaled_dot_product_attention(
        *tensors, mask, is_causal=causal, enable_gqa=sizes[1] != sizes[2]
    )


def same(actual, expected):
    return len(actual) == len(expected) and all(map(torch.equal, actual, expected))


def reordered(case, tensors, mask, tangent):
    """How far results and gradients may be from those of separate kernels. Gathered, sums of
    gradients of keys and values down n rows are taken block by block; sums over n keys are taken
    whole, and in parts where they are long and separate. Each order of n products, one rounding a
    step, is within n u sum |t| of the exact sum, u = 2^-24, so two are within twice that. |t|
    bounded before differences. None: of one order."""
    (_, heads, shared, rows, keys, width), _, causal = case
    q, k, v = (t.double() for t in tensors)
    k, v = (t.repeat_interleave(heads // shared, 1) for t in (k, v))
    scores = q @ k.transpose(-2, -1) / width**0.5
    if causal:
        mask = torch.ones(rows, keys, dtype=torch.bool).tril()
    if mask is not None:
        mask = mask if mask.dim() == 4 or mask.dim() == 2 else mask[None]
        is_bias = mask.is_floating_point()
        scores = scores + mask if is_bias else scores.masked_fill(~mask, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num()
    seen = (tangent.double() @ v.transpose(-2, -1)).abs()
    steps = weights * (seen + (weights * seen).sum(-1, True))
    sums = [
        steps.transpose(-2, -1) @ q.abs() / width**0.5,
        weights.transpose(-2, -1) @ tangent.double().abs(),
    ]
    terms = rows * (heads // shared)
    sizes = (-1, shared, heads // shared, keys, width)
    along = [None, None]
    if keys > LONGEST_WHOLE_SUM:
        along = [weights @ v.abs(), steps @ k.abs() / width**0.5]
        along = [2 * keys * 2**-24 * s for s in along]
    return [*along, *(2 * terms * 2**-24 * s.reshape(sizes).sum(2) for s in sums)]


def check_bits(inputs, lines, arguments, actual, monkeypatch, bounds=None, **options):
    """Threads, separate kernels and the interpreter give what was given; where there is a bound,
    separate kernels give it within that."""
    executable = build(inputs, lines, **options)
    for threads in (1, 2, 3, 8):
        tandem.set_threads(threads)
        assert same(executable.run(arguments), actual), threads
    tandem.set_threads(1)
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        separate = build(inputs, lines, **options).run(arguments)
    for a, b, bound in zip(separate, actual, bounds or [None] * len(actual), strict=True):
        assert torch.equal(a, b) if bound is None else ((a - b).abs() <= bound).all()
    if max(t.numel() for t in arguments) > SLOW_TO_INTERPRET:
        return
    interpreted = build(inputs, lines, interpret=True, **options).run(arguments)
    for a, b in zip(interpreted, actual):
        # exp of the C library and of emitted code may differ in the last place.
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_forward(name, monkeypatch):
    case = CASES[name]
    inputs, lines = graph(case)
    tensors, mask = tensors_of(case)
    arguments = tensors + ([] if mask is None else [mask])
    executable = build(inputs, lines)
    _, _, _, _, keys, width = case[0]
    # Blocks of rows that each copy all keys: .93 apart, by caches (measured.md).
    if name == "long" or (name != "longest" and keys * width * 4 > L2_BYTES):
        assert executable.counts["instructions"] in (1, 3)
    else:
        assert (executable.counts["instructions"] == 1) == (name != "longest")
    actual = executable.run(arguments)
    expected = eager(case, [t.double() for t in tensors], mask)
    torch.testing.assert_close(actual[0].double(), expected, rtol=2e-5, atol=2e-5)
    bounds = reordered(case, tensors, mask, torch.zeros_like(tensors[0]))[:1]
    check_bits(inputs, lines, arguments, actual, monkeypatch, bounds)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, monkeypatch):
    case = CASES[name]
    inputs, lines = graph(case, gradients=True)
    tensors, mask = tensors_of(case)
    tangent = torch.randn_like(tensors[0])
    leaves = [t.double().requires_grad_() for t in tensors]
    wanted = torch.autograd.grad(eager(case, leaves, mask), leaves, tangent.double())
    arguments = tensors + ([] if mask is None else [mask]) + [tangent]
    actual = build(inputs, lines, gradients="tangents").run(arguments)
    for gradient, reference in zip(actual[1:], wanted):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-4, atol=1e-4)
    bounds = reordered(case, tensors, mask, tangent)
    check_bits(inputs, lines, arguments, actual, monkeypatch, bounds, gradients="tangents")


@pytest.mark.parametrize("dtype", ["f64", "bf16"])
def test_other_types(dtype, monkeypatch):
    """Emitted products of other types are joined like those of f32. Instructions for bf16 sum in an
    order that depends on the blocks of rows: bits are compared without."""
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    case = ([2, 2, 2, 70, 90, 32], "", False)
    inputs, lines = graph(case, dtype=dtype)
    tensors, _ = tensors_of(case, {"f64": torch.float64, "bf16": torch.bfloat16}[dtype])
    executable = build(inputs, lines)
    assert executable.counts["instructions"] == 1
    actual = executable.run(tensors)
    bound = {"f64": 1e-11, "bf16": 2e-2}[dtype]
    expected = eager(case, [t.double() for t in tensors], None)
    torch.testing.assert_close(actual[0].double(), expected, rtol=bound, atol=bound)
    if dtype == "bf16" and multiplies_bf16():
        monkeypatch.setenv("TANDEM_ISA", "avx2")
        actual = build(inputs, lines).run(tensors)
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        found = build(inputs, lines).run(tensors)
        torch.testing.assert_close(found[0].double(), expected, rtol=bound, atol=bound)
        assert same(found, actual)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("gradients", [False, True])
def test_symbolic_sizes(gradients, dtype):
    for causal in (False, True):
        case = (["s0", 3, 3, "s1", "s1", 32], "", causal)
        inputs, lines = graph(case, gradients, dtype)
        options = {"gradients": "tangents"} if gradients else {}
        where = "s0 in [1, 8], s1 in [32, 600]"
        executable = build(inputs, lines, where=where, **options)
        if not gradients:
            assert executable.counts["instructions"] == 1
        for batch, length in [(1, 33), (2, 128), (3, 64), (1, 515)]:
            sizes = [batch, 3, 3, length, length, 32]
            check_symbolic(executable, sizes, causal, gradients, dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("gradients", [False, True])
def test_lengths_that_nobody_knows(gradients, dtype):
    """One kernel forward, of whatever length: what a mask hides is left out, and sums of packs have
    zeros behind their end."""
    for causal in (False, True):
        case = ([1, 4, 4, "s1", "s1", 64], "", causal)
        inputs, lines = graph(case, gradients, dtype)
        options = {"gradients": "tangents"} if gradients else {}
        executable = build(inputs, lines, where="s1 in [2, inf]", **options)
        if not gradients:
            assert executable.counts["instructions"] == 1
        for length in (2, 3, 63, 64, 129, 515, 1030):
            sizes = [1, 4, 4, length, length, 64]
            check_symbolic(executable, sizes, causal, gradients, dtype)


def results_of(case, tensors, tangent, gradients=True):
    """Eager's, in the type of the tensors, and its gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    result = eager(case, leaves, None)
    if not gradients:
        return [result]
    return [result, *torch.autograd.grad(result, leaves, tangent.to(result.dtype))]


def check_as_near(actual, exact, peer, allowed):
    """As near to f64 as eager, which rounds what is in between too: the root of the mean square of
    the errors, which of 3,000 numbers and more varies by less than a tenth, is no larger than
    `allowed` times eager's."""
    for mine, wanted, eagers in zip(actual, exact, peer, strict=True):
        error, bound = ((t.double() - wanted).square().mean().sqrt() for t in (mine, eagers))
        assert error <= allowed * bound


def check_symbolic(executable, sizes, causal, gradients, dtype):
    case = (sizes, "", causal)
    tensors, _ = tensors_of(case, torch.float32 if dtype == "f32" else torch.bfloat16)
    leaves = [t.double().requires_grad_() for t in tensors]
    expected = eager(case, leaves, None)
    tangent = torch.randn_like(tensors[0])
    wanted = [expected]
    if gradients:
        wanted += torch.autograd.grad(expected, leaves, tangent.double())
    actual = executable.run(tensors + ([tangent] if gradients else []))
    peer = results_of(case, tensors, tangent, gradients)
    if dtype == "bf16":
        return check_as_near(actual, wanted, peer, 1.1)
    # Of two or three rows, eager's product has the 64 terms of a sum in several registers: its
    # error is half of one register's. Sums over 120 rows are one, which of 129 eager halves (1.23).
    if sizes[3] > 3:
        check_as_near(actual, wanted, peer, 1.25)
    for a, b in zip(actual, wanted):
        torch.testing.assert_close(a.double(), b.detach(), rtol=1e-4, atol=1e-4)


def check_places(joined, separate, bound):
    """The same places are not finite, and hold the same; of others every term is one of the finite
    case, so its bound holds."""
    finite = joined.isfinite()
    assert torch.equal(finite, separate.isfinite())
    assert torch.equal(joined[~finite].nan_to_num(0.5), separate[~finite].nan_to_num(0.5))
    apart = torch.where(finite, joined - separate, 0).abs()
    assert (apart <= (0 if bound is None else bound)).all()


@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", ["causal", "causal_wide", "causal_tall", "long_causal"])
def test_what_a_mask_hides_need_not_be_finite(name, gradients, monkeypatch):
    """Hidden terms are left out, and 0 times what is not finite is NaN all the same: where separate
    kernels, which multiply all of them, have it."""
    case = CASES[name]
    inputs, lines = graph(case, gradients)
    options = {"gradients": "tangents"} if gradients else {}
    rows, keys = case[0][3:5]
    for operand, place in [(2, keys - 1), (2, keys // 2), (0, rows - 1), (0, 0), (1, keys - 1)]:
        for bad in (torch.inf, torch.nan):
            arguments, _ = tensors_of(case)
            tangent = torch.randn_like(arguments[0])
            bounds = reordered(case, arguments, None, tangent)
            arguments += [tangent] if gradients else []
            arguments[operand][0, -1, place, 3] = bad
            if gradients:
                arguments[3][0, 0, rows // 3, 1] = -bad
            joined = build(inputs, lines, **options).run(arguments)
            with monkeypatch.context() as alone:
                alone.setenv("TANDEM_DISABLE", "compute_at_rows")
                separate = build(inputs, lines, **options).run(arguments)
            assert operand != 2 or joined[0].isnan().any()
            for a, b, bound in zip(joined, separate, bounds[: len(joined)], strict=True):
                check_places(a, b, bound)


# Masks that are computed of positions: the first rows of "below" and "ahead" see nothing.
POSITIONS = {
    "causal": (["%m = aten.le.Tensor(%column, %row)"], lambda c, r: c <= r),
    "below": (["%m = aten.lt.Tensor(%column, %row)"], lambda c, r: c < r),
    "ahead": (
        ["%far = aten.sub.Scalar(%row, 50)", "%m = aten.ge.Tensor(%far, %column)"],
        lambda c, r: c <= r - 50,
    ),
    "window": (
        [
            "%far = aten.add.Scalar(%column, 40)",
            "%near = aten.le.Tensor(%column, %row)",
            "%wide = aten.gt.Tensor(%far, %row)",
            "%m = aten.bitwise_and.Tensor(%near, %wide)",
        ],
        lambda c, r: (c <= r) & (c + 40 > r),
    ),
}


@pytest.mark.parametrize("bad", [None, torch.inf, torch.nan])
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", POSITIONS)
def test_masks_of_positions(name, gradients, bad, monkeypatch):
    """What they hide from a block of rows is left out as by `is_causal`, and what else they hide is
    as by any mask: numbers are eager's, and where they are not finite those of separate kernels."""
    rows = 200
    lines, sees = POSITIONS[name]
    case = ([1, 2, 2, rows, rows, 32], "", False)
    inputs = declaration(case[0], gradients)
    place = [f"%i = aten.arange({rows})", "%column = aten.unsqueeze(%i, 0)"]
    place += ["%at = aten.unsqueeze(%i, 1)", "%row = aten.index.Tensor(%i, [%at])"]
    lines = [*place, *lines, OP.format(mask="%m", causal="false", gqa="false")]
    options = {"gradients": "tangents"} if gradients else {}
    tensors, _ = tensors_of(case)
    tangent = torch.randn_like(tensors[0])
    numbers = torch.arange(rows)
    mask = sees(numbers[None, :], numbers[:, None])
    leaves = [t.double().requires_grad_() for t in tensors]
    wanted = [eager(case, leaves, mask)]
    wanted += torch.autograd.grad(wanted[0], leaves, tangent.double())
    bounds = reordered(case, tensors, mask, tangent)
    arguments = [t.clone() for t in tensors] + ([tangent] if gradients else [])
    if bad is not None:
        arguments[2][0, -1, rows - 1, 3] = bad
    joined = build(inputs, lines, **options).run(arguments)
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        separate = build(inputs, lines, **options).run(arguments)
    for a, b, bound in zip(joined, separate, bounds[: len(joined)], strict=True):
        check_places(a, b, bound)
    plain = [t.clone().requires_grad_() for t in tensors]
    peer = [eager(case, plain, mask)]
    peer += torch.autograd.grad(peer[0], plain, tangent)
    for a, b, other in zip(joined, wanted if bad is None else [], peer):
        torch.testing.assert_close(a.double(), b.detach(), rtol=1e-4, atol=1e-4)
        check_beside(a, other.detach(), b.detach())


@pytest.mark.parametrize("kind", ["bool", "bias"])
@pytest.mark.parametrize("keys", [2600, 4096])
def test_pieces_of_rows_that_show_nothing(keys, kind, monkeypatch):
    """Long rows pass in pieces (schedule/running_softmax.cc). Of the first pieces of a row a mask
    may show nothing, or of the last ones, of those between, or of all."""
    sizes = [1, 1, 1, 40, keys, 32]
    tensors, _ = tensors_of((sizes, "", False))
    column = torch.arange(keys)
    seen = torch.rand(40, keys) < 0.3
    seen[0] = False
    seen[1] = column == 0
    seen[2] = column == keys - 1
    seen[3] = (column < 3) | (column >= keys - 2)
    seen[4:20] &= column >= torch.arange(4, 20)[:, None] * 130
    mask = seen if kind == "bool" else torch.zeros(40, keys).masked_fill(~seen, -torch.inf)
    case = (sizes, f"{'bool' if kind == 'bool' else 'f32'}[40, {keys}]", False)
    inputs, lines = graph(case)
    arguments = [*tensors, mask]
    actual = build(inputs, lines).run(arguments)
    expected = eager(case, [t.double() for t in tensors], mask.double() if kind == "bias" else mask)
    assert (actual[0][..., 0, :] == 0).all()
    torch.testing.assert_close(actual[0].double(), expected, rtol=2e-5, atol=2e-5)
    check_beside(actual[0], eager(case, tensors, mask), expected)
    bounds = reordered(case, tensors, mask, torch.zeros_like(tensors[0]))[:1]
    check_bits(inputs, lines, arguments, actual, monkeypatch, bounds)


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("place", [0, 1100, 2599])
def test_long_rows_that_are_not_finite(place, bad, monkeypatch):
    """In pieces as whole: the same places are NaN."""
    case = ([1, 2, 2, 40, 2600, 32], "", False)
    inputs, lines = graph(case)
    arguments, _ = tensors_of(case)
    tangent = torch.zeros_like(arguments[0])
    bound = reordered(case, arguments, None, tangent)[0]
    for operand, row in ((0, 7), (1, place), (2, place)):
        tensors = [t.clone() for t in arguments]
        tensors[operand][0, 1, row, 3] = bad
        joined = build(inputs, lines).run(tensors)[0]
        with monkeypatch.context() as alone:
            alone.setenv("TANDEM_DISABLE", "compute_at_rows")
            separate = build(inputs, lines).run(tensors)[0]
        check_places(joined, separate, bound)


def forward_bound(tensors):
    """How far results may be from f64, u = 2^-24. Of each score, a sum of `width` products,
    the error is width + 2 roundings of sum |q| |k| / sqrt(width), which the exponential of it and
    that of the sum have relatively. exp has four more, and the sum, the division and the weighted
    sum `keys` each at most. In bf16 weights and results are rounded, by 2^-9 each. Weights add to
    one, so the largest |v| bounds what they weigh."""
    q, k, v = (t.double().abs() for t in tensors)
    keys, width = k.shape[-2:]
    scores = (q @ k.mT).max() / width**0.5
    weights = 2 * (width + 2) * 2.0**-24 * scores + (3 * keys + 2 * 4 + 2) * 2.0**-24
    rounded = 2 * 2.0**-9 + 2.0**-18 if tensors[0].dtype == torch.bfloat16 else 2.0**-24
    return (weights + rounded) * v.max()


BF16 = [(64, 64), (70, 70), (197, 197), (128, 256), (256, 128), (320, 320), (200, 37), (150, 5)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("rows, keys", BF16)
def test_bf16(rows, keys, causal, isa, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", isa)
    monkeypatch.setenv("TANDEM_VERIFY", "1")
    case = ([2, 3, 3, rows, keys, 64], "", causal)
    inputs, lines = graph(case, dtype="bf16")
    tensors, _ = tensors_of(case, torch.bfloat16)
    executable = build(inputs, lines)
    actual = executable.run(tensors)[0]
    expected = eager(case, [t.double() for t in tensors], None)
    assert (actual.double() - expected).abs().max() <= forward_bound(tensors)
    for threads in (1, 2, 3, 8):
        tandem.set_threads(threads)
        assert torch.equal(executable.run(tensors)[0], actual), threads


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])
@pytest.mark.parametrize("rows", [64, 197, 320])
def test_bf16_gradients(rows, causal, isa, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", isa)
    case = ([2, 3, 3, rows, rows, 64], "", causal)
    inputs, lines = graph(case, gradients=True, dtype="bf16")
    tensors, _ = tensors_of(case, torch.bfloat16)
    tangent = torch.randn_like(tensors[0])

    actual = build(inputs, lines, gradients="tangents").run([*tensors, tangent])
    exact = results_of(case, [t.double() for t in tensors], tangent)
    check_as_near(actual, exact, results_of(case, tensors, tangent), 1.1)


def test_heads_behind_rows(monkeypatch):
    """Heads as a model has them: views of [batch, rows, heads, width]."""
    inputs = ", ".join(f"%{n}: f32[2, 96, 4, 32]" for n in "abc")
    lines = [f"%{to} = aten.transpose.int(%{n}, 1, 2)" for n, to in zip("abc", "qkv")]
    lines += [
        "%s = aten.scaled_dot_product_attention(%q, %k, %v, none, 0.0, true)",
        "%t = aten.transpose.int(%s, 1, 2)",
        "%r = aten.reshape(%t, [2, 96, 128])",
    ]
    torch.manual_seed(0)
    tensors = [torch.randn(2, 96, 4, 32) for _ in range(3)]
    expected = F.scaled_dot_product_attention(
        *[t.double().transpose(1, 2) for t in tensors], is_causal=True
    )
    actual = build(inputs, lines).run(tensors)
    torch.testing.assert_close(
        actual[0].double(), expected.transpose(1, 2).reshape(2, 96, 128), rtol=2e-5, atol=2e-5
    )
    check_bits(inputs, lines, tensors, actual, monkeypatch)


def test_dropout_drops_the_same_backward():
    """Values that are the identity show the weights that were kept; the gradients must agree."""
    size = 64
    inputs = ", ".join(f"%{n}: f32[2, 3, {size}, {size}] {{input grad}}" for n in "qkv")
    lines = ["%r = aten.scaled_dot_product_attention(%q, %k, %v, none, 0.25)"]
    torch.manual_seed(0)
    q, k, tangent = (torch.randn(2, 3, size, size) for _ in range(3))
    v = torch.eye(size).expand(2, 3, size, size).contiguous()
    executable = build(inputs, lines, gradients="tangents")
    known = {"q": q, "k": k, "v": v, "seed": 11, "tangent0": tangent}
    kept, *gradients = executable.run([known[name] for name in executable.inputs])
    mask = kept != 0
    assert 0.7 < mask.double().mean() < 0.8
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    weights = torch.softmax(leaves[0] @ leaves[1].transpose(-2, -1) / size**0.5, -1)
    expected = (weights * mask / 0.75) @ leaves[2]
    torch.testing.assert_close(kept.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    for actual, wanted in zip(gradients, torch.autograd.grad(expected, leaves, tangent.double())):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-4, atol=1e-4)


def test_layers_of_rows(monkeypatch):
    """No attention: two products with a norm of the rows between them."""
    inputs = "%x: f32[200, 48], %w: f32[48, 96], %g: f32[96], %b: f32[96], %u: f32[96, 40]"
    lines = [
        "%y = aten.mm(%x, %w)",
        "%n, %m, %s = aten.native_layer_norm(%y, [96], %g, %b, 1e-5)",
        "%a = aten.gelu(%n)",
        "%r = aten.mm(%a, %u)",
    ]
    torch.manual_seed(0)
    tensors = [torch.randn(sizes) for sizes in ([200, 48], [48, 96], [96], [96], [96, 40])]
    executable = build(inputs, lines)
    assert executable.counts["instructions"] == 1
    actual = executable.run(tensors)
    x, w, g, b, u = (t.double() for t in tensors)
    expected = F.gelu(F.layer_norm(x @ w, [96], g, b)) @ u
    torch.testing.assert_close(actual[0].double(), expected, rtol=1e-4, atol=1e-3)
    tandem.set_threads(1)
    with monkeypatch.context() as alone:
        alone.setenv("TANDEM_DISABLE", "compute_at_rows")
        assert same(build(inputs, lines).run(tensors), actual)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("how", ["plain", "causal", "mask"])
@pytest.mark.parametrize("where", ["", "s1 in [0, 9]"], ids=["known", "symbolic"])
def test_no_keys(where, how, dtype):
    """No rows of keys: zeros, as of eager's kernel. Of a size that may be 0 others are as ever."""
    for keys in [0, 7] if where else [0]:
        mask = "bool[5, s1]" if where else "bool[5, 0]"
        name = "s1" if where else 0
        case = ([2, 3, 3, 5, name, 8], mask if how == "mask" else "", how == "causal")
        inputs, lines = graph(case, dtype=dtype)
        sizes = [2, 3, 3, 5, keys, 8]
        real = (sizes, f"bool[5, {keys}]" if how == "mask" else "", how == "causal")
        types = {"f32": torch.float32, "bf16": torch.bfloat16}
        tensors, seen = tensors_of(real, types[dtype])
        arguments = tensors + ([] if seen is None else [seen])
        actual = build(inputs, lines, where=where).run(arguments)[0]
        if keys == 0:
            assert actual.shape == (2, 3, 5, 8) and (actual == 0).all()
            continue
        expected = eager(real, [t.double() for t in tensors], seen)
        assert (actual.double() - expected).abs().max() <= forward_bound(tensors)


@pytest.mark.parametrize("empty", range(4))
def test_empty(empty):
    sizes = [64, 32, 32, 32]
    sizes[empty] = 0
    rows, width, middle, out = sizes
    inputs = f"%x: f32[{rows}, {width}], %w: f32[{width}, {middle}], %u: f32[{middle}, {out}]"
    lines = ["%y = aten.mm(%x, %w)", "%z = aten.relu(%y)", "%r = aten.mm(%z, %u)"]
    tensors = [torch.randn(rows, width), torch.randn(width, middle), torch.randn(middle, out)]
    expected = torch.relu(tensors[0] @ tensors[1]) @ tensors[2]
    assert torch.equal(build(inputs, lines).run(tensors)[0], expected)


def test_projection_of_one_head(monkeypatch):
    """A large product that reads the chain's rows does not keep the rest from being joined."""
    inputs = ", ".join(f"%{n}: f32[2, 64, 32]" for n in "qkv") + ", %w: f32[32, 32768]"
    lines = ["%s = aten.scaled_dot_product_attention(%q, %k, %v)", "%r = aten.matmul(%s, %w)"]
    torch.manual_seed(0)
    tensors = [torch.randn(2, 64, 32) for _ in range(3)] + [torch.randn(32, 32768)]
    executable = build(inputs, lines)
    assert executable.counts["instructions"] == 2
    q, k, v, w = (t.double() for t in tensors)
    expected = F.scaled_dot_product_attention(q, k, v) @ w
    actual = executable.run(tensors)
    torch.testing.assert_close(actual[0].double(), expected, rtol=1e-4, atol=1e-4)
    check_bits(inputs, lines, tensors, actual, monkeypatch)
