"""`save_activations`: saved values in fewer bits; gradients are those of the rounded values."""

import functools
import re

import pytest
import torch

import tandem
from compiled import compile_with as compile_by_default

# What backward reads is saved: the default would make these small products again.
compile_with = functools.partial(compile_by_default, memory_budget="as_read")
FLOATS = {"f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}
UNSCALED = {f"{name}_unscaled": dtype for name, dtype in FLOATS.items()}
KINDS = ("bf16", "int8", "int8_row", "int8_block", *FLOATS, *UNSCALED)


def rounded(x, kind):
    """What backward sees of a saved value, by the definition, in torch."""
    if kind == "bf16":
        return x.bfloat16().float()
    if kind in UNSCALED:
        most = torch.finfo(UNSCALED[kind]).max
        return x.clamp(-most, most).to(UNSCALED[kind]).float()
    blocks = x
    if kind == "int8_block" and x.shape[-1] % 64 == 0:
        blocks = x.reshape(*x.shape[:-1], -1, 64)
    high = blocks.abs().max() if kind == "int8" else blocks.abs().amax(-1, keepdim=True)
    if kind in FLOATS:
        scale = (high / torch.finfo(FLOATS[kind]).max).clamp_min(1e-30)
        return (x / scale).to(FLOATS[kind]).float() * scale
    scale = (high / 127).clamp_min(1e-30)
    return ((blocks / scale).round() * scale).reshape(x.shape)


class Product(torch.autograd.Function):
    """sin(x w): backward reads the product as it was kept."""

    @staticmethod
    def forward(ctx, x, w, kind):
        y = x @ w
        ctx.save_for_backward(x, w, rounded(y, kind))
        return y.sin()

    @staticmethod
    def backward(ctx, tangent):
        x, w, y = ctx.saved_tensors
        inner = tangent * y.cos()
        return inner @ w.T, x.T @ inner, None


def gradients(function, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs)
    handle = getattr(y.grad_fn, "handle", None)
    saved = None if handle is None else handle.bytes
    torch.manual_seed(1)
    y.backward(torch.randn_like(y))
    return y.detach(), [x.grad for x in inputs], saved


def sine(x, w):
    return (x @ w).sin()


@pytest.mark.parametrize("width", [128, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_backward_reads_the_rounded_values(kind, width):
    torch.manual_seed(0)
    x, w = torch.randn(256, 32), torch.randn(32, width)
    x[3] = 0  # a row whose scale would be 0
    whole, _, saved_whole = gradients(compile_with(sine), x, w)
    result, found, saved = gradients(compile_with(sine, save_activations=kind), x, w)
    _, expected, _ = gradients(lambda x, w: Product.apply(x, w, kind), x, w)
    _, unrounded, _ = gradients(sine, x, w)
    assert torch.equal(result, whole)  # forward is as without
    for a, b, c in zip(found, expected, unrounded):
        # A product that is rounded the other way by a sum in another order moves one step.
        off = (a - b).norm() / b.norm()
        assert off < 0.1 * (c - b).norm() / b.norm()
    product = 4 * 256 * width
    kept = {"bf16": product // 2, "int8": product // 4 + 4, "int8_row": product // 4 + 4 * 256}
    kept |= dict.fromkeys(FLOATS, kept["int8_row"]) | dict.fromkeys(UNSCALED, product // 4)
    kept["int8_block"] = product // 4 + 4 * 256 * (width // 64 if width % 64 == 0 else 1)
    assert saved == saved_whole - product + kept[kind]


def test_small_values_and_results_stay_whole():
    torch.manual_seed(0)
    x, w = torch.randn(256, 32), torch.randn(32, 128)
    _, expected, whole = gradients(compile_with(sine), x, w)
    larger = compile_with(sine, save_activations="int8", save_activations_from=4 * 256 * 128 + 1)
    _, found, saved = gradients(larger, x, w)
    assert saved == whole and all(torch.equal(a, b) for a, b in zip(found, expected))

    def shown(x, w):
        return (x @ w).tanh()

    _, expected, whole = gradients(compile_with(shown), x, w)
    _, found, saved = gradients(compile_with(shown, save_activations="int8"), x, w)
    assert saved == whole and all(torch.equal(a, b) for a, b in zip(found, expected))


def test_sizes_that_are_not_known():
    torch.manual_seed(0)
    compiled = compile_with(
        sine, dynamic=True, save_activations="int8_row", save_activations_from=0
    )
    w = torch.randn(32, 128)
    for rows in (64, 96, 7):
        x = torch.randn(rows, 32)
        _, found, _ = gradients(compiled, x, w)
        _, expected, _ = gradients(lambda x, w: Product.apply(x, w, "int8_row"), x, w)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)


def test_what_is_not_finite_shows():
    x, w = torch.randn(256, 32), torch.randn(32, 128)
    x[5, 0] = float("nan")
    _, (of_x, _), _ = gradients(compile_with(sine, save_activations="int8_row"), x, w)
    assert of_x[5].isnan().all() and of_x[:5].isfinite().all() and of_x[6:].isfinite().all()


@pytest.mark.parametrize("kind", UNSCALED)
def test_without_a_scale_what_is_too_large_becomes_the_largest(kind):
    x = torch.tensor([[1e9, -1e9, 3.0, float("inf"), float("nan"), 0.0]])

    def squared(x):
        y = x * 2
        return y * y

    compiled = compile_with(squared, save_activations=kind, save_activations_from=0)
    (found,) = gradients(compiled, x)[1]
    torch.manual_seed(1)
    tangent = torch.randn(1, 6)
    most = torch.finfo(UNSCALED[kind]).max
    kept = torch.tensor([[most, -most, 6.0, float("nan"), float("nan"), 0.0]])
    torch.testing.assert_close(found, 4 * tangent * kept, equal_nan=True)


def saved_bytes_without(words, dtype=torch.float32, dynamic=False):
    options = {"save_activations": "int8_row", "save_activations_from": 0}
    compiled = compile_with(sine, dynamic=dynamic, save_activations_except=words, **options)
    torch._dynamo.reset()
    return gradients(compiled, *(torch.randn(n).to(dtype) for n in ((256, 32), (32, 128))))[2]


def test_element_types_and_sizes_that_vary_may_stay_whole():
    whole, kept = saved_bytes_without(["aten.mm"]), saved_bytes_without([])
    assert kept < whole
    assert saved_bytes_without(["f32"]) == whole
    assert saved_bytes_without(["bf16", "f64"]) == kept
    assert saved_bytes_without(["bf16"], torch.bfloat16) == whole // 2
    assert saved_bytes_without(["symbolic"]) == kept
    assert saved_bytes_without(["symbolic"], dynamic=True) == whole
    assert saved_bytes_without([], dynamic=True) == kept


@pytest.mark.parametrize("kind", ["bf16", "int8_row", "f8e4m3fn"])
@pytest.mark.parametrize("sizes", [(3, 48, 40), (16, 33), (7, 1024), (7, 40)])
def test_masks_are_kept_as_bits(sizes, kind):
    """And lose nothing: backward reads no other rounded value."""

    def dropped(x):
        return torch.nn.functional.dropout(x.sin(), 0.3) + x

    torch.manual_seed(0)
    x = torch.randn(sizes)

    def run(**options):
        torch.manual_seed(7)
        return gradients(compile_with(dropped, save_activations_except=["aten.sin"], **options), x)

    result, expected, whole = run()
    kept, found, saved = run(save_activations=kind, save_activations_from=1)
    assert torch.equal(kept, result) and torch.equal(found[0], expected[0])
    assert saved == whole - (0 if sizes == (7, 40) else x.numel() * 7 // 8)


@pytest.mark.parametrize(
    "kind, more", [("bf16", 0), ("int8_row", 1), ("int8_block", 1), ("int8", 3), ("f8e5m2", 1)]
)
def test_only_a_scale_costs_kernels(kind, more):
    def kernels(**options):
        x, w = torch.randn(256, 64, requires_grad=True), torch.randn(64, 256, requires_grad=True)
        compile_with(sine, report=True, **options)(x, w).sum().backward()
        graph = tandem.report()["graphs"][-1]
        return graph["forward"]["kernels"], graph["backward"]["kernels"]

    forward, backward = kernels()
    assert kernels(save_activations=kind) == (forward + more, backward)


class Block(torch.nn.Module):
    """A small network for characters: attention, an MLP, norms, as in a GPT."""

    def __init__(self, width=64, kinds=32):
        super().__init__()
        self.first = torch.nn.Embedding(kinds, width)
        self.layer = torch.nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, torch.nn.functional.gelu, batch_first=True, norm_first=True
        )
        self.last = torch.nn.Linear(width, kinds)

    def forward(self, ids):
        return self.last(self.layer(self.first(ids)))


def losses(steps=60, **options):
    """The losses of a training that predicts x + 3 of each x, and the bytes that a step saves."""
    torch.manual_seed(0)
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    compiled = compile_with(model, **options)
    found = []
    for _ in range(steps):
        ids = torch.randint(0, 32, (8, 32))
        y = compiled(ids)
        saved = y.grad_fn.handle.bytes
        loss = torch.nn.functional.cross_entropy(y.reshape(-1, 32), (ids + 3).reshape(-1) % 32)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, saved


@pytest.mark.parametrize("kind", ["int8_row", *FLOATS])
def test_a_training_goes_the_same_way(kind):
    whole, bytes_whole = losses()
    found, saved = losses(save_activations=kind, save_activations_from=4096)
    assert whole[-1] < 0.5 * whole[0]  # there is something to learn, and it was learnt
    assert found != whole  # what was kept was rounded
    assert saved < 0.3 * bytes_whole
    assert all(abs(a - b) < 0.01 * b for a, b in zip(found, whole))


def test_options_are_checked():
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with pytest.raises(Exception, match="save_activations.*int8_row"):
        compile_with(sine, save_activations="int4")(x, w)
    with pytest.raises(Exception, match="save_activations_from.*bytes"):
        compile_with(sine, save_activations_from=-1)(x, w)
    with pytest.raises(tandem.UserError, match="int8_row"):
        tandem._tandem.compile_function("", save_activations="int4")


def kept(**options):
    """Bytes that `waves` saves of products of 4 x 128 x 64, and what the report says of them."""

    def waves(x, v, w):
        first = (x @ v).sin()
        return (first @ w).cos()

    torch.manual_seed(0)
    inputs = torch.randn(128, 64), torch.randn(64, 64), torch.randn(64, 64)
    function = compile_with(waves, report=True, save_activations_from=1, **options)
    _, found, saved = gradients(function, *inputs)
    return found, saved, tandem.report()["graphs"][-1]["cut"]


def test_what_is_excluded_stays_whole():
    whole = 4 * 128 * 64
    small = 128 * 64 + 4 * 128
    exact, all_whole, cut = kept()
    places = re.findall(r"saved .* (%\S+) = aten.mm\(.*\) \((.*)\):", cut)
    assert len(places) == 2
    names, places = zip(*places)
    rounded_all, all_small, _ = kept(save_activations="int8_row")
    smaller = (all_whole - all_small) // (whole - small)  # values that were kept small
    assert smaller >= 2 and all_whole - all_small == smaller * (whole - small)
    for except_, count in [
        (["aten.mm"], 2), (["aten.mm", "aten.sin"], smaller), ([names[0]], 1), (names, 2),
        ([places[1]], None), (["aten.m", "%mm", "aten.mm.Tensor"], 0), ([], 0),
    ]:
        found, saved, cut = kept(save_activations="int8_row", save_activations_except=except_)
        left = (all_whole - saved) // (whole - small)
        if count is not None:
            assert left == smaller - count, except_
        else:
            assert left < smaller
        # The report says which, and the bytes that it counts are those that are kept.
        assert len(re.findall("kept as int8_row", cut)) == left
        assert int(re.search(r"saved, (\d+) bytes", cut).group(1)) == saved + sum(
            int(line.split()[1]) for line in cut.splitlines() if line.endswith(": an input")
        )
        if left == 0:
            assert all(torch.equal(a, b) for a, b in zip(found, exact))
    assert not all(torch.equal(a, b) for a, b in zip(rounded_all, exact))


@pytest.mark.parametrize("except_", ["aten.mm", [3], None, {"aten.mm"}])
def test_exceptions_are_a_list_of_names(except_):
    with pytest.raises(Exception, match="save_activations_except.*is a list of names"):
        kept(save_activations="int8", save_activations_except=except_)


@pytest.mark.parametrize("word", ["mm", "%", ""])
def test_an_exception_is_an_operator_a_value_or_a_place(word):
    with pytest.raises(Exception, match="an operator.*a value.*a place.*not '" + word + "'"):
        kept(save_activations="int8", save_activations_except=[word])
