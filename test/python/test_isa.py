"""Code for AVX2 and for AVX-512 in one process, each as TANDEM_ISA says when a program is compiled;
loops over rows of every width, lane by lane against the interpreter; and a process held to AVX2."""

import os

import pytest
import tandem
import torch
from compiled import compile_with
from graphs import graph_text
from machine import FEWEST_PACKED_ROWS, HAS_AVX512, ISAS, has_tiles, multiplies_bf16
from test_process import run_script
from test_random_programs import tally
from torch.nn import functional as F

WIDEST = 40


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    monkeypatch.setenv("TANDEM_ISA", request.param)
    return request.param


def test_the_target_is_that_of_the_time(monkeypatch):
    text = graph_text("%x: f32[100]", ["%r = aten.exp(%x)"], "%r")
    x = torch.linspace(-2, 2, 100)
    results = []
    for wanted in [*ISAS, None, *ISAS]:
        if wanted:
            monkeypatch.setenv("TANDEM_ISA", wanted)
        else:
            monkeypatch.delenv("TANDEM_ISA", raising=False)
        executable = tandem.compile_text(text, report=True)
        if wanted:
            assert ("+avx512f" in executable.report) == (wanted == "avx512")
        results.append(executable.run([x])[0])
    assert all(torch.equal(result, results[0]) for result in results)
    if not HAS_AVX512 and "TANDEM_ISA" not in os.environ:
        monkeypatch.setenv("TANDEM_ISA", "avx512")
        with pytest.raises(tandem.UserError, match="no AVX-512"):
            tandem.compile_text(text)


def test_the_cache_keeps_them_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    x = torch.randn(50)

    def is_from_cache():
        compiled = compile_with(lambda x: x.exp() * 2)
        torch.testing.assert_close(compiled(x), x.exp() * 2)
        return tandem.report()["graphs"][-1]["from cache"]

    monkeypatch.delenv("TANDEM_ISA", raising=False)
    assert [is_from_cache(), is_from_cache()] == [False, True]
    monkeypatch.setenv("TANDEM_ISA", "avx2")
    assert [is_from_cache(), is_from_cache()] == [False, True]


# --- every width. {w} is the width, %x an input of the sizes given.

KINDS = {
    "pointwise": ("[3, {w}]", ["%a{w} = aten.relu(%{x})", "%{r} = aten.mul.Tensor(%a{w}, %{x})"]),
    "functions": ("[3, {w}]", ["%{r} = aten.gelu(%{x})"]),
    "windows": (
        "[2, 5, {w}]",
        [
            "%a{w} = aten.avg_pool2d(%{x}, [3, 3], [1, 1], [1, 1])",
            "%b{w} = aten.max_pool2d(%{x}, [3, 3], [1, 1], [1, 1])",
            "%{r} = aten.sub.Tensor(%a{w}, %b{w})",
        ],
    ),
    "strided windows": (
        "[2, 5, {w}]",
        ["%{r} = aten.avg_pool2d(%{x}, [2, 3], [2, 2], [1, 1], true, false)"],
    ),
    "convolution": (
        "[2, 3, 4, {w}]",
        [
            "%c{w} = aten.sin(%{x})",
            "%{r} = aten.conv2d(%{x}, %kernel, none, [1, 1], [1, 1])",
        ],
    ),
    "rows": ("[4, {w}]", ["%{r} = aten.softmax.int(%{x}, -1)"]),
    "long rows": (
        "[2, 3, {w}]",
        ["%a{w} = aten.reshape(%{x}, [6, {w}])", "%{r} = aten.cumsum(%a{w}, 1)"],
    ),
    "columns": ("[37, {w}]", ["%{r} = aten.sum.dim_IntList(%{x}, [0])"]),
    "moved": (
        "[3, {w}]",
        [
            "%a{w} = aten.constant_pad_nd(%{x}, [2, 1], 0.5)",
            "%b{w} = aten.roll(%a{w}, [1], [1])",
            "%{r} = aten.cat([%b{w}, %{x}], 1)",
        ],
    ),
    "steps": (
        "[3, {w}, 3]",
        ["%a{w} = aten.select.int(%{x}, 2, 1)", "%{r} = aten.mul.Scalar(%a{w}, 2.0)"],
    ),
    "transposed": (
        "[5, {w}]",
        [
            "%a{w} = aten.t(%{x})",
            "%b{w} = aten.clone(%a{w}, memory_format=0)",
            "%{r} = aten.neg(%b{w})",
        ],
    ),
    "product": ("[33, {w}]", ["%t{w} = aten.t(%{x})", "%{r} = aten.mm(%{x}, %t{w})"]),
}
IN_F64_TOO = ["windows", "strided windows", "rows", "moved", "columns"]
SWEEPS = [(kind, "f32") for kind in KINDS] + [(kind, "f64") for kind in IN_F64_TOO]
SWEEPS += [("moved", "bf16"), ("moved", "i32"), ("moved", "u8")]
# exp and its kin are libm's in the interpreter.
APPROXIMATE = {"functions": 2e-6, "rows": 2e-6}
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "u8": torch.uint8,
}


@pytest.mark.parametrize("kind, dtype", SWEEPS)
def test_every_width(kind, dtype, isa, monkeypatch):
    monkeypatch.setenv("TANDEM_LIBRARY", "0")
    torch.manual_seed(0)
    sizes, lines = KINDS[kind]
    inputs, body, values = [], [], []
    for width in range(1, WIDEST + 1):
        shape = sizes.format(w=width)
        inputs.append(f"%x{width}: {dtype}{shape}")
        numbers = torch.randn(eval(shape)) * 3
        values.append((numbers.abs() if dtype == "u8" else numbers).to(DTYPES[dtype]))
        body += [line.format(w=width, x=f"x{width}", r=f"r{width}") for line in lines]
    if any("%kernel" in line for line in lines):
        inputs.append(f"%kernel: {dtype}[4, 3, 3, 3]")
        values.append(torch.randn(4, 3, 3, 3).to(DTYPES[dtype]))
    if dtype in ("i32", "u8"):
        body = [line.replace("0.5", "5") for line in body]
    results = ", ".join(f"%r{width}" for width in range(1, WIDEST + 1))
    text = graph_text(", ".join(inputs), body, results)
    actual = tandem.compile_text(text).run(values)
    wanted = tandem.compile_text(text, interpret=True).run(values)
    tolerance = APPROXIMATE.get(kind, 0)
    wrong = [
        number
        for number, (a, b) in enumerate(zip(actual, wanted), 1)
        if not torch.allclose(a, b, rtol=tolerance, atol=tolerance)
    ]
    assert not wrong


def test_random_programs(isa):
    """As in test_random_programs.py, which runs what the processor has."""
    tally("short", 700_000, 60).verdict(most_by_tracer=1)


@pytest.mark.parametrize("rows", [1, 3, 16, 32, 33])
def test_few_rows_in_bf16(rows, isa):
    """Where the library would convert the weight at each call, loops read up to 32 rows as they
    are, and one row everywhere. Where there are instructions for products of bf16, they are the
    loops' from 32 rows on, or from 4, and those that are read once for all rows up to 8."""
    torch.manual_seed(0)
    x, w = torch.randn(rows, 80).bfloat16(), torch.randn(33, 80).bfloat16()
    text = graph_text(
        f"%x: bf16[{rows}, 80], %w: bf16[33, 80]", ["%r = aten.linear(%x, %w)"], "%r"
    )
    executable = tandem.compile_text(text, report=True)
    wanted = (x.double() @ w.double().T).bfloat16()
    torch.testing.assert_close(executable.run([x, w])[0], wanted, rtol=2**-7, atol=2**-7)
    has_packs = isa == "avx512" and multiplies_bf16()
    in_packs = has_packs and rows >= FEWEST_PACKED_ROWS
    read_once = rows == 1 or (has_packs and rows <= 8)
    by_loops = read_once or in_packs or (isa == "avx2" and rows <= 32)
    assert ("library" in executable.report.splitlines()[1]) != by_loops


@pytest.mark.parametrize(
    "terms, rows, columns",
    [(8, 8, 8), (24, 9, 40), (64, 197, 33), (128, 5, 64), (256, 130, 70), (1024, 50, 96)],
)
def test_transposed_factor_in_bf16(terms, rows, columns, isa):
    """As gradients of weights have it. Of long sums it is the library's. A product of bf16 is exact
    in f32, whose sums are off by a half unit a term, and one rounding to bf16 follows."""
    torch.manual_seed(terms)
    x, g = torch.randn(terms, rows).bfloat16(), torch.randn(terms, columns).bfloat16()
    lines = ["%t = aten.t(%x)", "%r = aten.mm(%t, %g)"]
    text = graph_text(f"%x: bf16[{terms}, {rows}], %g: bf16[{terms}, {columns}]", lines, "%r")
    actual = tandem.compile_text(text).run([x, g])[0].double()
    wanted = x.double().T @ g.double()
    bound = 2**-8 * wanted.abs() * 1.01 + terms * 2**-24 * (x.double().abs().T @ g.double().abs())
    assert ((actual - wanted).abs() <= bound).all()


# Places and channels of an image, channels of the result, stride, groups, padding.
IMAGES = [
    ((2, 24, 7, 9), 40, 1, 1, 0),
    ((3, 16, 13, 11), 33, 2, 1, 0),
    ((1, 64, 6, 6), 8, 1, 1, 0),
    ((2, 32, 70), 48, 1, 1, 0),
    ((1, 8, 3, 4, 5), 16, 1, 1, 0),
    ((1, 32, 5, 5), 16, 1, 1, 0),  # 25 rows: few
    ((1, 32, 3, 1), 16, 1, 1, 0),  # too few
    ((2, 20, 8, 8), 16, 1, 1, 0),  # 20 terms are no packs of 8
    ((2, 16, 8, 8), 32, 1, 2, 0),
    ((2, 16, 8, 8), 32, 1, 1, 1),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("image, out, stride, groups, padding", IMAGES)
def test_single_places_in_bf16(image, out, stride, groups, padding, last, isa):
    """A convolution whose windows are single places is a product of loops where vector registers
    sum packs of bf16, whatever its image's order, with what stands behind it; else the library's or
    loops'. Equal to f64 either way."""
    torch.manual_seed(0)
    dims = len(image) - 2
    x = torch.randn(image).bfloat16()
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    weight = (torch.randn(out, image[1] // groups, *[1] * dims) / 4).bfloat16()
    bias = torch.randn(out).bfloat16()
    convolve = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
    wanted = convolve(x.double(), weight.double(), bias.double(), stride, padding, 1, groups)
    strides = "{" + ", ".join(map(str, x.stride())) + "}" if last else ""
    numbers = ", ".join(str([n] * dims) for n in (stride, padding, 1))
    text = graph_text(
        f"%x: bf16{list(image)}{strides}, %w: bf16{list(weight.shape)}, %b: bf16[{out}]",
        [f"%y = aten.conv{dims}d(%x, %w, %b, {numbers}, {groups})", "%r = aten.relu(%y)"],
        "%r",
    )
    executable = tandem.compile_text(text, report=True)
    actual = executable.run([x, weight, bias])[0]
    # Summed in f32 and rounded once: half a unit of bf16 is 2**-9, and sums cancel.
    torch.testing.assert_close(actual.double(), wanted.relu(), rtol=2**-8, atol=1e-5)
    rows = actual.numel() // out
    in_packs = groups == 1 and padding == 0 and image[1] % 8 == 0 and rows >= FEWEST_PACKED_ROWS
    if isa == "avx512" and multiplies_bf16() and not has_tiles():
        assert ("library" in executable.report.splitlines()[1]) != in_packs


# --- a process whose library is held to AVX2 as well

LIBRARY_CALLS = """
    import torch, tandem
    import torch.nn.functional as F
    from compiled import compile_with
    bf16 = torch.bfloat16

    def check(function, *sizes, dtype=bf16):
        torch.manual_seed(0)
        values = [torch.randn(size).to(dtype) for size in sizes]
        sides = []
        for call, kind in ((compile_with(function), dtype), (function, torch.float64)):
            inputs = [value.detach().to(kind).requires_grad_() for value in values]
            result = call(*inputs)
            result.backward(torch.ones_like(result))
            sides.append([result, *(x.grad for x in inputs)])
        for actual, wanted in zip(*sides):
            assert actual.dtype == dtype
            scale = wanted.abs().max().item()
            tolerance = 2**-7 if dtype == bf16 else 1e-5
            torch.testing.assert_close(actual.double(), wanted, rtol=0, atol=tolerance * scale)
        return tandem.report()["graphs"][-1]["from cache"]

    found = []
    for dims, conv, transposed in ((1, F.conv1d, F.conv_transpose1d),
                                   (2, F.conv2d, F.conv_transpose2d),
                                   (3, F.conv3d, F.conv_transpose3d)):
        image, kernel = [7] * dims, [3] * dims
        found += [
            check(lambda x, w, b: conv(x, w, b, 1, 1), [2, 6, *image], [8, 6, *kernel], [8]),
            check(lambda x, w: transposed(x, w, None, 2), [2, 6, *image], [6, 4, *kernel]),
        ]
    x, w = [2, 6, 7, 7], [8, 3, 3, 3]
    found += [
        check(lambda x, w: F.conv2d(x, w, None, 2, 0, 1, 2), x, w),
        check(lambda x, w: F.conv2d(x, w, None, 2, 0, 1, 2), x, w, dtype=torch.float32),
        check(lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6), x, [6, 1, 3, 3]),
        check(lambda x, w, b: F.linear(x, w, b), [5, 70], [33, 70], [33]),
        check(lambda x, w: torch.bmm(x, w), [3, 5, 70], [3, 70, 33]),
        check(lambda x, w: x @ w, [40, 1100], [1100, 70], dtype=torch.float32),
    ]
    print(sum(found), len(found))
"""


def test_library_calls_without_avx512(tmp_path):
    """Every call has a plan there: in a process held to AVX2, and in one whose library alone is,
    with programs out of the cache that were compiled where it was not."""
    one, other = (str(tmp_path / name) for name in ("one", "other"))
    ways = [
        ("0", {"TANDEM_CACHE_DIR": one, "TANDEM_ISA": "avx2"}),
        ("0", {"TANDEM_CACHE_DIR": other}),
        ("12", {"TANDEM_CACHE_DIR": other, "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    ]
    for from_cache, environment in ways:
        out, _ = run_script(LIBRARY_CALLS, **environment)
        assert out.split() == [from_cache, "12"]
