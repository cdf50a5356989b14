"""Derivatives along tangents of inputs (`compile_text(text, "forward")`, jvp_function in C++),
beside eager's forward mode, operator by operator."""

import pytest
import torch

import forward_derivatives
import second_gradients
import tandem

# Of a fixed part of PyTorch's entries; forward_derivatives.py sweeps over all of them.
PART = 4


def test_operators():
    table = forward_derivatives.entries()
    names = [name for name in table if second_gradients.number_of(name) % PART == 1]
    found = {name: forward_derivatives.verdict(table[name]) for name in names}
    wrong = {name: said for name, said in found.items() if said not in ("right", "none")}
    assert not wrong
    assert list(found.values()).count("right") > 80


# The gradients of these are writes to places, which have gradients of their own.
PLACES = ["scatter_reduce.sum", "scatter_reduce.prod", "scatter_reduce.amin", "as_strided",
          "index_copy", "index_put", "scatter"]  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_writes_to_places(name):
    forward = forward_derivatives.entries()
    if name in forward:  # eager has none of the product
        assert forward_derivatives.verdict(forward[name]) == "right"
    assert second_gradients.verdict(second_gradients.entries()[name]) == "right"


def test_a_text():
    program = tandem.compile_text(
        "graph @f(%x: f32[3] {input grad}, %y: f32[3]) {\n"
        "  %0 = aten.mul.Tensor(%x, %y)\n  %1 = aten.exp(%y)\n  return %0, %1\n}\n",
        "forward",
    )
    assert program.inputs == ["x", "y", "tangent_x"]
    x, y, tangent = torch.randn(3, 3)
    product, exponential, derivative = program([x, y, tangent])
    torch.testing.assert_close(product, x * y)
    torch.testing.assert_close(exponential, y.exp())
    torch.testing.assert_close(derivative, tangent * y)


def test_what_a_write_with_history_would_need():
    text = (
        "graph @f(%x: f32[3] {input grad}) {\n"
        "  %0 = aten.mul_.Scalar(%x, 2)\n  %1 = aten.exp(%0)\n  return %1\n}\n"
    )
    with pytest.raises(tandem.Unsupported, match="the function writes input %x"):
        tandem.compile_text(text, "forward")
