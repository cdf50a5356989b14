"""The rule of op_check itself: a wrong small result is found, rounding is not."""

import pytest
import torch

import op_check
import tolerance

COLUMNS = 100


def softmax(tensors):
    return [torch.softmax(tensors[0], -1)]


def verdict(dtype, change, function=softmax, x=None):
    """Of eager's result in f64, changed and rounded to the dtype."""
    generator = torch.Generator().manual_seed(1)
    if x is None:
        x = torch.randn(8, COLUMNS, generator=generator, dtype=torch.float64)
    x = x.to(dtype)
    truth = function([x.double()])[0]
    room = tolerance.Rooms(function, [x], generator).of(0, dtype)
    return tolerance.difference(change(truth).to(dtype), truth.to(dtype), room=room)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_small_results_are_judged_by_their_own_scale(dtype):
    assert verdict(dtype, lambda y: y * 1.3) is not None
    assert verdict(dtype, lambda y: torch.zeros_like(y)) is not None
    assert verdict(dtype, lambda y: y.flip(-1)) is not None
    assert verdict(dtype, lambda y: y) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_that_cancel_have_the_room_of_their_terms(dtype):
    def distance(tensors):  # of neighbours that are nearly equal
        x = tensors[0]
        return [x[:, 1:] - x[:, :-1]]

    near = 1 + torch.rand(8, COLUMNS, dtype=torch.float64) / 1000
    step = tolerance.TOLERANCE[tolerance.NAMES[dtype]]
    assert verdict(dtype, lambda y: y + step, distance, near) is None
    assert verdict(dtype, lambda y: y + 5 * step, distance, near) is not None


def test_one_wrong_element_is_found():
    def change(y):
        y = y.clone()
        y[3, 5] *= 1.1
        return y

    assert "1 of 800 differ" in verdict(torch.bfloat16, change)


class Scaled:
    """A compiled function whose results are `factor` of what they should be."""

    def __init__(self, executable, factor):
        self._executable, self._factor = executable, factor
        self.inputs, self.outputs = executable.inputs, executable.outputs

    def run(self, arguments):
        return [result * self._factor for result in self._executable.run(arguments)]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("gradients", [False, True])
def test_op_check_finds_a_scaled_softmax(monkeypatch, dtype, gradients):
    def compiled(case, text, tangents="", **options):
        right = op_check.tandem.compile_text(text, tangents, **options)
        return Scaled(right, 1.3) if bool(tangents) == gradients else right

    monkeypatch.setattr(op_check.Case, "compile", compiled)
    op = op_check.operators()["aten._softmax"]
    report = op_check.Report(op.name)
    op_check.Case(report, op, op.name, f"$[4, {COLUMNS}], -1, false", dtype).run()
    assert report.failures, "a result that is 1.3 times too large passes"
    assert ("gradient" in report.failures[0]) == gradients
