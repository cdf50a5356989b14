"""Integers divided by zero: every rounding division fails the call and names itself."""

import pytest
import torch

import tandem
from compiled import compile_with

CALLS = [
    "aten.fmod.Tensor(%a, %b)",
    "aten.remainder.Tensor(%a, %b)",
    "aten.remainder.Scalar_Tensor(7, %b)",
    "aten.floor_divide(%a, %b)",
    'aten.div.Tensor_mode(%a, %b, rounding_mode="trunc")',
    'aten.div.Tensor_mode(%a, %b, rounding_mode="floor")',
]


def divide(call, dtype, divisors):
    text = f"graph @f(%a: {dtype}[3], %b: {dtype}[3]) {{\n  %r = {call}\n  return %r\n}}"
    torch_dtype = {"i32": torch.int32, "i8": torch.int8, "f32": torch.float32}[dtype]
    executable = tandem.compile_text(text)
    tensors = {
        "a": torch.tensor([5, -5, 1], dtype=torch_dtype),
        "b": torch.tensor(divisors, dtype=torch_dtype),
    }
    return executable.run([tensors[name] for name in executable.inputs])[0]


@pytest.mark.parametrize("dtype", ["i32", "i8"])
@pytest.mark.parametrize("call", CALLS)
def test_zero_fails(call, dtype):
    divide(call, dtype, [1, -1, 2])
    name = call.split("(")[0].replace(".", "::", 1)
    with pytest.raises(tandem.UserError, match=rf"\[{name}\] an integer is divided by 0"):
        divide(call, dtype, [1, 0, 2])


@pytest.mark.parametrize("call", CALLS)
def test_floats_go_on(call):
    assert not divide(call, "f32", [1, 0, 2])[1].isfinite()


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_numbers_by_numbers(mode):
    """Neither operand is a tensor (LED's windows)."""

    def parts(x):
        return x * torch.div(-x.shape[0], 3, rounding_mode=mode)

    for dynamic in (False, True):
        for rows in (16, 7):
            x = torch.randn(rows, 2)
            assert torch.equal(compile_with(parts, dynamic=dynamic)(x), parts(x))
