"""What is constant piece by piece, or keeps nothing of its operand, has a history in eager: its
result requires a gradient, and the gradient is zeros, not None."""

import pytest
import torch

from compared import beside_eager

FUNCTIONS = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "round decimals": lambda x: torch.round(x, decimals=1),
    "trunc": torch.trunc,
    "sign": torch.sign,
    "sgn": torch.sgn,
    "angle": torch.angle,
    "div floor": lambda x: torch.div(x, 2.0, rounding_mode="floor"),
    "div trunc": lambda x: torch.div(x, x.detach() + 3, rounding_mode="trunc"),
    "fill": lambda x: torch.fill(x, 2.0),
    "zero": lambda x: (x * 1).zero_(),
    "fill_": lambda x: (x * 1).fill_(3.0),
    "fill by a tensor": lambda x: torch.fill(x, torch.tensor(2.0)),
    "behind others": lambda x: torch.floor((x.sin() * 3).exp()) * 2,
    "beside others": lambda x: torch.round(x) * x,
    "through two inputs": lambda x: torch.where(x > 0, torch.sign(x), torch.floor(x)),
    "of a part": lambda x: torch.cat([x[:1].floor(), x[1:]]),
    "detached": lambda x: x.detach().floor() + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager(name):
    torch.manual_seed(0)
    beside_eager(FUNCTIONS[name], torch.randn(4, 3, requires_grad=True))


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
def test_division_with_a_rounding_mode(mode):
    """A number for a tensor is its overload of numbers, of the same name otherwise."""
    x = torch.arange(-5, 6)
    beside_eager(lambda x: torch.div(x, 2, rounding_mode=mode), x)
    beside_eager(lambda x: torch.div(x, 1.5, rounding_mode=mode), x.float())
