"""Operators that torch alone can run, because of what they tell: nodes of the program, beside what
is compiled, with the gradients of eager."""

import pytest
import torch
from torch._dynamo import config

import tandem
from compared import beside_eager
from compiled import compile_with, through_core


@pytest.fixture(autouse=True)
def one_graph():
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


@torch.library.custom_op("tandem_test::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def doubled_gradient(ctx, g):
    (x,) = ctx.saved_tensors
    return torch.zeros_like(x).masked_scatter(x > 0, g * 2)


positive.register_autograd(doubled_gradient, setup_context=keep)


@torch.library.custom_op("tandem_test::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@count.register_fake
def _(x):
    return torch.library.get_ctx().new_dynamic_size()


@torch.library.custom_op("tandem_test::halves", mutates_args=())
def halves(x: torch.Tensor, at: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x[x > at].clone(), x[x <= at].clone().view(-1, 1).repeat(1, 2)


@halves.register_fake
def _(x, at):
    above, below = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return x.new_empty(above), x.new_empty(below, 2)


def two_calls(x, w):
    return (positive(x * w) * 3).sum() + (positive(w) * 2).exp().sum()


def one_is_returned(x, w):
    return positive(x), x * 2


def a_number(x, w):
    n = count(x)
    return x * n, torch.zeros(n) + w.sum()


def two_sizes(x, w):
    above, below = halves(x.detach(), 0.25)
    return above.sum() + w, below * 2


def a_place(x, w):
    at = (x > 0).sum().item()
    return (x * 2).flatten()[at - 12] * w  # counted from the end


CASES = {
    two_calls: {"tandem_test.positive": 2},
    one_is_returned: {"tandem_test.positive": 1},
    a_number: {"tandem_test.count": 1},
    two_sizes: {"tandem_test.halves": 1},
    a_place: {"aten.select.int": 1},
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_sizes_that_its_result_tells(function):
    """By design, so `"error"` has them, too."""
    torch.manual_seed(1)
    x, w = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    compiled = beside_eager(function, x, w)
    beside_eager(function, -x.detach().requires_grad_(), w, compiled=compiled)
    with torch.no_grad():
        for a in (x, -x, torch.ones(4, 3) / 2):
            torch.testing.assert_close(compiled(a, w), function(a, w))
    for graph in tandem.report()["graphs"]:
        assert graph["fallbacks"] == CASES[function]


def test_a_second_backward_and_one_of_a_gradient():
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)

    def function(x):
        return positive(x.sin()).square().sum()

    found = []
    for call in (function, compile_with(function, fullgraph=True)):
        first = call(x)
        once = torch.autograd.grad(first, x, retain_graph=True)
        again = torch.autograd.grad(first, x)
        (gradient,) = torch.autograd.grad(call(x), x, create_graph=True)
        found.append([once, again, torch.autograd.grad(gradient.square().sum(), x)])
    torch.testing.assert_close(*found)


def test_what_it_raises_says_where():
    @torch.library.custom_op("tandem_test::picky", mutates_args=())
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("it is below 0")
        return x[x > 0].clone()

    picky.register_fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
    compiled = compile_with(lambda x: picky(x * 2) + 1, fullgraph=True)
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.full((3,), 3.0))
    with pytest.raises(ValueError, match="it is below 0"):
        compiled(-x)
    torch.testing.assert_close(compiled(x * 2), torch.full((3,), 5.0))


def chosen_view(x):
    return x.flatten()[(x > 0).sum().item()]


def written_behind(x):
    y = x * 2
    chosen = y.flatten()[(x > 0).sum().item()]
    y.add_(1)
    return chosen * 1


@pytest.mark.parametrize("function", [chosen_view, written_behind])
def test_a_view_at_a_place_that_data_tell(function):
    x = torch.tensor([1.0, -1, 2, -2])
    with pytest.raises(Exception, match="is a view at a place that data tell"):
        compile_with(function, fullgraph=True)(x)
    with pytest.warns(UserWarning, match="a whole graph runs in torch"):
        found = compile_with(function, fullgraph=True, on_unsupported="eager")(x)
    torch.testing.assert_close(found, function(x))


def test_unused_draws_are_drawn_in_their_order():
    def function(x, generator):
        torch.rand(3, generator=generator)
        first = torch.normal(x, 1.0, generator=generator)
        y = torch.empty_like(x).uniform_(generator=generator)
        y.uniform_(1, 2, generator=generator)
        return [first * 2, y, torch.randperm(5, generator=generator)]

    ours, theirs = (torch.Generator().manual_seed(1) for _ in range(2))
    call = through_core(lambda x: function(x, ours), {"on_unsupported": "eager"})
    for _ in range(3):
        x = torch.randn(3)
        with pytest.warns(UserWarning, match="draws from a torch.Generator"):
            actual = call(x)
        torch.testing.assert_close(actual, function(x, theirs), rtol=0, atol=0)
        assert torch.equal(ours.get_state(), theirs.get_state())
