"""Mixed precision: casts are ours, and are torch's."""

import functools

import pytest
import torch
import torch.nn.functional as F

import samples as sample_language
import tandem
from compiled import compile_with
from tandem import autocast
from tolerance import EAGER_REFUSES


def gradients(function, module, x, y):
    module.zero_grad()
    results = function(x, y)
    results[1].backward()
    return [*(r.detach() for r in results), *(p.grad.clone() for p in module.parameters())]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_regions(dtype):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 8)
    )

    def function(x, y):
        with torch.autocast("cpu", dtype=dtype):
            out = module(x)
            loss = F.cross_entropy(out, y) + F.mse_loss(out.softmax(-1), out)
            joined = torch.cat([out, x[:, :8]])
            with torch.autocast("cpu", enabled=False):
                exact = x @ x.t()
        return out, loss, joined, exact

    x, y = torch.randn(5, 16), torch.randint(0, 8, (5,))
    ours = gradients(compile_with(function, fullgraph=True), module, x, y)
    for actual, expected in zip(ours, gradients(function, module, x, y), strict=True):
        assert actual.dtype == expected.dtype
        torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_numbers_beside_tensors():
    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (2 - (x + 1) * 3) @ w / 2

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(compile_with(function)(x, w), function(x, w), rtol=2e-2, atol=2e-2)


def test_region_around_the_call():
    conv = torch.nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 8, 8)
    compiled = compile_with(lambda a: conv(a).relu())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, expected = compiled(x), conv(x).relu()
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)


OVER_OTHERS = {
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b).sin(),
    "einsum of three": lambda a, b: torch.einsum("ij,jk,kl->il", a, b, a),
    "einsum of one": lambda a, b: torch.einsum("ij->j", a),
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "multi_dot": lambda a, b: torch.linalg.multi_dot([a, b, a]),
    "inner": torch.inner,
    "matrix_power": lambda a, b: torch.matrix_power(a, 3),
    "linalg.matmul": torch.linalg.matmul,
    "reflect": lambda a, b: F.pad((a @ b)[None], (1, 2), mode="reflect"),
    "replicate": lambda a, b: F.pad((a @ b)[None], (1, 2), mode="replicate"),
    "circular": lambda a, b: F.pad((a @ b)[None], (1, 2), mode="circular"),
    "nll_loss_nd": lambda a, b: torch.ops.aten.nll_loss_nd(a @ b, torch.arange(4)),
    "affine_grid_generator": lambda a, b: torch.ops.aten.affine_grid_generator.default(
        a[None, :2, :3], [1, 1, 4, 5], False
    ),
    "affine_grid": lambda a, b: F.affine_grid(a[None, :2, :3], [1, 1, 4, 5], align_corners=False),
}


@pytest.mark.parametrize("name", OVER_OTHERS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_others_are_made_of(name, dynamic):
    """These have no line in torch's table: what they call does."""

    def function(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = OVER_OTHERS[name](a, b)
            with torch.autocast("cpu", enabled=False):
                exact = OVER_OTHERS[name](a, b)
        return cast, exact

    found = []
    for call in (function, compile_with(function, fullgraph=True, dynamic=dynamic)):
        torch.manual_seed(0)
        a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        results = call(a, b)
        ends = [result.float().sum() for result in results]
        gradients = torch.autograd.grad(ends, (a, b), allow_unused=True)
        found.append([*results, *[each for each in gradients if each is not None]])
    for eager, ours in zip(*found, strict=True):
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)


def statistics_of(x, weight, bias):
    return torch.native_layer_norm(x, [8], weight, bias, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", ["weight", "bias", "both", "none"])
def test_statistics_beside_parameters_of_f32(given, dtype):
    """They are f32 there; fakes have the input's type."""
    x = torch.randn(8, 3, 2).to(dtype).mT.transpose(0, 2)  # not row-major: types are said
    weight = torch.randn(8) if given in ("weight", "both") else None
    bias = torch.randn(8) if given in ("bias", "both") else None
    expected = statistics_of(x, weight, bias)
    actual = compile_with(statistics_of, fullgraph=True)(x, weight, bias)
    for ours, eager in zip(actual, expected, strict=True):
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)


RECURRENT = {"LSTM": (5, 2, 8), "GRU": (5, 2, 8), "RNN": (5, 2, 8), "LSTMCell": (2, 8),
             "GRUCell": (2, 8), "RNNCell": (2, 8)}  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_recurrent_layers(name, dtype, dynamic):
    """What they are made of is cast, by the library as a whole: the state keeps its type or not."""
    torch.manual_seed(1)
    options = {"num_layers": 2} if "Cell" not in name else {}
    module = getattr(torch.nn, name)(8, 8, **options)
    x = torch.randn(RECURRENT[name]).to(dtype).requires_grad_()

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.utils._pytree.tree_leaves(module(x))

    found = []
    for call in (function, compile_with(function, fullgraph=True, dynamic=dynamic)):
        results = call(x)
        sum(result.float().sum() for result in results).backward()
        gradients = [x.grad, *[p.grad for p in module.parameters()]]
        found.append([*results, *gradients])
        module.zero_grad()
        x.grad = None
    for eager, ours in zip(*found, strict=True):
        assert ours.dtype == eager.dtype
        scale = eager.float().abs().max().item()
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2 * scale)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN", "LSTMCell"])
def test_what_is_computed_of_a_recurrent_layer(name):
    """In the type that eager has there: a cast to f32 is one, or is none."""
    torch.manual_seed(1)
    options = {"batch_first": True} if "Cell" not in name else {}
    module = getattr(torch.nn, name)(8, 8, **options)
    x = torch.randn(RECURRENT[name])

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.utils._pytree.tree_leaves(module(x))[0]
            return y, y.float() * 1.001, y * torch.ones(8), y.mT

    actual = compile_with(function, fullgraph=True)(x)
    for ours, eager in zip(actual, function(x), strict=True):
        assert ours.dtype == eager.dtype
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)


def test_the_table_is_torchs():
    """Every operator of ours that torch's autocast touches is in our table, and no other but what
    is made of such."""
    ours = {op.name for op in tandem.ops() if op.autocast != "none"}
    over_products = {name for name in ours if "rnn_" in name or "lstm" in name or "gru" in name}
    assert len(over_products) == 8
    ours -= over_products
    torchs = set()
    for op in tandem.ops():
        name = op.name.replace("aten.", "aten::", 1)
        try:
            has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU")
        except RuntimeError:  # no operator of torch's
            continue
        if has_kernel:
            torchs.add(op.name)
    assert ours == torchs


def calls_without_a_line():
    """(name, call of eager) of every sample of the operators that torch's table lacks."""
    generator = torch.Generator().manual_seed(1)
    for op in tandem.ops():
        # Eager's products with packed integers end the process at sizes that do not fit.
        has_eager = not op.name.startswith((*sample_language.WITHOUT_EAGER, "aten._weight_int"))
        if op.autocast != "none" or op.mutates or not has_eager:
            continue
        for text in [text for text in op.samples if "$" in text and "special" not in text]:
            for dtype in ("f32", "bf16"):
                sample = sample_language.parse_sample(text.replace("$", dtype), dtype)
                tensors = [spec.make(generator) for spec in sample.specs()]
                positional, named = sample_language.eager_arguments(sample, tensors)
                call = sample_language.eager_op(op.name)
                yield op.name, functools.partial(call, *positional, **named)


def dtypes_of(call):
    try:
        leaves = torch.utils._pytree.tree_leaves(call())
    except EAGER_REFUSES:
        return None
    return [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]


def test_what_autocast_reaches():
    """Operators without a line whose results have another type in a region: those that we open, or
    cast whole."""
    found = set()
    for name, call in calls_without_a_line():
        outside = dtypes_of(call)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if outside is not None and dtypes_of(call) not in (None, outside):
                found.add(name)
    opened = {str(op).removesuffix(".default") for op in (*autocast.OVER_OTHERS, *autocast.PADS)}
    whole = {f"aten.{name}" for name in autocast.CAST_WHOLE}
    is_layer = {"aten.lstm", "aten.affine_grid"}  # not an operator, or one with a line of ours
    backward = {"aten.affine_grid_generator_backward"}  # which is not called in a region
    assert found == (opened | whole | backward) - is_layer
