"""Behaviours 28 to 47: linear layers, calibrated, dynamic, trained."""

import pytest
import torch
from behaviours import behaviour
from converted import NEAR, check, compiled_once, distance, exported, quantize, quantize_in_training
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_x86_inductor_linear_dynamic_fp16_config,
)

BF16 = torch.bfloat16
biases = pytest.mark.parametrize("bias", [True, False])


def activation(*sizes):
    torch.manual_seed(0)
    return torch.randn(*sizes)


def two(bias=True, between=nn.Identity, after=nn.Identity):
    return nn.Sequential(nn.Linear(4, 3, bias), between(), nn.Linear(3, 4, bias), after())


@biases
@pytest.mark.parametrize(
    ("sizes", "autocast"),
    [
        pytest.param((2, 4), None, marks=behaviour("28")),
        pytest.param((2, 4), BF16, marks=behaviour("29")),
        pytest.param((2, 3, 4), None, marks=behaviour("30")),
        pytest.param((2, 3, 4), BF16, marks=behaviour("31")),
    ],
)
def test_static(sizes, autocast, bias):
    x = activation(*sizes)
    check(quantize(two(bias), x), x, products=2, launches=3, autocast=autocast)


class Permuted(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.one, self.two = nn.Linear(12, 5, bias), nn.Linear(5, 6, bias)

    def forward(self, x):
        x = x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
        return self.two(self.one(x))


@biases
@pytest.mark.parametrize(
    "autocast",
    [
        pytest.param(None, marks=behaviour("32")),
        pytest.param(BF16, marks=behaviour("33")),
    ],
)
def test_permuted_input(bias, autocast):
    x = activation(2, 3, 5, 4)
    check(quantize(Permuted(bias), x), x, products=2, launches=3, autocast=autocast)


@behaviour("33")
@biases
def test_converted_under_autocast(bias):
    x = activation(2, 3, 5, 4)
    with torch.autocast("cpu", BF16):
        model = quantize(Permuted(bias), x)
    check(model, x, products=2, autocast=BF16)


@biases
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((5, 4), marks=behaviour("34")),
        pytest.param((2, 3, 4), marks=behaviour("36")),
    ],
)
def test_dynamic(sizes, bias):
    x = activation(*sizes)
    check(quantize(two(bias), x, is_dynamic=True), x, products=2)


@behaviour("35")
@biases
def test_dynamic_and_trained(bias):
    x = activation(5, 4)
    check(quantize_in_training(two(bias), x, is_dynamic=True), x, products=2)


def gelu(approximate):
    return lambda: nn.GELU(approximate)


UNARY = [
    pytest.param(nn.ReLU, None, marks=behaviour("37"), id="relu"),
    pytest.param(nn.ReLU, BF16, marks=behaviour("37"), id="relu-bf16"),
    pytest.param(gelu("none"), None, marks=behaviour("38"), id="erf"),
    pytest.param(gelu("tanh"), None, marks=behaviour("38"), id="tanh"),
    pytest.param(gelu("none"), BF16, marks=behaviour("39"), id="erf-bf16"),
    pytest.param(gelu("tanh"), BF16, marks=behaviour("39"), id="tanh-bf16"),
]


@pytest.mark.parametrize("sizes", [(2, 4), (2, 3, 4)])
@pytest.mark.parametrize(("make", "autocast"), UNARY)
def test_unary(make, autocast, sizes):
    x = activation(*sizes)
    model = quantize(two(between=make, after=make), x)
    check(model, x, products=2, launches=3, autocast=autocast)


class Sums(nn.Module):
    def __init__(self, add, last):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.add, self.first, self.last = add, last(), last()

    def forward(self, x):
        a, b, c, d = self.layers
        y = self.first(self.add(a(x), b(x)))
        return self.last(self.add(c(y), d(y)))


ADDITIONS = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "x.add_(y)": lambda x, y: x.add_(y),
    "y.add_(x)": lambda x, y: y.add_(x),
}


@behaviour("40")
@pytest.mark.parametrize("way", ["static", "dynamic", "trained", "trained dynamic"])
@pytest.mark.parametrize("sizes", [(4, 4), (4, 4, 4)])
@pytest.mark.parametrize("add", ADDITIONS.values(), ids=ADDITIONS.keys())
def test_sums(add, sizes, way):
    x = activation(*sizes)
    model = Sums(add, nn.ReLU if way == "static" else nn.Identity)
    convert = quantize_in_training if "trained" in way else quantize
    converted = convert(model, x, is_dynamic="dynamic" in way)
    check(converted, x, products=4)


@behaviour("40")
@pytest.mark.parametrize("add", ADDITIONS.values(), ids=ADDITIONS.keys())
def test_sums_bf16(add):
    x = activation(4, 4)
    check(quantize(Sums(add, nn.ReLU), x), x, products=4, autocast=BF16)


class TwoReaders(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.one, self.two = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        y = self.first(x)
        return self.one(y) + self.two(y)


@pytest.mark.parametrize(
    ("sizes", "autocast", "is_dynamic"),
    [
        pytest.param((2, 4), None, False, marks=behaviour("41")),
        pytest.param((2, 3, 4), None, False, marks=behaviour("42")),
        pytest.param((2, 4), BF16, False, marks=behaviour("43")),
        pytest.param((2, 4), None, True, marks=behaviour("44")),
    ],
)
def test_one_value_two_readers(sizes, autocast, is_dynamic):
    x = activation(*sizes)
    model = quantize(TwoReaders(), x, is_dynamic=is_dynamic)
    check(model, x, products=3, launches=None if is_dynamic else 4, autocast=autocast)


@behaviour("45")
def test_product_with_a_tensor():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, x, y):
            return self.linear(x) * y

    x, y = activation(2, 4), activation(2, 5)
    check(quantize(Scaled(), x, y), x, y, products=1)


class Half(nn.Module):
    def __init__(self, bias, last):
        super().__init__()
        self.linear, self.last = nn.Linear(256, 256, bias), last

    def forward(self, x):
        return self.last(self.linear(x))


def with_half_weights(model, x):
    config = get_x86_inductor_linear_dynamic_fp16_config()
    quantizer = X86InductorQuantizer().set_global(config)
    with torch.no_grad():
        prepared = prepare_pt2e(exported(model.eval(), (x,)), quantizer)
        prepared(x)
        return convert_pt2e(prepared)


@biases
@pytest.mark.parametrize("x_is", ["2-D", "3-D", "strided"])
@pytest.mark.parametrize(
    "last",
    [
        pytest.param(nn.Identity, marks=behaviour("46"), id="linear"),
        pytest.param(nn.ReLU, marks=behaviour("47"), id="relu"),
    ],
)
def test_half_weights(last, x_is, bias):
    """The weight is kept as f16, which holds every bit of it that the graph uses."""
    x = activation(8, 512)[:, ::2] if x_is == "strided" else activation(8, 256)
    x = x.view(2, 4, 256) if x_is == "3-D" else x
    model = with_half_weights(Half(bias, last()), x)
    with torch.no_grad():
        expected = model(x)
    result, graph = compiled_once(model, x)
    assert distance(result, expected) < NEAR * 1e-2
    assert graph["forward"]["launches"] + graph["forward"]["library_calls"] <= 2
