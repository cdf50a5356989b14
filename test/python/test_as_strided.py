"""as_strided counts in its operand's storage, as in eager, or says that it cannot."""

import pytest
import torch

import tandem
from compiled import compile_with
from graphs import build

WITH_OFFSET = {(2, 1), (4, 0)}  # elements and offset of the windows that are accepted
OF_ONE = {(2, "none"), (2, 1)}
OPERANDS = {
    "%t = aten.alias(%x)": (lambda x: x, True),
    "%t = aten.view(%x, [2, 6])": (lambda x: x.view(2, 6), True),
    "%q = aten.t(%x)\n  %t = aten.t(%q)": (lambda x: x.t().t(), True),
    "%q = aten.t(%x)\n  %t = aten.contiguous(%q)": (lambda x: x.t().contiguous(), True),
    "%q = aten.t(%x)\n  %t = aten.mm(%q, %x)": (lambda x: x.t() @ x, True),
    "%t = aten.exp(%x)": (lambda x: x.exp(), True),
    "%t = aten.t(%x)": (lambda x: x.t(), True),
    "%t = aten.numpy_T(%x)": (lambda x: x.T, WITH_OFFSET),
    "%t = aten.slice.Tensor(%x, 0, 1, 3)": (lambda x: x[1:3], True),
    "%t = aten.slice.Tensor(%x, 1, 0, 4, 2)": (lambda x: x[:, ::2], True),
    "%t = aten.select.int(%x, 1, 1)": (lambda x: x[:, 1], OF_ONE),
    "%q = aten.t(%x)\n  %t = aten.clone(%q)": (lambda x: x.t().clone(), False),
    "%q = aten.t(%x)\n  %t = aten.exp(%q)": (lambda x: x.t().exp(), False),
    "%q = aten.t(%x)\n  %t = aten.softmax.int(%q, 0)": (lambda x: x.t().softmax(0), False),
    "%q, %t = aten.unsafe_chunk(%x, 2, 1)": (lambda x: x.unsafe_chunk(2, 1)[1], False),
    "%q, %t = aten.unsafe_split.Tensor(%x, 2, 0)": (lambda x: x.unsafe_split(2, 0)[1], False),
    "%q = aten.slice.Tensor(%x, 0, 1, 3)\n  %t = aten._unsafe_view(%q, [8])": (
        lambda x: torch.ops.aten._unsafe_view(x[1:3], [8]), False),
    "%q = aten.t(%x)\n  %t = aten.add_.Scalar(%q, 1)": (lambda x: x.clone().t().add_(1), True),
}
WINDOWS = [([2], [1], "none"), ([2, 2], [1, 2], "none"), ([2], [1], 1), ([2, 2], [2, 1], 0)]


@pytest.mark.parametrize("lines", OPERANDS)
@pytest.mark.parametrize("size, stride, offset", WINDOWS)
def test_storage_of_the_operand(lines, size, stride, offset):
    eager, accepted = OPERANDS[lines]
    call = f"{lines}\n  %r = aten.as_strided(%t, {size}, {stride}, {offset})"
    x = torch.randn(3, 4)
    elements = torch.Size(size).numel()
    if not (accepted if isinstance(accepted, bool) else (elements, offset) in accepted):
        with pytest.raises(tandem.UserError, match="as_strided"):
            build("%x: f32[3, 4]", call)
        return
    expected = eager(x).as_strided(size, stride, None if offset == "none" else offset)
    torch.testing.assert_close(build("%x: f32[3, 4]", call).run([x])[0], expected)


def test_permuted_input():
    x = torch.randn(4, 3).t()
    call = "%r = aten.as_strided(%x, [3, 2], [3, 2], 1)"
    actual = build("%x: f32[3, 4]{1, 3}", call).run([x])[0]
    torch.testing.assert_close(actual, x.as_strided((3, 2), (3, 2), 1), rtol=0, atol=0)


@pytest.mark.parametrize("strides, size, step", [("{8, 2}", 2, 1), ("{1, 4}", 4, 1)])
def test_of_what_lies_in_gaps(strides, size, step):
    with pytest.raises(tandem.Unsupported, match="without gaps"):
        build("%x: f32[3, 4]" + strides, f"%r = aten.as_strided(%x, [{size}], [{step}])")


@pytest.mark.parametrize("strides", [(8, 2), (0, 1), (1, 4)])
def test_input_with_gaps(strides):
    """Of elements of its own."""
    x = torch.randn(30).as_strided((3, 4), strides)
    size, stride = [2, 2], [strides[0], 2 * strides[1]]
    text = "{" + ", ".join(map(str, strides)) + "}"
    actual = build("%x: f32[3, 4]" + text, f"%r = aten.as_strided(%x, {size}, {stride})").run([x])
    torch.testing.assert_close(actual[0], x.as_strided(size, stride), rtol=0, atol=0)


def written(x):
    x[1:].mul_(2)
    return x[1:].as_strided((2, 2), (6, 1)), x


PARTS = {  # of an input of rows of 3, of which it shows 2
    "it": lambda x: x.as_strided((2, 2), (6, 1)),
    "its rows": lambda x: x[1:].as_strided((2, 2), (6, 1)),
    "a column": lambda x: (x.select(1, 1).as_strided((2,), (6,)), x),
    "turned": lambda x: x.t()[:, 1:].as_strided((2, 2), (1, 6)),
    "of that one": lambda x: x[1:].as_strided((2, 2), (6, 1))[1].as_strided((2, 1), (1, 1)),
    "in place": lambda x: x[1:].view_as(x[1:]).as_strided_((2, 2), (6, 1)),
    "written": written,
}


@pytest.mark.parametrize("name", PARTS)
def test_results_that_show_parts(name):
    """They lie where eager's do, in the memory of the input."""
    outcomes = []
    for function in (PARTS[name], compile_with(PARTS[name], fullgraph=True)):
        leaf = torch.arange(12.0).reshape(4, 3).requires_grad_()
        x = leaf.clone()[:, :2]
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        facts = [(r.stride(), r.storage_offset()) for r in results]
        assert all(r.data_ptr() >= x.data_ptr() for r in results)
        assert all(
            r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in results
        )
        gradient = torch.autograd.grad(sum(r.square().sum() for r in results), leaf)
        outcomes.append((facts, [*results, *gradient]))
    (facts, tensors), (own_facts, own_tensors) = outcomes
    assert own_facts == facts
    for own, tensor in zip(own_tensors, tensors, strict=True):
        torch.testing.assert_close(own, tensor, rtol=0, atol=0)


def smaller(x):
    y = x * 2
    z = y.view(-1)
    y.as_strided_((2,), (1,))
    return z


def test_eagers_gradient_of_other_views_is_wrong():
    """Of a tensor that as_strided_ makes smaller: eager leaves out what it shows no more."""
    x = torch.ones(4, requires_grad=True)
    (own,) = torch.autograd.grad(compile_with(smaller)(x).sum(), x)
    (eagers,) = torch.autograd.grad(smaller(x).sum(), x)
    assert own.tolist() == [2, 2, 2, 2] and eagers.tolist() == [2, 2, 0, 0]


def windows(x, y):
    """Overlapping, of an operand in another order than its memory; and a write through one."""
    half = y.transpose(0, 1)
    whole = (x * 2).transpose(0, 1) + half
    size, stride = list(whole.size()), list(whole.stride())
    size[1], stride[1] = size[1] * 2 - 3, stride[1] // 2
    corner = half.as_strided((2, 2), (1, 3), 1)
    corner.mul_(3)
    return whole.as_strided(size, stride), half * 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_permuted_in_a_model(dynamic):
    """As in LED's sliding attention; the gradient adds up what windows share."""
    compiled = compile_with(windows, fullgraph=True, dynamic=dynamic)
    for length in (4, 6):
        x = torch.randn(length, 5, 4, requires_grad=True)
        y = torch.randn(length, 5, 4)
        other_y = y.clone()
        expected, actual = windows(x, y), compiled(x, other_y)
        for left, right in zip((*expected, y), (*actual, other_y), strict=True):
            assert left.stride() == right.stride()
            torch.testing.assert_close(right, left)
        weights = torch.randn(expected[0].shape)
        gradients = [torch.autograd.grad((r[0] * weights).sum(), x)[0] for r in (expected, actual)]
        torch.testing.assert_close(*gradients)
