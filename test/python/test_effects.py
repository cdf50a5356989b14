"""What a graph does besides giving results: it prints and asserts, in the order of the program and
once, whatever is differentiated or computed again; and nothing is cut."""

import pytest
import torch
from torch._higher_order_ops import scan
from torch.utils.checkpoint import checkpoint

import tandem
from compiled import compile_with

say = torch._higher_order_ops.print


def compiled_strictly(function, **options):
    return compile_with(function, fullgraph=True, on_unsupported="strict", **options)


def lines_of(capfd, function, *arguments):
    capfd.readouterr()
    results = function(*arguments)
    return results, capfd.readouterr().out


def prints(x):
    y = x * 2
    say("sum {total:.3f}", total=y.sum())
    torch.ops.aten._print("between\n")
    z = y.sin()
    say("first {first:.3f} of {count}", first=z[0], count=x.shape[0])
    say("done")
    return z * y


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_printed_in_order_and_once(capfd, dynamic):
    compiled = compiled_strictly(prints, dynamic=dynamic)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(4 + (seed if dynamic else 0), requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        ours, printed = lines_of(capfd, compiled, x)
        theirs, expected = lines_of(capfd, prints, twin)
        assert printed == expected and "done" in printed
        torch.testing.assert_close(ours, theirs)
        _, behind = lines_of(capfd, ours.sum().backward)
        theirs.sum().backward()
        assert behind == ""
        torch.testing.assert_close(x.grad, twin.grad)
    assert all(graph["fallbacks"] == {} for graph in tandem.report()["graphs"])


def test_not_printed_again_where_values_are_computed_again(capfd):
    def inner(x):
        y = x.exp()
        say("inner {y}", y=y.sum())
        return y.sin()

    def function(x):
        return checkpoint(inner, x, use_reentrant=False) * 2

    x = torch.randn(4, requires_grad=True)
    ours, printed = lines_of(capfd, compiled_strictly(function), x)
    _, behind = lines_of(capfd, ours.sum().backward)
    assert printed.count("inner") == 1 and behind == ""


def test_what_nobody_reads_is_printed(capfd):
    def function(x):
        say("only {y}", y=(x + 1).sum())
        return x * 2

    _, printed = lines_of(capfd, compiled_strictly(function), torch.ones(3))
    assert printed == "only 6.0\n"


def test_second_derivatives_print_nothing_again(capfd):
    def function(x):
        y = x**3
        say("cubes {y}", y=y.sum())
        return y.sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    value, printed = lines_of(capfd, compiled_strictly(function), x)
    assert printed.count("cubes") == 1

    def twice():
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    second, behind = lines_of(capfd, twice)
    torch.testing.assert_close(second, 6 * x.detach())
    assert behind == ""


@pytest.mark.parametrize("requires_grad", [False, True])
def test_asserts_in_a_loop(requires_grad):
    """The loop is a node of the program, whose body asserts."""

    def function(x):
        def step(total, row):
            torch._assert_async((row > 0).all(), "not positive")
            return total + row, row * 2

        return scan(step, torch.zeros(2), x)[1]

    compiled = compiled_strictly(function)
    x = torch.arange(1.0, 7.0).view(3, 2).requires_grad_(requires_grad)
    torch.testing.assert_close(compiled(x), x * 2)
    assert tandem.report()["graphs"][-1]["control flow in Python"] == {}
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(-x.detach().requires_grad_(requires_grad))


def test_asserts_on_data_in_a_training_graph():
    def function(x):
        y = x.exp()
        torch._assert_async((y < 100).all(), "too large")
        return y * 2

    compiled = compiled_strictly(function)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())
    with pytest.raises(RuntimeError, match="too large"):
        compiled(torch.tensor([1.0, 9.0], requires_grad=True))
