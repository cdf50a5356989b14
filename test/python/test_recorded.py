"""Operators that run in torch run once: their gradient goes through what autograd recorded."""

import collections
import gc

import pytest
import torch
import torch.utils.checkpoint as checkpointing

from compiled import compile_with
from tandem.recorded import Recorded

pytestmark = pytest.mark.filterwarnings("ignore:tandem. operators that run in torch")

counts = collections.Counter()


def compiled_of(function, **options):
    return compile_with(function, on_unsupported="eager", **options)


def alive():
    """Without asking the collector of cycles."""
    return sum(type(each) is Recorded for each in gc.get_objects())


@torch.library.custom_op("tandem_test::seen", mutates_args=())
def seen(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    counts["forward"] += 1
    return x * w + x.sin()


@seen.register_fake
def _(x, w):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.kept = inputs[0]  # not as it should be, and eager lets it be


def _backward(ctx, grad):
    counts["backward"] += 1
    x, w = ctx.saved_tensors
    counts["wanted"] = tuple(ctx.needs_input_grad)
    assert torch.equal(ctx.kept, x)
    return grad * (w + x.cos()), grad * x


seen.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("tandem_test::seen_writes", mutates_args={"out"})
def seen_writes(out: torch.Tensor, x: torch.Tensor) -> None:
    counts["forward"] += 1
    out.copy_(x * 2)


def net(x, w):
    """What the operator reads and gives is in memory that the program uses again."""
    hidden = torch.relu(x @ w)
    made = seen(hidden * 2, hidden + 1)
    return (made @ w).sin()


def inputs():
    generator = torch.Generator().manual_seed(3)
    x, w = (torch.randn(6, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    return x.requires_grad_(), w.requires_grad_()


def counted(step):
    counts.clear()
    made = step()
    return made, dict(counts)


def same_steps(function, step):
    compiled = compiled_of(function)
    step(compiled)  # is compiled, and the operator runs as a fake
    ours, eager = counted(lambda: step(compiled)), counted(lambda: step(function))
    torch.testing.assert_close(ours[0], eager[0])
    return ours[1], eager[1]


def trained(function):
    x, w = inputs()
    return torch.autograd.grad(function(x, w).sum(), (x, w))


def test_each_runs_once():
    ours, eager = same_steps(net, trained)
    assert ours == eager == {"forward": 1, "backward": 1, "wanted": (True, True)}


def test_the_graph_retained():
    def step(function):
        x, w = inputs()
        out = function(x, w).sum()
        first = torch.autograd.grad(out, (x, w), retain_graph=True)
        return *first, *torch.autograd.grad(out, (x, w))

    ours, eager = same_steps(net, step)
    assert ours == eager
    assert ours["forward"] == 1


def test_calls_wait_for_their_backward_in_any_order():
    def step(function):
        pairs = [inputs() for _ in range(3)]
        outs = [(function(x * n, w) * n).sum() for n, (x, w) in enumerate(pairs, 1)]
        order = (1, 0, 2)
        return [torch.autograd.grad(outs[n], pairs[n]) for n in order]

    ours, eager = same_steps(net, step)
    assert ours == eager
    assert ours["forward"] == 3


def test_a_gradient_of_a_gradient_does_not_run_it_again():
    def step(function):
        x, w = inputs()
        (first,) = torch.autograd.grad(function(x, w).sum(), (x,), create_graph=True)
        return torch.autograd.grad(first.square().sum(), (x, w))

    ours, eager = same_steps(net, step)
    assert ours["forward"] == eager["forward"] == 1


def test_only_what_has_a_history_wants_a_gradient():
    def constant_factor(x, w):
        return seen(x, w.detach() * 2) + w

    ours, eager = same_steps(constant_factor, trained)
    assert ours == eager
    assert ours["wanted"] == (True, False)


def test_nothing_is_recorded_without_gradients():
    compiled = compiled_of(net)

    def step(function):
        with torch.no_grad():
            return function(*inputs())

    step(compiled)
    out, seen_counts = counted(lambda: step(compiled))
    torch.testing.assert_close(out, step(net))
    assert seen_counts == {"forward": 1}


def test_inside_a_checkpoint_it_runs_as_often_as_in_eager():
    def step(function):
        x, w = inputs()
        out = checkpointing.checkpoint(function, x, w, use_reentrant=False)
        return torch.autograd.grad(out.sum(), (x, w))

    compiled = compiled_of(net)
    step(compiled)
    ours, eager = counted(lambda: step(compiled)), counted(lambda: step(net))
    torch.testing.assert_close(ours[0], eager[0])
    # Nothing is kept behind the checkpoint's back, so the gradient runs it once more.
    assert ours[1]["forward"] == eager[1]["forward"] + 1


def test_what_was_recorded_goes_with_the_history():
    compiled = compiled_of(net)
    trained(compiled)
    gc.collect()
    before = alive()
    out = compiled(*inputs()).sum()
    assert alive() == before + 1
    out.backward()
    assert alive() == before
    out = compiled(*inputs()).sum()
    assert alive() == before + 1
    del out
    assert alive() == before


def test_written_arguments():
    def function(x, w):
        out = torch.zeros_like(x)
        seen_writes(out, x.detach() * 2)
        return out * w

    ours, eager = same_steps(function, lambda f: f(*inputs()).detach())
    assert ours == eager == {"forward": 1}


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_change(dynamic):
    compiled = compiled_of(net, dynamic=dynamic)
    for n in (4, 6, 5):
        x = torch.randn(n, 5, dtype=torch.float64, requires_grad=True)
        w = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
        ours = torch.autograd.grad(compiled(x, w).sum(), (x, w))
        torch.testing.assert_close(ours, torch.autograd.grad(net(x, w).sum(), (x, w)))
