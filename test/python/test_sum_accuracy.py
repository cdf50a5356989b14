"""Sums of f32 are about as close as eager's, whose sums are pairwise: the error does not grow with
the number of elements, whatever their layout and whether sizes are known."""

import pytest
import torch

import tandem

EPS = torch.finfo(torch.float32).eps
MOST = 5 * EPS
SHAPES = {
    "all": ((1 << 20,), [0]),
    "rows": ((16, 1 << 16), [1]),
    "few columns": ((1 << 16, 16), [0]),
    "columns": ((1 << 12, 256), [0]),
    "many columns": ((1 << 12, 5000), [0]),
    "channels": ((8, 12, 50, 60), [0, 2, 3]),
}


def error(function, *arguments, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(
        function, backend=tandem.backend, dynamic=dynamic, options={"on_unsupported": "error"}
    )
    truth = function(*(a.double() for a in arguments))
    found = compiled(*arguments)
    return ((found.double() - truth).abs() / truth.abs()).max().item()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_sums(name, dynamic):
    torch.manual_seed(0)
    shape, dims = SHAPES[name]
    assert error(lambda x: x.sum(dims), torch.rand(shape), dynamic=dynamic) <= MOST


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_before_a_batch_norm(dynamic):
    """The bias gradient sums what a norm behind it has made sum to nearly zero."""
    torch.manual_seed(0)
    x, target = torch.randn(5, 8, 60, 60) + 3, torch.rand(5, 8, 60, 60)

    def gradients(dtype, compiled):
        first, second = (torch.nn.BatchNorm2d(8, dtype=dtype) for _ in range(2))

        def loss(x, target):
            return (second(first(x)) * target).sum()

        given = x.to(dtype), target.to(dtype)
        torch._dynamo.reset()
        function = (
            torch.compile(loss, backend=tandem.backend, dynamic=dynamic) if compiled else loss
        )
        function(*given).backward()
        return torch.stack([first.weight.grad, first.bias.grad]).double()

    truth = gradients(torch.float64, False)
    ours = (gradients(torch.float32, True) - truth).abs().max()
    eagers = (gradients(torch.float32, False) - truth).abs().max()
    assert ours <= 4 * eagers
