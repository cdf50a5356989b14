"""Quantiles beside eager: each interpolation, several q at once, NaN, gradients, and what is
refused."""

import pytest
import torch

from compiled import compile_with
from tandem import DataError

WAYS = ["linear", "lower", "higher", "midpoint", "nearest"]


def rows():
    torch.manual_seed(0)
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    x[0, 2, 1] = x[1, :, 0] = torch.nan
    x[2, 3, 3] = torch.inf
    return x


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_values(function, way, keepdim, dim):
    for q in [0.0, 0.3, 1.0, torch.tensor(0.5), torch.tensor([0.1, 0.25, 1.0])]:
        q = q.double() if isinstance(q, torch.Tensor) else q
        kept = {"dim": dim, "keepdim": keepdim, "interpolation": way}
        found = compile_with(lambda x, q: function(x, q, **kept))(rows(), q)
        torch.testing.assert_close(found, function(rows(), q, **kept), equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_gradients(way, dynamic):
    x = torch.randn(5, 9, requires_grad=True)
    own = x.detach().requires_grad_()
    q = torch.tensor([0.2, 0.9])

    def function(x, q):
        return torch.quantile(x.sin(), q, dim=1, interpolation=way)

    compile_with(function, dynamic=dynamic)(x, q).cos().sum().backward()
    function(own, q).cos().sum().backward()
    torch.testing.assert_close(x.grad, own.grad)


def test_a_q_that_is_none():
    """As in eager it is an error, and no number."""
    compiled = compile_with(lambda x, q: torch.quantile(x, q))
    for q in [-0.1, 1.5, float("nan")]:
        with pytest.raises(DataError, match="q is not in"):
            compiled(torch.randn(5), torch.tensor(q))
