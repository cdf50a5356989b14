"""Dropout is a product with noise, as in eager: what is dropped is not forgotten, NaN stays NaN."""

import pytest
import torch

from graphs import build
from samples import DTYPES

SPECIAL = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, -2.0, 0.0, -0.0, 3.0])


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("op", ["dropout", "native_dropout"])
def test_dropped_values_are_multiplied(op, p, dtype):
    first = "%r" if op == "dropout" else "%r, %m"
    inputs = f"%x: {dtype}[4096] {{input grad}}"
    executable = build(inputs, f"{first} = aten.{op}(%x, {p}, true)", "%r", gradients="tangents")

    def run(x, tangent):
        known = {"x": x, "seed": 11, "tangent0": tangent}
        return executable.run([known[name] for name in executable.inputs])

    torch_dtype = DTYPES[dtype]
    ones = torch.ones(4096, dtype=torch_dtype)
    noise, of_noise = run(ones, ones)
    # Eager's noise is a tensor of the dtype: the scale is rounded before the product is.
    scale = 0.0 if p == 1 else (torch.ones((), dtype=torch_dtype) / (1 - p)).item()
    assert set(noise.tolist()) == ({0.0, scale} if p < 1 else {0.0})
    assert torch.equal(of_noise, noise)
    x = SPECIAL.to(torch_dtype).repeat(512)
    tangent = SPECIAL.flip(0).to(torch_dtype).repeat_interleave(512)
    for result, expected in zip(run(x, tangent), [x * noise, tangent * noise]):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        signs = [values.signbit()[~expected.isnan()] for values in (result, expected)]
        assert torch.equal(*signs)
