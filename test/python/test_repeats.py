"""repeat_interleave by a tensor, whose result's size the caller must say."""

import pytest
import torch

import tandem
from graphs import build

CASES = [([3, 0, 2], 5), ([0, 0, 1], 1), ([1, 1, 1], 3), ([2], 6), ([0, 0, 0], 0)]


@pytest.mark.parametrize("counts, size", CASES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeats(counts, size, dtype):
    x = torch.randn(3, 4)
    repeats = torch.tensor(counts, dtype=dtype)
    name = "i64" if dtype == torch.int64 else "i32"
    call = f"aten.repeat_interleave.self_Tensor(%x, %n, 0, output_size={size})"
    graph = build(f"%x: f32[3, 4], %n: {name}[{len(counts)}]", f"%r = {call}")
    assert torch.equal(graph.run([x, repeats])[0], x.repeat_interleave(repeats, 0))


def test_places():
    repeats = torch.tensor([2, 0, 3])
    graph = build("%n: i64[3]", "%r = aten.repeat_interleave.Tensor(%n, output_size=5)")
    assert torch.equal(graph.run([repeats])[0], torch.repeat_interleave(repeats))


def test_gradient():
    x = torch.randn(3, requires_grad=True)
    repeats = torch.tensor([2, 0, 3])
    text = (
        "graph @g(%x: f32[3] {input grad}, %n: i64[3]) {\n"
        "  %r = aten.repeat_interleave.self_Tensor(%x, %n, output_size=5)\n"
        "  %s = aten.sum(%r)\n  return %s\n}"
    )
    x.repeat_interleave(repeats).sum().backward()
    graph = tandem.compile_text(text, "ones")
    assert torch.equal(dict(zip(graph.outputs, graph.run([x, repeats])))["x"], x.grad)


def test_without_a_size_data_tell_it():
    x, repeats = torch.randn(3), torch.tensor([2, 0, 3])
    graph = build("%x: f32[3], %n: i64[3]", "%r = aten.repeat_interleave.self_Tensor(%x, %n)")
    assert torch.equal(graph.run([x, repeats])[0], x.repeat_interleave(repeats))


def test_refusals():
    graph = build(
        "%x: f32[3], %n: i64[3]",
        "%r = aten.repeat_interleave.self_Tensor(%x, %n, output_size=9)",
    )
    with pytest.raises(tandem.UserError, match="out of range"):
        graph.run([torch.randn(3), torch.tensor([1, 1, 1])])
