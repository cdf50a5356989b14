"""Behaviours 1 to 18: convolutions of a model that was calibrated."""

import pytest
import torch
import torch.nn.functional as F
from behaviours import behaviour
from converted import check, compiled_once, distance, quantize
from torch import nn

BF16 = torch.bfloat16


def image(channels=3, size=8, batch=2):
    torch.manual_seed(0)
    return torch.randn(batch, channels, size, size)


def conv(before, after, kernel=3, **options):
    return nn.Conv2d(before, after, kernel, **options)


def row_of_three():
    return nn.Sequential(conv(3, 128), conv(128, 128), conv(128, 128, groups=4))


@behaviour("1")
def test_convolutions_in_a_row():
    x = image()
    check(quantize(row_of_three(), x), x, products=3, launches=4)


@behaviour("2")
def test_convolutions_in_a_row_bf16():
    x = image()
    check(quantize(row_of_three(), x), x, products=3, launches=4, autocast=BF16)


class Rounded(nn.Module):
    """A convolution of factors that are 8-bit floats."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        ops = torch.ops.torchao

        def rounded(x, scale):
            q = ops.quantize_affine_float8_non_decomposed(x, torch.tensor([scale]))
            return ops.dequantize_affine_float8_non_decomposed(q, torch.tensor([scale]))

        c = self.inner
        return F.conv2d(rounded(x, 0.01), rounded(c.weight, 0.001), c.bias, groups=c.groups)


@behaviour("3")
def test_convolutions_in_a_row_of_8_bit_floats():
    x, model = image(), nn.Sequential(*[Rounded(each) for each in row_of_three()])
    with torch.no_grad():
        expected, in_f32 = model(x), nn.Sequential(*[each.inner for each in model])(x)
    found, _ = compiled_once(model, x)
    # Sums in another order round a few elements between two convolutions the other way.
    assert distance(found, expected) < 0.05 * distance(in_f32, expected)


def with_activation(make):
    return nn.Sequential(conv(3, 16), make(), conv(16, 16, bias=False), make())


ACTIVATIONS = {
    "relu": behaviour("4"),
    "relu6": behaviour("5"),
    "hardtanh": behaviour("6"),
    "hardswish": behaviour("7"),
    "silu": behaviour("8"),
}
MAKE = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "hardswish": nn.Hardswish,
    "silu": nn.SiLU,
}
CASES = [pytest.param(name, marks=mark, id=name) for name, mark in ACTIVATIONS.items()]


@pytest.mark.parametrize("autocast", [None, BF16])
@pytest.mark.parametrize("name", CASES)
def test_activation(name, autocast):
    x = image()
    model = quantize(with_activation(MAKE[name]), x)
    check(model, x, products=2, launches=3, autocast=autocast)


def add_in_place(a, b):
    return a.add_(b)


ADDITIONS = {
    "torch.add": torch.add,
    "add": lambda a, b: a.add(b),
    "add_": add_in_place,
}
additions = pytest.mark.parametrize("add", ADDITIONS.values(), ids=ADDITIONS.keys())


class Sums(nn.Module):
    def __init__(self, add, last):
        super().__init__()
        self.convs = nn.ModuleList([conv(3, 8), conv(3, 8), conv(8, 8), conv(8, 8)])
        self.add, self.first, self.last = add, last(), last()

    def forward(self, x):
        a, b, c, d = self.convs
        y = self.first(self.add(a(x), b(x)))
        return self.last(self.add(c(y), d(y)))


@behaviour("9")
@additions
def test_sums(add):
    x = image()
    check(quantize(Sums(add, nn.Identity), x), x, products=4, launches=5)


@behaviour("10")
@additions
def test_sums_and_relu(add):
    x = image()
    check(quantize(Sums(add, nn.ReLU), x), x, products=4, launches=5)


@behaviour("11")
@additions
@pytest.mark.parametrize("last", [nn.Identity, nn.ReLU])
def test_sums_bf16(add, last):
    x = image()
    check(quantize(Sums(add, last), x), x, products=4, launches=5, autocast=BF16)


class WithInput(nn.Module):
    def __init__(self, is_first):
        super().__init__()
        self.convs = nn.ModuleList([conv(8, 8, padding=1), conv(8, 8, padding=1)])
        self.is_first = is_first

    def forward(self, x, other):
        y = x
        for layer in self.convs:
            y = layer(y) + other if self.is_first else other + layer(y)
        return y


@behaviour("12")
@pytest.mark.parametrize("is_first", [True, False])
def test_sum_with_an_input(is_first):
    x, other = image(8), image(8).flip(0)
    check(quantize(WithInput(is_first), x, other), x, other, products=2)


@behaviour("13")
def test_addend_that_is_broadcast():
    class Broadcast(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv(32, 32, padding=1)

        def forward(self, x, other):
            return self.conv(x) + other

    x, other = image(32, 9), image(32, 1)
    check(quantize(Broadcast(), x, other), x, other, products=1)


@behaviour("14")
@pytest.mark.parametrize("make", [nn.Hardswish, nn.Hardsigmoid])
def test_activation_that_adds(make):
    x = image()
    model = quantize(nn.Sequential(conv(3, 8), make()), x)
    check(model, x, products=1, launches=2)


class ReadAgain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = conv(3, 8, padding=1)
        self.one, self.two = conv(8, 8, padding=1), conv(8, 8, padding=1)

    def forward(self, x):
        x = self.first(x)
        pooled = F.max_pool2d(x, 3, stride=1, padding=1)
        return torch.cat([self.one(x) + pooled, self.two(pooled)], 1)


@behaviour("15")
def test_addend_that_is_read_again():
    x = image()
    check(quantize(ReadAgain(), x), x, products=3)


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(conv(3, 8, padding=1) for _ in range(3))
        self.last = conv(24, 8)

    def forward(self, x):
        return self.last(torch.cat([branch(x) for branch in self.branches], 1))


@behaviour("16")
def test_convolutions_cat_convolution():
    x = image()
    check(quantize(Concatenated(), x), x, products=4)


class TwoReaders(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.one, self.two = conv(3, 8), conv(8, 8), conv(8, 8)

    def forward(self, x):
        y = self.first(x)
        return self.one(y) + self.two(y)


@behaviour("17")
def test_one_value_two_readers():
    x = image()
    check(quantize(TwoReaders(), x), x, products=3, launches=4)


@behaviour("18")
def test_conv1d_relu():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 20)
    model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.ReLU())
    check(quantize(model, x), x, products=2, launches=3)
