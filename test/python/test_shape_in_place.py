"""Operators that change the shape of a tensor in place: `t_`, `squeeze_` and their kin. The
tensor's name goes over to the view; other names keep the shape that they have."""

import pytest
import torch
from torch._dynamo import config

from compared import beside_eager
from compiled import compile_with, through_core


def inputs():
    torch.manual_seed(0)
    return torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def one_after_the_other(x, w):
    y = x * 2
    y.unsqueeze_(0)
    z = y * 3
    y.transpose_(1, 2)
    y.squeeze_(0)
    return y, z, y.t() @ w


def view_from_before(x, w):
    y = x * 2
    v = y.view(-1)
    y.t_()
    y.add_(w.sum())
    return v, y * 2, y.sum(0)


def strided(x, w):
    y = x * 2
    y.as_strided_((4, 3), (1, 4))
    y.mul_(w[:, :3])
    return y.sin()


def swapped(x, w):
    y = (x * 2).unsqueeze(1)
    y.swapaxes_(0, 2)
    y.squeeze_()
    y.swapdims_(0, 1)
    return y, y.t(), y.unsqueeze(1).squeeze_((0, 1))


def view_of_an_input(x, w):
    y = x.view(2, 6)
    y.unsqueeze_(1)
    return y, y * 2, w * 1


def part_is_written(x, w):
    y = x * 2
    y.transpose_(0, 1)
    y[0] = w.sum()
    return y, y.sum(0)


def detached(x, w):
    y = x * 2
    z = y * 3
    y.detach_()
    y.add_(w.sum())
    return z, y * w.sum()


def needs_a_gradient_from_here(x, w):
    y = (x * 2).detach()
    y.requires_grad_()
    return (y * w.sum()).detach(), x * 3


ALL = [one_after_the_other, view_from_before, strided, swapped, part_is_written, detached]


@pytest.mark.parametrize("function", [*ALL, needs_a_gradient_from_here], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_as_in_eager(function, dynamic):
    x, w = inputs()
    beside_eager(function, x, w, fullgraph=function in ALL, dynamic=dynamic)
    with torch.no_grad():
        beside_eager(function, x, w, fullgraph=function in ALL, dynamic=dynamic)


def test_across_a_cut():
    def function(x, w):
        y = x * 2
        chosen = y[y > 0].sum()
        y.t_()
        y.add_(chosen)
        return y, y * w[:, :3]

    with config.patch(capture_dynamic_output_shape_ops=True):
        beside_eager(function, *inputs())


def test_view_of_an_input():
    x, w = (value.detach() for value in inputs())
    y, _, _ = beside_eager(view_of_an_input, x, w)(x, w)
    assert y.shape == (2, 1, 6) and y.data_ptr() == x.data_ptr()


def test_an_inputs_own_shape():
    """Dynamo does that in Python, between graphs; a graph that does it is refused."""

    def function(x):
        y = x + 1
        x.t_()
        return y, x * 2

    x = torch.randn(3, 4)
    y, z = compile_with(function)(x)
    assert x.shape == (4, 3) and torch.equal(z, x * 2) and torch.equal(y, x.t() + 1)
    with pytest.raises(Exception, match=r"\[aten.t_\] changes the shape of an input"):
        through_core(function)(torch.randn(3, 4))


def test_size_of_the_memory():
    def function(x):
        y = x + 1
        y.resize_(2, 2)
        return y * 1

    with pytest.raises(Exception, match=r"\[aten.resize_\] changes the size"):
        through_core(function)(torch.randn(3, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(compile_with(function)(x), function(x))


def becomes_a_part(x, w):
    y, z = x * 2, w * 2
    before = y.view(-1)
    with torch.no_grad():
        y.set_(z[1:])
    y.add_(1)  # of z
    before.mul_(3)  # of what was y
    return y * 1, z * 1, before * 1, y.shape[0]


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_memory_of_another_tensor(dynamic):
    x, w = (value.detach() for value in inputs())
    options = {"fullgraph": True, "dynamic": dynamic, "on_unsupported": "strict"}
    beside_eager(becomes_a_part, x, w, **options)


def test_memory_of_another_tensor_that_has_a_history():
    def function(x, w):
        y, z = x.detach() * 2, w * 2
        with torch.no_grad():
            y.set_(z)
        return y * 3, z * 1

    beside_eager(function, *inputs(), fullgraph=True, on_unsupported="strict")


def test_another_memory_with_a_history():
    def function(x, w):
        y, z = x * 2, w.detach() * 2
        with torch.no_grad():
            y.set_(z)
        return y * 3

    with pytest.raises(Exception, match=r"\[aten.set_.source_Tensor\] with a history"):
        compile_with(function)(*inputs())


def test_another_memory_of_an_input():
    with pytest.raises(Exception, match=r"\[aten.set_.*changes the shape of an input"):
        through_core(lambda x: x.set_(torch.ones(2)) * 2)(torch.randn(3, 4))


@pytest.mark.parametrize("returns_it", [False, True])
def test_without_gradients_from_here(returns_it):
    """What has a history keeps it."""

    def function(x, w):
        y = x * 2
        z = y + w
        torch.set_grad_enabled(False)
        y.unsqueeze_(0)
        y.add_(1)
        return (z, y) if returns_it else (z, y * 3)

    def run(call):
        torch.manual_seed(0)
        x = torch.randn(3, 4, requires_grad=True)
        w = torch.randn(3, 4, requires_grad=True)
        with torch.enable_grad():
            z, made = call(x, w)
        loss = z.sum() + (made.exp().sum() if returns_it else 0)
        assert made.requires_grad == returns_it
        return made, z, *torch.autograd.grad(loss, (x, w))

    call = through_core(function)
    for ours, eager in zip(run(call), run(function), strict=True):
        torch.testing.assert_close(ours, eager)


MADE = {
    "view": lambda x: (x * 1).view(12)[:6].view(2, 3),
    "transposed": lambda x: (x * 1).t(),
    "row": lambda x: (x * 2)[0],
    "whole": lambda x: x * 1,
}
CHANGED = {
    "in front": lambda y: y.unsqueeze_(0),
    "behind": lambda y: y.unsqueeze_(-1),
    "transposed": lambda y: y.transpose_(0, -1),
    "there and back": lambda y: y.unsqueeze_(0).squeeze_(0),
}
LATER = {
    "read": lambda y: y * 3,
    "written": lambda y: y.mul_(2),
    "returned": lambda y: y,
}


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("made", MADE)
def test_under_no_grad_with_a_history(made, changed, later):
    """Of a view autograd learns the new shape; of another tensor it does not, and sums a gradient
    to the old one: that is right where the new dimensions stand in front."""

    def function(x):
        y = MADE[made](x)
        other = y.view_as(y)
        with torch.no_grad():
            CHANGED[changed](y)
        return LATER[later](y), other

    x, _ = inputs()
    if made != "whole" or changed == "in front":
        beside_eager(function, x, fullgraph=True, on_unsupported="strict")
    else:
        with pytest.raises(Exception, match="under no_grad changes what autograd knows"):
            compile_with(function, fullgraph=True, on_unsupported="strict")(x)
