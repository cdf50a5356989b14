"""torch.autograd.Function in a compiled graph, whatever its context keeps: results and gradients of
eager."""

import warnings

import pytest
import torch

import tandem
from compared import beside_eager
from compiled import compile_with


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


# --- what a function is given and gives

reversed_gradient = custom(lambda ctx, x: x.view_as(x), lambda ctx, g: -g)
halved = custom(lambda ctx, x: x, lambda ctx, g: g * 0.5)
first_of_two = custom(lambda ctx, x, y: (x, y * 2), lambda ctx, g, h: (g * 3, h))


def keep_itself(ctx, x):
    ctx.save_for_backward(x)
    return x


squared_gradient = custom(keep_itself, lambda ctx, g: g * ctx.saved_tensors[0])

HANDED_ON = {
    "a view of all": lambda x, y: reversed_gradient(x),
    "itself": lambda x, y: halved(x),
    "one through another": lambda x, y: reversed_gradient(halved(x)),
    "beside others": lambda x, y: first_of_two(x, y),
    "beside itself": lambda x, y: (halved(x), x),
    "twice": lambda x, y: (halved(x), reversed_gradient(x)),
    "saved": lambda x, y: squared_gradient(x),
    "a part of it": lambda x, y: halved(x)[1],
}


def places(results, *inputs):
    """Of each result: which input's memory it is in, whether autograd knows it as its view, and
    where it begins."""
    results = results if isinstance(results, tuple) else (results,)
    return [
        (
            [each.untyped_storage()._cdata == x.untyped_storage()._cdata for x in inputs],
            [each._base is x for x in inputs],
            each.storage_offset(),
            each.stride(),
            each.requires_grad,
        )
        for each in results
    ]


@pytest.mark.parametrize("name", HANDED_ON)
@pytest.mark.parametrize("make", [lambda: torch.randn(4, 3), lambda: torch.randn(3, 4).t()])
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_that_is_handed_on_keeps_its_memory(name, make, dynamic):
    function = HANDED_ON[name]
    values = [make(), make()]
    compiled = compile_with(function, fullgraph=True, dynamic=dynamic, on_unsupported="strict")
    found = []
    for call in (function, compiled):
        leaves = [value.clone().requires_grad_() for value in values]
        inputs = [leaf.clone() for leaf in leaves]
        results = call(*inputs)
        found.append(places(results, *inputs))
        flat = results if isinstance(results, tuple) else (results,)
        sum((each * each.detach().cos()).sum() for each in flat).backward()
        found[-1] += [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]
        with torch.no_grad():  # Dynamo traces it once more, without the function
            found[-1] += [place[0] for place in places(call(*inputs), *inputs)]
    assert found[0] == found[1]


def test_an_input_that_is_handed_on_from_shared_memory():
    def function(x, y):
        y.add_(1)
        return halved(x)

    compiled = compile_with(function, on_unsupported="eager")
    values = []
    for call in (function, compiled):
        leaf = torch.arange(6.0, requires_grad=True)
        memory = leaf * 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call(memory[:4], memory[2:])
        assert result.data_ptr() == memory.data_ptr()
        (result * result.detach()).sum().backward()
        values += [[result, leaf.grad]]
    assert any("a call runs in torch" in str(each.message) for each in caught)
    torch.testing.assert_close(*values)
    assert tandem.report()["calls in torch"] == 1
