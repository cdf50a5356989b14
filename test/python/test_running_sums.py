"""Long running sums and products: a prefix of n terms has n roundings, so f32 ones accumulate in
f64, like eager's. And logcumsumexp where its terms are far apart, or infinite."""

import pytest
import torch

from compiled import compile_with

LENGTH = 20000
VALUES = {
    "cumsum": lambda: torch.rand(2, LENGTH) + 0.5,
    "cumprod": lambda: (torch.randn(2, LENGTH) * 0.01).exp(),
    "logcumsumexp": lambda: torch.randn(2, LENGTH),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VALUES)
def test_no_less_accurate_than_eager(name, dtype):
    torch.manual_seed(0)
    value = VALUES[name]().to(dtype)

    def function(x):
        return getattr(torch, name)(x, 1)

    exact = function(value.double())
    errors = [
        ((run(value).double() - exact) / exact).abs().max().item()
        for run in (compile_with(function), function)
    ]
    assert errors[0] <= 1.5 * errors[1] + 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logcumsumexp_of_terms_far_apart(dtype):
    inf = torch.inf
    rows = [
        [-1000.0, 0.0, 1000.0, 999.0, -inf],
        [-inf, -inf, 1.0, 2.0, 3.0],
        [1.0, inf, 2.0, inf, -inf],
        [1.0, torch.nan, 2.0, inf, 0.0],
        [80.0, 80.0, 80.0, -80.0, 80.0],
    ]
    value = torch.tensor(rows, dtype=dtype)
    actual = compile_with(lambda x: x.logcumsumexp(1))(value)
    torch.testing.assert_close(actual, value.logcumsumexp(1), equal_nan=True)


def test_gradient_of_logcumsumexp():
    """Of both signs, and 0 where a term has no share in any sum."""
    torch.manual_seed(0)
    value = torch.randn(3, 500) * 2
    value[:, :2] = -torch.inf
    value[1, 7] = -torch.inf
    tangent = torch.randn(3, 500)
    tangent[2, 100:] = 0
    value.requires_grad_()
    result = compile_with(lambda x: x.logcumsumexp(1))(value)
    (actual,) = torch.autograd.grad(result, value, tangent)
    doubles = value.detach().double()
    sums = doubles.logcumsumexp(1)
    shares = (doubles[:, None] - sums[:, :, None]).exp().tril()  # of x_j in y_i
    shares = torch.where(doubles[:, None].isinf() | sums[:, :, None].isinf(), 0.0, shares).tril()
    expected = (tangent.double()[:, :, None] * shares).sum(1)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)
