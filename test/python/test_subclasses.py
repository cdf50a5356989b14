"""Tensors that hold others, as inputs, weights and results."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import tandem
from compiled import compile_with


class Rounded(torch.Tensor):
    """Computes with rounded elements; its gradient is that of the operator, not of rounding."""

    @staticmethod
    def __new__(cls, exact):
        return torch.Tensor._make_wrapper_subclass(
            cls, exact.shape, strides=exact.stride(), dtype=exact.dtype, device=exact.device
        )

    def __init__(self, exact):
        self.exact = exact

    def __tensor_flatten__(self):
        return ["exact"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Rounded(parts["exact"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Rounded(args[0].exact)

        def plain(value):
            return value.exact.round() if isinstance(value, Rounded) else value

        args, kwargs = pytree.tree_map(plain, (args, kwargs or {}))
        return function(*args, **kwargs)


def two(*sizes):
    return TwoTensor(torch.randn(*sizes), torch.randn(*sizes))


def parts(value):
    if isinstance(value, TwoTensor):
        return [*parts(value.a), *parts(value.b)]
    return [value.exact] if isinstance(value, Rounded) else [value]


def same(ours, eager):
    assert type(ours) is type(eager)
    for a, b in zip(parts(ours), parts(eager), strict=True):
        torch.testing.assert_close(a, b)


def check(function, make, mode="strict"):
    """Results and gradients beside eager, with nothing in torch unless `mode` allows it."""
    found = []
    for call in (function, compile_with(function, fullgraph=True, on_unsupported=mode)):
        torch.manual_seed(0)
        inputs = make()
        result = call(*inputs)
        leaves = [each for each in inputs if each.requires_grad]
        gradients = torch.autograd.grad(result.sum(), leaves) if leaves else []
        found.append((result.detach(), *gradients))
    for ours, eager in zip(found[1], found[0], strict=True):
        same(ours, eager)


def test_inference():
    check(lambda x, y: (x.sin() * x) @ y, lambda: (two(3, 3), torch.randn(3, 3)))
    check(lambda x: x.sum(0), lambda: (TwoTensor(two(2, 3), two(2, 3)),))


def test_gradients():
    check(lambda x: x.sin() * x, lambda: (two(3).requires_grad_(),))
    check(
        lambda x, y: torch.nn.functional.linear(x, y).relu(),
        lambda: (two(3, 4).requires_grad_(), torch.randn(5, 4, requires_grad=True)),
    )
    check(lambda x, y: x * y, lambda: (two(3), torch.randn(3, requires_grad=True)))


def test_the_gradient_is_that_of_the_whole():
    """Through the parts alone it would be 0."""
    check(
        lambda x, w: (x @ w).sigmoid(),
        lambda: (torch.randn(4, 3, requires_grad=True), Rounded(3 * torch.randn(3, 2))),
    )
    check(
        lambda x, w: x @ w, lambda: (torch.randn(4, 3), Rounded(torch.randn(3, 2)).requires_grad_())
    )


def test_a_weight():
    module = torch.nn.Linear(4, 3)
    plain = [each.detach().clone() for each in (module.weight, module.bias)]
    module.weight = torch.nn.Parameter(TwoTensor(plain[0], 2 * plain[0]))
    module.bias = torch.nn.Parameter(TwoTensor(plain[1], plain[1] + 1))
    x = TwoTensor(torch.randn(5, 4), torch.randn(5, 4))
    compiled = compile_with(module, fullgraph=True, on_unsupported="strict")
    same(compiled(x).detach(), module(x).detach())
    compiled(x).sum().backward()
    ours = module.weight.grad
    module.zero_grad()
    module(x).sum().backward()
    same(ours, module.weight.grad)


def test_a_tangent_of_another_type():
    x, y = two(3).requires_grad_(), torch.randn(3, requires_grad=True)
    compiled = compile_with(lambda x, y: x * y, fullgraph=True, on_unsupported="strict")
    for tangent in (two(3), TwoTensor(torch.ones(3), torch.zeros(3))):
        ours = torch.autograd.grad(compiled(x, y), (x, y), tangent)
        eager = torch.autograd.grad(x * y, (x, y), tangent)
        for a, b in zip(ours, eager, strict=True):
            same(a, b)


@pytest.mark.filterwarnings("ignore:tandem")
def test_what_would_be_wrong_runs_in_torch():
    def written(x):
        x.mul_(2)
        return x + 1

    cases = {
        "random": (lambda x: torch.nn.functional.dropout(x, 0.5), "is random"),
        "written": (written, "writes to an input"),
        "shared": (lambda x: x.view(-1), "memory is shared"),
    }
    for function, reason in cases.values():
        with pytest.raises(Exception, match=f"Unsupported: .*{reason}"):
            compile_with(function, fullgraph=True)(two(2, 3).requires_grad_() * 1)
    check(cases["shared"][0], lambda: (two(2, 3).requires_grad_(),), mode="eager")
    x = two(2, 3)
    compile_with(written, fullgraph=True, on_unsupported="strict")(x)  # without gradients: fine


def test_they_are_in_the_report():
    compile_with(lambda x: x + 1, fullgraph=True, on_unsupported="strict")(two(3))
    (graph,) = tandem.report()["graphs"]
    assert not graph["fallbacks"] and graph["ops"] == {"aten.add.Tensor": 2}
