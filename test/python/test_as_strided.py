"""as_strided counts in its operand's storage, as in eager, or says that it cannot."""

import pytest
import torch

import tandem
from graphs import build

OPERANDS = {
    "%t = aten.alias(%x)": (lambda x: x, True),
    "%t = aten.view(%x, [2, 6])": (lambda x: x.view(2, 6), True),
    "%q = aten.t(%x)\n  %t = aten.t(%q)": (lambda x: x.t().t(), True),
    "%q = aten.t(%x)\n  %t = aten.contiguous(%q)": (lambda x: x.t().contiguous(), True),
    "%q = aten.t(%x)\n  %t = aten.mm(%q, %x)": (lambda x: x.t() @ x, True),
    "%t = aten.exp(%x)": (lambda x: x.exp(), True),
    "%t = aten.t(%x)": (lambda x: x.t(), False),
    "%t = aten.numpy_T(%x)": (lambda x: x.T, False),
    "%t = aten.slice.Tensor(%x, 0, 1, 3)": (lambda x: x[1:3], False),
    "%t = aten.slice.Tensor(%x, 1, 0, 4, 2)": (lambda x: x[:, ::2], False),
    "%t = aten.select.int(%x, 1, 1)": (lambda x: x[:, 1], False),
    "%q = aten.t(%x)\n  %t = aten.clone(%q)": (lambda x: x.t().clone(), False),
    "%q = aten.t(%x)\n  %t = aten.exp(%q)": (lambda x: x.t().exp(), False),
    "%q = aten.t(%x)\n  %t = aten.softmax.int(%q, 0)": (lambda x: x.t().softmax(0), False),
    "%q = aten.t(%x)\n  %t = aten.add_.Scalar(%q, 1)": (lambda x: x.t() + 1, False),
}
WINDOWS = [([2], [1], "none"), ([2, 2], [1, 2], "none"), ([2], [1], 1), ([2, 2], [2, 1], 0)]


@pytest.mark.parametrize("lines", OPERANDS)
@pytest.mark.parametrize("size, stride, offset", WINDOWS)
def test_storage_of_the_operand(lines, size, stride, offset):
    eager, accepted = OPERANDS[lines]
    call = f"{lines}\n  %r = aten.as_strided(%t, {size}, {stride}, {offset})"
    x = torch.randn(3, 4)
    if not accepted:
        with pytest.raises(tandem.UserError, match="as_strided"):
            build("%x: f32[3, 4]", call)
        return
    expected = eager(x).as_strided(size, stride, None if offset == "none" else offset)
    torch.testing.assert_close(build("%x: f32[3, 4]", call).run([x])[0], expected)


def test_strided_input():
    with pytest.raises(tandem.Unsupported, match="row-major"):
        build("%x: f32[3, 4]{1, 3}", "%r = aten.as_strided(%x, [2], [1])")
