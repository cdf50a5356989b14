"""Floats of 8 bits through torch.compile: what eager does with them, with eager's bits."""

import pytest
import torch
import torchao.quantization.quant_primitives  # noqa: F401  (registers torchao's operators)
from compiled import compile_with

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
PLACES = torch.tensor([2, 0])
# Of x and z in 8 bits and y in f32.
CALLS = {
    "widen": lambda x, y, z: x.to(torch.float32),
    "bf16": lambda x, y, z: x.to(torch.bfloat16) * 2,
    "f64": lambda x, y, z: y.double().to(x.dtype),
    "through bf16": lambda x, y, z: y.to(torch.bfloat16).to(x.dtype),
    "round": lambda x, y, z: y.to(x.dtype),
    "to the other": lambda x, y, z: x.to(FLOAT8[x.dtype == FLOAT8[0]]),
    "to integers": lambda x, y, z: x.to(torch.int32),
    "of integers": lambda x, y, z: PLACES.to(x.dtype),
    "to bool": lambda x, y, z: x.to(torch.bool),
    "bits": lambda x, y, z: x.view(torch.uint8) + 1,
    "cat": lambda x, y, z: torch.cat([x, z]),
    "where": lambda x, y, z: torch.where(y > 0, x, z),
    "index": lambda x, y, z: x[PLACES],
    "index_select": lambda x, y, z: x.index_select(0, PLACES),
    "index_put": lambda x, y, z: x.index_put((PLACES,), z[:2]),
    "embedding": lambda x, y, z: torch.nn.functional.embedding(PLACES, x),
    "transpose": lambda x, y, z: x.t().contiguous(),
    "slice": lambda x, y, z: x[3:9, ::2].clone(),
    "pad": lambda x, y, z: torch.nn.functional.pad(x, (1, 1)),
    "flip": lambda x, y, z: x.flip(0),
    "eq": lambda x, y, z: x == z,
    "isnan": lambda x, y, z: x.isnan(),
    "abs": lambda x, y, z: x.abs(),
    "full": lambda x, y, z: torch.full((2,), 1.5, dtype=x.dtype),
    "zeros_like": lambda x, y, z: torch.zeros_like(x),
    "product": lambda x, y, z: x.to(torch.float32) @ z.to(torch.float32).t(),
}


def equal(a, b):
    """On numbers that f64 holds; NaN where the other has it."""
    same = a.shape == b.shape and a.dtype == b.dtype
    return same and torch.equal(a.double().nan_to_num(), b.double().nan_to_num())


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name, dtype):
    generator = torch.Generator().manual_seed(3)
    wide = [torch.randn(37, 65, generator=generator) * scale for scale in (30, 200, 1)]
    operands = (wide[0].to(dtype), wide[1], wide[2].to(dtype))
    actual, expected = compile_with(CALLS[name])(*operands), CALLS[name](*operands)
    if name == "product":
        torch.testing.assert_close(actual, expected)
    else:
        assert equal(actual, expected)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_rounds_every_f32_around_each_number_as_eager(dtype):
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    numbers = numbers[numbers.isfinite()].sort().values
    middles = (numbers[1:] + numbers[:-1]) / 2
    far = torch.tensor([1e9])
    around = [middles, middles.nextafter(far), middles.nextafter(-far), numbers]
    x = torch.cat([*around, torch.tensor([torch.inf, -torch.inf, torch.nan, 464, 61440, 1e-9])])
    rounded = compile_with(lambda x: x.to(dtype))(x)
    assert torch.equal(rounded.view(torch.uint8), x.to(dtype).view(torch.uint8))
    widened = compile_with(lambda q: q.float())(rounded)
    assert equal(widened, x.to(dtype).float())


def test_gradients_go_through():
    x = torch.randn(8, 9, requires_grad=True)
    function = lambda x: (x.to(FLOAT8[0]).float() * x).sum()  # noqa: E731
    compile_with(function)(x).backward()
    found, x.grad = x.grad, None
    function(x).backward()
    assert torch.equal(found, x.grad)


def test_nothing_is_promoted():
    x = torch.randn(4, 4)
    with pytest.raises(Exception, match="8-bit floats are promoted with no other type"):
        compile_with(lambda q, x: q + x)(x.to(FLOAT8[0]), x)


def test_no_other_type_is_quantized_to():
    def quantize(x):
        return torch.ops.torchao.quantize_affine_float8_non_decomposed(
            x, torch.tensor(1.0), torch.bfloat16
        )

    with pytest.raises(Exception, match="float8_dtype bf16"):
        compile_with(quantize)(torch.randn(3))
