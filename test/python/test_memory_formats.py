"""Calls that ask for a memory format: strides, elements, and whether the result is the operand
itself, are eager's, whatever the operand looks like."""

import pytest
import torch

from compiled import compile_with

LAST, ROWS, KEPT = torch.channels_last, torch.contiguous_format, torch.preserve_format

CALLS = {
    "to": lambda x, form: x.to(memory_format=form),
    "to_same": lambda x, form: x.to(torch.float32, memory_format=form),
    "to_copy": lambda x, form: x.to(torch.float32, copy=True, memory_format=form),
    "to_other": lambda x, form: x.to(torch.float64, memory_format=form),
    "float": lambda x, form: x.float(memory_format=form),
    "contiguous": lambda x, form: x.contiguous(memory_format=form),
    "clone": lambda x, form: x.clone(memory_format=form),
}

LAYOUTS = {
    "rows": lambda: torch.randn(2, 3, 4, 5),
    "last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=LAST),
    "rows with gaps": lambda: torch.randn(2, 3, 4, 10)[..., ::2],
    "last with gaps": lambda: torch.randn(2, 3, 8, 5).contiguous(memory_format=LAST)[:, :, ::2],
    "transposed": lambda: torch.randn(2, 3, 5, 4).transpose(2, 3),
    "expanded": lambda: torch.randn(2, 1, 4, 5).expand(2, 3, 4, 5),
    "one channel": lambda: torch.randn(2, 1, 4, 5),
    "one image": lambda: torch.randn(1, 3, 4, 5),
    "one place": lambda: torch.randn(2, 3, 1, 1),
    "one place last": lambda: torch.randn(2, 3, 1, 1).contiguous(memory_format=LAST),
    "one of all": lambda: torch.randn(1, 1, 1, 1),
    "none": lambda: torch.randn(2, 0, 4, 5),
}


def same(found, wanted, x):
    assert torch.equal(found, wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.numel() == 0:
        return  # nothing lies anywhere
    assert found.stride() == wanted.stride()
    is_shared = found.data_ptr() == x.data_ptr()
    assert is_shared == (wanted.data_ptr() == x.data_ptr())


# `contiguous` takes no format that keeps the operand's layout.
ASKED = [(call, form) for call in CALLS for form in (LAST, ROWS, KEPT)]
ASKED.remove(("contiguous", KEPT))


@pytest.mark.parametrize("call, form", ASKED, ids=str)
def test_of_an_input(call, form):
    for layout, make in LAYOUTS.items():
        x = make()
        for dynamic in [False, True]:
            torch._dynamo.reset()
            found = compile_with(lambda x: CALLS[call](x, form), dynamic=dynamic)(x)
            try:
                same(found, CALLS[call](x, form), x)
            except AssertionError as error:
                raise AssertionError(f"{layout}, dynamic={dynamic}: {error}") from error


@pytest.mark.parametrize("layout", ["rows", "last"])
@pytest.mark.parametrize("call", CALLS)
def test_written_through(call, layout):
    """What is a view of the operand hands a write on to it."""

    def write(x):
        y = CALLS[call](x, LAST)
        y.add_(1)
        return y, x * 2

    x = LAYOUTS[layout]()
    own = x.clone()
    found = compile_with(write)(x)
    wanted = write(own)
    torch.testing.assert_close(x, own, rtol=0, atol=0)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, check_stride=True)


@pytest.mark.parametrize("call", CALLS)
def test_of_a_view_inside(call):
    def inside(x):
        return CALLS[call](x.permute(0, 3, 1, 2), LAST), CALLS[call]((x + 1), LAST)

    x = torch.randn(2, 3, 4, 5)
    for one, other in zip(compile_with(inside)(x), inside(x), strict=True):
        same(one, other, x)


def test_volumes():
    form = torch.channels_last_3d
    for x in [torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3, 4, 5, 6).to(memory_format=form)]:
        for call in CALLS:
            torch._dynamo.reset()
            same(compile_with(lambda x: CALLS[call](x, form))(x), CALLS[call](x, form), x)


@pytest.mark.parametrize("call", CALLS)
def test_gradients(call):
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    weight = torch.randn(2, 3, 4, 5)
    own = x.detach().requires_grad_()
    (compile_with(lambda x: CALLS[call](x * 2, LAST))(x) * weight).sum().backward()
    (CALLS[call](own * 2, LAST) * weight).sum().backward()
    torch.testing.assert_close(x.grad, own.grad, rtol=0, atol=0)
