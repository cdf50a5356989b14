"""T96 to T102: graphs lifted out of their caller (`tandem.export_text`), run beside
eager. The program is text, as a dump of torch.compile or `tandem opt` gives it."""

import numpy
import pytest
import torch

import cuts
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


TWO = """
graph @f(%x: f32[3, 4] {input grad}, %w: f32[4, 5] {input grad}, %n: f32[3]) {
  %0 = aten.mm(%x, %w)
  %1 = aten.sin(%0)
  %2 = aten.sum.dim_IntList(%1, [1])
  %3 = aten.mul.Tensor(%2, %n)
  return %1, %3
}
"""


def two_in_eager():
    """Inputs and tangents, results, gradients of the inputs that have one."""
    torch.manual_seed(4)
    x, w, n = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3)
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    first = torch.sin(leaves[0] @ leaves[1])
    results = [first, first.sum(1) * n]
    tangents = [torch.randn_like(each) for each in results]
    gradients = torch.autograd.grad(results, leaves, tangents)
    return [x, w, n], tangents, [each.detach() for each in results], gradients


def all_close(ours, wanted):
    for each, other in zip(ours, wanted, strict=True):
        close(each, other)


def test_T98_joint_as_a_function():
    inputs, tangents, outputs, gradients = two_in_eager()
    text, signature = tandem.export_text(TWO, joint=True)
    assert "tangent %tangent1: of result 1\n" in signature
    assert 'result 3: gradient of input "w"\n' in signature
    all_close(run(text, inputs + tangents), [*outputs, *gradients])
    assert tandem.export_text(text)[0] == text, "it is a program that reads as it was written"


@pytest.mark.parametrize("budget", ["as_read", "min_cut", "0"])
def test_T98_joint_is_cut_in_two(budget):
    """Forward gives the results and what backward takes beside the tangents."""
    inputs, tangents, outputs, gradients = two_in_eager()
    text, _ = tandem.export_text(TWO, joint=True)
    forward, backward = cuts.halves_of_joint(text, budget)
    given = run(forward, inputs)
    all_close(given[:2], outputs)
    saved = [torch.from_numpy(numpy.array(each)) for each in given[2:]]
    all_close(run(backward, saved + tangents), gradients)


@pytest.mark.parametrize(
    "body, results, said",
    [
        ("%0 = aten.add_.Scalar(%x, 1)", "%0", "%x is written"),
        ("%0 = aten.sin(%x)", "%0, %x", "result 1 is the input %x"),
        ("%0 = aten.view(%x, [4])", "%0", "result 0 is aten.view of input %x"),
        ("%0 = aten.sin(%x)", "%0, %0", "result 1 is another one"),
        ("%0 = aten.ones([2])", "%0", "no result depends on an input that requires a gradient"),
    ],
)
def test_T98_what_is_no_function_is_refused(body, results, said):
    text = f"graph @f(%x: f32[2, 2] {{input grad}}) {{\n  {body}\n  return {results}\n}}\n"
    with pytest.raises(tandem.UserError, match=said):
        tandem.export_text(text, joint=True)


def test_T98_a_loss_is_another_thing():
    with pytest.raises(tandem.UserError, match="of a loss or a function, not both"):
        tandem.export_text(TWO, loss=0, joint=True)


BRANCHES = """
graph @f(%p: bool[], %x: f32[3] {input grad}) {
  %0: f32[3] = tandem.cond(%p, [%x], "yes", "no")
  return %0
}
graph @yes(%x: f32[3]) {
  %0 = aten.add.Scalar(%x, 4)
  %1 = aten.add_.Scalar(WRITTEN, 5)
  %2 = aten.mul.Tensor(%0, %x)
  return %2
}
graph @no(%x: f32[3]) {
  %0 = aten.sin(%x)
  %1 = aten.select.int(%0, 0, 0)
  %2 = aten.mul_.Scalar(%1, 3)
  return %0
}
"""


def branches(takes_first, x):
    if takes_first:
        return (x + 4).add_(5) * x
    y = torch.sin(x)
    y[0].mul_(3)
    return y


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("takes_first", [False, True])
def test_T102_branches_write_to_values_of_their_own(takes_first, joint):
    text, _ = tandem.export_text(BRANCHES.replace("WRITTEN", "%0"), joint=joint)
    assert not [line for line in text.splitlines() if "_.Scalar" in line], "nothing is written"
    x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    y = branches(takes_first, x)
    tangent = torch.tensor([1.0, 2.0, 3.0])
    inputs = [torch.tensor(takes_first), x.detach(), *([tangent] if joint else [])]
    wanted = [y.detach(), *(torch.autograd.grad(y, x, tangent) if joint else [])]
    all_close(run(text, inputs), wanted)


@pytest.mark.parametrize("options", [{}, {"joint": True}])
def test_T102_a_branch_does_not_write_to_what_it_is_given(options):
    with pytest.raises(tandem.UserError, match="tandem::cond. @yes writes to what it is given"):
        tandem.export_text(BRANCHES.replace("WRITTEN", "%x"), **options)
