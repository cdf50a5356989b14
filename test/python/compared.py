"""A compiled function beside eager: values, which results have a history, gradients, and what
became of the inputs."""

import torch
from torch.utils import _pytree as pytree

from compiled import compile_with


def copies(arguments):
    def copy(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    return [copy(value) for value in arguments]


def same(actual, expected, tolerance):
    if not isinstance(expected, torch.Tensor):
        assert actual == expected and type(actual) is type(expected)
        return
    assert actual.requires_grad == expected.requires_grad
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def gradients(results, arguments):
    """Of a loss that weighs every element of the results."""
    loss = 0
    for result in pytree.tree_leaves(results):
        if isinstance(result, torch.Tensor) and result.requires_grad:
            weights = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype)
            loss = loss + (result * weights.reshape(result.shape)).sum()
    if isinstance(loss, torch.Tensor):
        loss.backward()
    return [value.grad for value in arguments if isinstance(value, torch.Tensor)]


def beside_eager(
    function, *arguments, compiled=None, reference=None, tolerance=1e-5, **options
):
    """Compiles `function` as one graph, unless `compiled` is given, and compares a call of it;
    `reference` says in eager what it says."""
    compiled = compiled or compile_with(function, **{"fullgraph": True, **options})
    ours, theirs = copies(arguments), copies(arguments)
    actual, expected = compiled(*ours), (reference or function)(*theirs)
    leaves = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    for a, b in zip(*leaves, strict=True):
        same(a, b, tolerance)
    for a, b in zip(gradients(actual, ours), gradients(expected, theirs), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, torch.Tensor):
            same(a.detach(), b.detach(), tolerance)
    return compiled
