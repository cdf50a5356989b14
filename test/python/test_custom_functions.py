"""torch.autograd.Function in a compiled graph, whatever its context keeps: results and gradients of
eager."""

import pytest
import torch

from compared import beside_eager


def custom(forward, backward):
    class Custom(torch.autograd.Function):
        pass

    Custom.forward, Custom.backward = staticmethod(forward), staticmethod(backward)
    return Custom.apply


def keep_number(ctx, x, k):
    ctx.k = k
    return x * k


scaled = custom(keep_number, lambda ctx, g: (g * ctx.k, None))


def keep_shape(ctx, x, y):
    ctx.x, ctx.shape, ctx.rows = x, x.shape, x.shape[0]
    return x * y


shaped = custom(keep_shape, lambda ctx, g: ((g * ctx.rows).view(ctx.shape), g * ctx.x))


def keep_mask(ctx, x, index, flag):
    ctx.save_for_backward(x, index)
    ctx.flag, ctx.mask = flag, x > 0
    return x[index]


def masked_gradient(ctx, g):
    x, index = ctx.saved_tensors
    z = torch.zeros_like(x).index_add(0, index, g)
    return (z * ctx.mask if ctx.flag else z), None, None


picked = custom(keep_mask, masked_gradient)


def keep_dict(ctx, x, settings):
    ctx.settings = settings
    return x * settings["k"]


configured = custom(keep_dict, lambda ctx, g: (g * ctx.settings["k"], None))


def keep_optional(ctx, x, y):
    ctx.y = y
    return x * 2


optional = custom(keep_optional, lambda ctx, g: (g * 2, None))


def keep_count(ctx, n, x):
    ctx.n = n
    return x.repeat(n, 1)


repeated = custom(keep_count, lambda ctx, g: (None, g.view(ctx.n, -1, g.shape[1]).sum(0)))

handed_on = custom(lambda ctx, x, y, z: x + y * z, lambda ctx, g: (g, g * 2, None))

FUNCTIONS = {
    "a number": lambda x, y, i: scaled(x, 3),
    "a float": lambda x, y, i: scaled(x, 3.5),
    "a size": lambda x, y, i: scaled(x, x.shape[0]),
    "a shape": lambda x, y, i: shaped(x, y),
    "a mask and a flag": lambda x, y, i: picked(x, i, True),
    "a dict": lambda x, y, i: configured(x, {"k": 2.0}),
    "none": lambda x, y, i: optional(x, None),
    "a tensor without a gradient": lambda x, y, i: optional(x, y),
    "an integer tensor": lambda x, y, i: optional(x, i),
    "a size before the tensor": lambda x, y, i: repeated(x.shape[0], x),
    "a gradient handed on": lambda x, y, i: handed_on(x, y, y.detach()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_in_eager(name, dynamic):
    torch.manual_seed(0)
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    beside_eager(FUNCTIONS[name], x, y, torch.tensor([1, 3]), dynamic=dynamic)
