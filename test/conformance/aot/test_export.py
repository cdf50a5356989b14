"""T96, T97, T99 to T101: graphs lifted out of their caller (`tandem.export_text`), run beside
eager. The program is text, as a dump of torch.compile or `tandem opt` gives it."""

import numpy
import pytest
import torch

import tandem

NORM = """
graph @model(%w: f32[3, 2, 1, 1] {param "conv.weight" grad}, %g: f32[3] {param "bn.weight" grad}, \
%b: f32[3] {param "bn.bias" grad}, %mean: f32[3] {buffer "bn.running_mean"}, \
%var: f32[3] {buffer "bn.running_var"}, %count: i64[] {buffer "bn.num_batches_tracked"}, \
%x: f32[4, 2, 5, 5]) {
  %0 = aten.convolution(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  %1 = aten.add_.Scalar(%count, 1) {no_grad}
  %2 = aten.batch_norm(%0, %g, %b, %mean, %var, true, 0.1, 1e-5, false)
  %3 = aten.relu(%2)
  %4 = aten.sum(%3)
  %5 = aten.detach(%3)
  return %4, %5
}
"""


def eager():
    """Inputs in the order of the text, and what eager makes of them."""
    torch.manual_seed(3)
    conv = torch.nn.Conv2d(2, 3, 1, bias=False)
    norm = torch.nn.BatchNorm2d(3)
    x = torch.randn(4, 2, 5, 5)
    held = [conv.weight, norm.weight, norm.bias]
    held += [norm.running_mean, norm.running_var, norm.num_batches_tracked]
    inputs = [each.detach().clone() for each in (*held, x)]
    out = torch.relu(norm(conv(x)))
    out.sum().backward()
    buffers = {name: value for name, value in norm.named_buffers()}
    gradients = [each.grad for each in held[:3]]
    return inputs, buffers, [out.sum().detach(), out.detach()], gradients


def run(text, inputs):
    return tandem.compile_text(text)([each.numpy().copy() for each in inputs])


def close(ours, wanted):
    numpy.testing.assert_allclose(numpy.asarray(ours), wanted.numpy(), rtol=2e-4, atol=2e-4)


def results_by_name(signature):
    """"result 4: gradient of parameter "fc.weight"" -> number."""
    lines = [line.split(": ", 1) for line in signature.splitlines() if line.startswith("result")]
    return {what: int(number.removeprefix("result ")) for number, what in lines}


def test_T96_joint_with_a_loss():
    inputs, buffers, outputs, gradients = eager()
    text, signature = tandem.export_text(NORM, loss=0)
    results, places = run(text, inputs), results_by_name(signature)
    assert len(results) == 3 + 2 + 3
    for name, value in buffers.items():
        close(results[places[f'new value of buffer "bn.{name}"']], value)
    close(results[places["the loss"]], outputs[0])
    close(results[places["returned"]], outputs[1])
    names = ("conv.weight", "bn.weight", "bn.bias")
    for name, value in zip(names, gradients, strict=True):
        close(results[places[f'gradient of parameter "{name}"']], value)


def test_T97_inference():
    inputs, buffers, outputs, _ = eager()
    text, signature = tandem.export_text(NORM)
    results, places = run(text, inputs), results_by_name(signature)
    assert len(results) == 5
    close(results[places['new value of buffer "bn.running_var"']], buffers["running_var"])
    close(results[3], outputs[0])
    close(results[4], outputs[1])
    assert "copy_" not in text, "it writes nothing"


def test_T99_an_input_is_written():
    text, signature = tandem.export_text(
        "graph @f(%x: f32[3]) {\n  %0 = aten.add_.Scalar(%x, 4)\n"
        "  %1 = aten.add.Scalar(%x, 1)\n  return %1\n}\n"
    )
    assert 'result 0: new value of input "x"' in signature
    results = run(text, [torch.zeros(3)])
    close(results[0], torch.full((3,), 4.0))
    close(results[1], torch.full((3,), 5.0))


def test_T100_several_inputs_are_written():
    text, signature = tandem.export_text(
        'graph @f(%n: f32[2] {buffer "buffer1"}, %x: f32[2], %y: f32[2]) {\n'
        "  %0 = aten.add_.Scalar(%y, 4)\n  %1 = aten.add_.Scalar(%n, 5)\n"
        "  %2 = aten.mul.Tensor(%x, %y)\n  %3 = aten.sum(%2)\n  return %3, %n\n}\n"
    )
    places = results_by_name(signature)
    results = run(text, [torch.zeros(2), torch.ones(2), torch.ones(2)])
    close(results[places['new value of buffer "buffer1"']], torch.full((2,), 5.0))
    close(results[places['new value of input "y"']], torch.full((2,), 5.0))
    close(results[2], torch.tensor(10.0))


@pytest.mark.parametrize(
    "inputs, body, results, loss, said",
    [
        ("%x: f32[2] {input grad}", "%0 = aten.mul_.Scalar(%x, 2)", "%x", None, "with history"),
        ('%w: f32[2] {param "w"}', "%0 = aten.mul_.Scalar(%w, 2)", "%w", None, "is written"),
        ("%x: f32[2] {input grad}", "%0 = aten.exp(%x)", "%0", 0, "not one number"),
        ("%x: f32[2] {input grad}", "%0 = aten.sum(%x)", "%0", 1, "there are 1"),
        ("%x: f32[2]", "%0 = aten.sum(%x)", "%0", 0, "nothing that requires a gradient"),
        ("%x: f32[2] {input grad}", "%0 = aten.sum(%x)", "%0, %x", 0, "is not the loss"),
        (
            '%w: f32[2] {param "w" grad}, %x: f32[2] {input grad}',
            "%0 = aten.sum(%x)",
            "%0",
            0,
            "%w gets no gradient",
        ),
    ],
)
def test_T101_what_is_refused(inputs, body, results, loss, said):
    text = f"graph @f({inputs}) {{\n  {body}\n  return {results}\n}}\n"
    with pytest.raises(tandem.UserError, match=said):
        tandem.export_text(text, loss=loss)
