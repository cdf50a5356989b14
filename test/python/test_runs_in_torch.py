"""Whatever runs in torch is counted and named in the report; `on_unsupported="error"` refuses what
Tandem lacks, "strict" whatever would run in torch."""

import os
import re
import warnings

import pytest
import torch
from torch._dynamo import config

import tandem
from compiled import compile_with, through_core
from tandem import capture, higher_order, reports


@pytest.fixture
def one_graph():
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def rows(x):
    return torch.unique((x * 2).view(4, 2), dim=0).sin()


def shifted(x):
    return torch.unique(x.view(2, 4), dim=1) + (x.sum().item() - 1)


def overlapping():
    """As elements of two sizes, so no one tensor stands for both."""
    memory = torch.arange(6.0)
    return memory[:4], memory[2:4].view(torch.int16)


def write_first(a, b):
    a.mul_(2)
    return a + b


@pytest.mark.parametrize("function", [rows, shifted])
def test_what_tells_a_size_is_counted_and_named(one_graph, function):
    compiled = compile_with(function, fullgraph=True)
    x = torch.randn(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is so by design
        torch.testing.assert_close(compiled(x), function(x))
    (graph,) = tandem.report()["graphs"]
    assert graph["fallbacks"] == {"aten.unique_dim": 1}
    assert "runs in torch: aten.unique_dim (1 times)" in str(tandem.report())


@pytest.mark.parametrize("function", [rows, shifted])
def test_strict_refuses_what_tells_a_size(one_graph, function):
    compiled = compile_with(function, fullgraph=True, on_unsupported="strict")
    with pytest.raises(Exception, match=r"Unsupported: \[aten.*and runs in torch"):
        compiled(torch.randn(8))


def complex_sinc(x):
    return torch.sinc(torch.complex(x, x)).real


def test_strict_refuses_missing_operators_and_whole_graphs():
    for function in (torch.linalg.matrix_exp, complex_sinc):
        compiled = compile_with(lambda x, f=function: f(x) * 2, on_unsupported="strict")
        with pytest.raises(Exception, match="Unsupported"):
            compiled(torch.eye(3))


def test_calls_with_overlapping_inputs_are_counted_and_warned_of_once():
    compiled = compile_with(write_first)
    compiled(torch.ones(4), torch.ones(4, dtype=torch.int16))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            a, b = overlapping()
            c, d = overlapping()
            torch.testing.assert_close(compiled(a, b), write_first(c, d))
            torch.testing.assert_close(b, d)
    assert len([each for each in caught if "a call runs in torch" in str(each.message)]) == 1
    report = tandem.report()
    assert report["graphs"][0]["calls in torch"] == report["calls in torch"] == 3
    assert "3 calls ran in torch: an input that is written overlaps another one" in str(report)


def test_strict_refuses_calls_with_overlapping_inputs():
    compiled = compile_with(write_first, on_unsupported="strict")
    apart = torch.ones(4), torch.ones(4, dtype=torch.int16)
    torch.testing.assert_close(compiled(*apart), torch.full((4,), 3.0))
    a, b = overlapping()
    with pytest.raises(tandem.Unsupported, match="an input that is written overlaps another one"):
        compiled(a, b)
    assert torch.equal(b.view(torch.float32), torch.arange(2.0, 4.0)), "nothing was written"
    apart = torch.ones(4), torch.ones(4, dtype=torch.int16)
    torch.testing.assert_close(compiled(*apart), torch.full((4,), 3.0))


def test_of_many_ways_to_share_memory_those_used_last_are_kept():
    """None runs in torch: the program of the way used longest ago goes."""
    compiled = compile_with(write_first, on_unsupported="strict")
    for shift in [*range(1, 21), 20, 1]:
        ours, eager = torch.arange(64.0), torch.arange(64.0)
        actual = compiled(ours[:32], ours[shift : shift + 32])
        expected = write_first(eager[:32], eager[shift : shift + 32])
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(ours, eager)
    report = tandem.report()
    (graph,) = report["graphs"]
    assert graph["shared memory"] == {"compiled": 21, "dropped": 5}
    assert "inputs that share memory: 21 programs, of which 5 were dropped" in str(report)


# --- generators


def draws(generator):
    def function(x):
        first = torch.empty_like(x).uniform_(generator=generator)
        second = torch.bernoulli(first, generator=generator)
        return x * 2 + first, second + torch.rand(x.shape, generator=generator)

    return function


def test_a_generator_of_the_callers_is_drawn_from_in_order():
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    functions = [draws(generator) for generator in generators]
    call = through_core(functions[0], {"on_unsupported": "eager"})
    x = torch.zeros(5)
    tandem.reset_report()
    for _ in range(3):
        with pytest.warns(UserWarning, match="draws from a torch.Generator, and runs in torch"):
            # The trace itself draws nothing: fakes have no numbers.
            actual = call(x)
        for a, b in zip(actual, functions[1](x), strict=True):
            assert torch.equal(a, b)
        assert torch.equal(generators[0].get_state(), generators[1].get_state())
    (fallbacks, *_) = [graph["fallbacks"] for graph in tandem.report()["graphs"]]
    assert sum(fallbacks.values()) == 3 and "aten.uniform_" in fallbacks


def test_a_generator_has_gradients_around_it():
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    call = through_core(draws(generators[0]), {"on_unsupported": "eager"})
    xs = [torch.ones(5, requires_grad=True) for _ in range(2)]
    results = call(xs[0]), draws(generators[1])(xs[1])
    for result in results:
        result[0].sum().backward()
    assert torch.equal(xs[0].grad, xs[1].grad)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())


def test_a_generator_is_an_error_where_torch_may_not_run():
    for mode in ("error", "strict"):
        call = through_core(draws(torch.Generator()), {"on_unsupported": mode})
        with pytest.raises(tandem.Unsupported, match=r"\[aten.uniform_?\] draws from a torch.Gen"):
            call(torch.zeros(5))


def test_a_generator_among_the_inputs_is_the_one_of_the_call():
    def function(x, generator):
        return [x + torch.empty(4).uniform_(generator=generator)]

    for mode in ("eager", "error"):
        call = through_core(function, {"on_unsupported": mode})
        if mode == "error":
            with pytest.raises(tandem.Unsupported, match="input 1 is a torch.Generator"):
                call(torch.zeros(4), torch.Generator())
        else:
            ours, theirs = (torch.Generator().manual_seed(5) for _ in range(2))
            (actual,), (expected,) = call(torch.zeros(4), ours), function(torch.zeros(4), theirs)
            assert torch.equal(actual, expected)
            assert torch.equal(ours.get_state(), theirs.get_state())


# --- mistakes of our own


def test_a_mistake_of_ours_is_no_refusal_of_torchs(monkeypatch):
    def broken(*_, **__):
        return {}["nothing"]

    broken.__code__ = broken.__code__.replace(co_filename=higher_order.__file__)
    monkeypatch.setitem(higher_order.HANDLERS, "tag_activation_checkpoint", broken)
    compiled = compile_with(
        lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    )
    with pytest.raises(Exception, match="internal error while tracing a graph.*KeyError") as caught:
        compiled(torch.ones(3, requires_grad=True))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), tandem.InternalError)
    path = re.search(r"The graph is in (\S+);", str(caught.value))[1]
    with open(path) as file:
        assert "tag_activation_checkpoint" in file.read()
    os.remove(path)


def test_a_mistake_of_the_users_is_a_refusal():
    """Whatever code of the user raises while it is traced."""

    @torch._dynamo.allow_in_graph
    def picky(x):
        if type(x) is not torch.Tensor:
            raise KeyError("no fakes")
        return x * 2

    module = torch.fx.symbolic_trace(torch.nn.Identity())
    graph = torch.fx.Graph()
    graph.output(graph.call_function(picky, (graph.placeholder("x"),)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with pytest.raises(tandem.Unsupported, match="cannot trace this program.*no fakes"):
        capture.capture(module, [torch.ones(3)])


# --- the report


def test_the_report_is_bounded(monkeypatch):
    monkeypatch.setattr(reports, "GRAPHS", 2)
    tandem.reset_report()
    call = through_core(torch.linalg.matrix_exp, {"on_unsupported": "eager"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in range(2, 7):
            call(torch.eye(size))
    report = tandem.report()
    assert len(report["graphs"]) == 2
    assert report["older"] == {"graphs": 3, "fallbacks": {"aten.linalg_matrix_exp": 3}}
    assert "3 older graphs" in str(report) and "graph 4: inference" in str(report)
    tandem.reset_report()
    assert tandem.report()["older"]["graphs"] == 0
