"""Gradients that are made in the memory of the last value they read: the same numbers."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with

ROWS, WIDTH, WORDS = 256, 32, 4096
LOGITS = 4 * ROWS * WORDS


def mean_square(logits, _):
    return logits.square().mean()


def entropy(logits, target):
    return F.cross_entropy(logits, target)


def softened(logits, target):
    return F.cross_entropy(logits, target, label_smoothing=0.1)


LOSSES = [mean_square, entropy, softened]


def made(loss, also_logits=False):
    torch.manual_seed(0)
    head = torch.nn.Linear(WIDTH, WORDS, bias=False)
    hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
    target = torch.randint(0, WORDS, (ROWS,))

    def run(x):
        logits = head(x)
        value = loss(logits, target)
        return (value, logits) if also_logits else value

    return head, hidden, run


def gradients(head, hidden, value):
    value.backward()
    found = hidden.grad.clone(), head.weight.grad.clone()
    hidden.grad = head.weight.grad = None
    return found


@pytest.mark.parametrize("loss", [mean_square, entropy])
def test_logits_and_their_gradient_are_one_memory(loss):
    head, hidden, run = made(loss)
    expected = gradients(head, hidden, run(hidden))
    function = compile_with(run, report=True)
    for _ in range(2):
        tandem.reset_peak_memory()
        before = tandem.memory_use()["live_bytes"]
        value = function(hidden)
        value.backward()
        peak = tandem.memory_use()["peak_live_bytes"] - before
        torch.testing.assert_close((hidden.grad, head.weight.grad), expected)
        hidden.grad = head.weight.grad = None
    memory = tandem.report()["graphs"][0]["memory"]
    assert peak < 1.5 * LOGITS
    assert memory["step"] - memory["arguments"] == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize("loss", LOSSES)
def test_backward_twice(loss):
    head, hidden, run = made(loss)
    expected = gradients(head, hidden, run(hidden))
    value = compile_with(run)(hidden)
    for retain in (True, True, False):
        value.backward(retain_graph=retain)
        found = hidden.grad, head.weight.grad
        torch.testing.assert_close(found, expected)
        hidden.grad = head.weight.grad = None


@pytest.mark.parametrize("loss", LOSSES)
def test_what_the_caller_has_stays(loss):
    head, hidden, run = made(loss, also_logits=True)
    value, wanted = run(hidden)
    expected = gradients(head, hidden, value)
    value, logits = compile_with(run)(hidden)
    torch.testing.assert_close(gradients(head, hidden, value), expected)
    torch.testing.assert_close(logits, wanted)
