"""`options={"partition": function}`: a function says what forward saves for backward."""

import re

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(256, 8)
    )


def saved_by(partition, model=None, **options):
    """What forward saves beside arguments, as operators; gradients are those of the default."""
    model = model or network()
    x = torch.randn(32, 64, requires_grad=True)
    gradients = []
    for more in ({}, {"partition": partition}):
        tandem.reset_report()
        torch._dynamo.reset()
        torch.manual_seed(1)
        result = compile_with(model, report=True, **more, **options)(x)
        gradients.append(torch.autograd.grad(result.sin().sum(), [x, *model.parameters()]))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)
    (graph,) = tandem.report()["graphs"]
    return re.findall(r"^  saved .*% ?\w+ = ([\w.]+)\(", graph["cut"], re.MULTILINE)


def test_nothing_but_inputs_which_nothing_makes():
    assert saved_by(lambda graph: []) == []


def test_what_it_names_is_saved():
    def products(graph):
        named = [node.results[0] for node in graph.nodes if node.op.startswith("aten.addmm")]
        return named[:1]

    assert saved_by(products) == ["aten.addmm"]


def test_what_a_second_run_could_change_is_saved_beside_it():
    def own_noise(x):
        return x + torch.ops.tandem_test.noise(x)

    @torch.library.custom_op("tandem_test::noise", mutates_args=())
    def noise(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x)

    noise.register_fake(torch.empty_like)

    def function(x):
        y = x * own_noise(x.detach())
        return y * y

    calls = []

    def nothing(graph):
        calls.append(str(graph))
        return []

    x = torch.randn(64, requires_grad=True)
    torch.manual_seed(0)
    tandem.reset_report()
    y = compile_with(function, partition=nothing, on_unsupported="eager", report=True)(x)
    (graph,) = tandem.report()["graphs"]
    assert re.search("^  saved .*tandem.host", graph["cut"], re.MULTILINE), graph["cut"]
    assert re.search("^  again .*aten.mul", graph["cut"], re.MULTILINE)
    torch.manual_seed(0)
    (wanted,) = torch.autograd.grad(function(x).sum(), x)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(found, wanted) and len(calls) == 1


def tangents(graph):
    return [value for value in graph.inputs if value.name.startswith("tangent")]


def nothing_at_all(graph):
    return None


def words(graph):
    return ["%0"]


def edits(graph):
    graph.insert("aten.exp", graph.inputs[0])
    return []


def raises(graph):
    raise KeyError("of the user's own")


@pytest.mark.parametrize(
    "partition, said",
    [
        (tangents, r"'tangents': %tangent\w* is no value of forward"),
        (nothing_at_all, "gives values of the graph, in a list"),
        (words, "gives values of the graph, in a list"),
        (edits, "'edits' edits the graph; a partition only chooses"),
        (raises, "of the user's own"),
    ],
)
def test_what_is_no_partition_is_an_error(partition, said):
    with pytest.raises(Exception, match=said):
        saved_by(partition)


def test_it_is_a_function():
    with pytest.raises(Exception, match="option 'partition' is a function or None"):
        compile_with(torch.sin, partition="min_cut")(torch.randn(3))


class Known:
    def __init__(self, name):
        self.name, self.calls = name, 0

    def __call__(self, graph):
        self.calls += 1
        return graph.inputs[:-1]

    def uuid(self):
        return self.name


def test_the_cache_knows_it_by_its_uuid(tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    x = torch.randn(8, requires_grad=True)

    def function(x):
        return F.gelu(x).sin()

    calls = []
    for name in ("one", "one", "other"):
        torch._dynamo.reset()
        partition = Known(name)
        compile_with(function, partition=partition)(x).sum().backward()
        calls.append(partition.calls)
    assert calls == [1, 0, 1]


def test_a_loop_inside_keeps_the_default():
    from torch._higher_order_ops.scan import scan

    def function(x):
        def step(carry, row):
            carry = torch.tanh(carry * 1.5 + row)
            return carry, carry.sin()

        last, rows = scan(step, x[0], x.exp())
        return last.sum() + rows.sum()

    x = torch.randn(5, 3, requires_grad=True)
    found = compile_with(function, partition=lambda graph: [])(x)
    (gradient,) = torch.autograd.grad(found, x)
    (wanted,) = torch.autograd.grad(function(x), x)
    assert torch.allclose(gradient, wanted, atol=1e-5)


def kept_with(**knobs):
    def function(x, w):
        rows = (x * 0.1).sin()
        return rows.cumsum(0) * rows.sum(1, keepdim=True).exp() * w

    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    wanted = torch.autograd.grad(function(x, w).sum(), [x, w])
    tandem.reset_report()
    torch._dynamo.reset()
    compiled = compile_with(function, report=True, memory_budget="min_cut", partition_knobs=knobs)
    found = torch.autograd.grad(compiled(x, w).sum(), [x, w])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
    (graph,) = tandem.report()["graphs"]
    return set(re.findall(r"^  saved .*% ?\w+ = aten.(\w+)", graph["cut"], re.MULTILINE))


def test_knobs_of_min_cut():
    assert "cumsum" in kept_with()
    assert "cumsum" in kept_with(ban_recompute_not_in_allowlist=False)  # backward reads it whole
    both = ("ban_recompute_not_in_allowlist", "ban_recompute_materialized_backward")
    assert "cumsum" not in kept_with(**dict.fromkeys(both, False))
    aggressive = kept_with(aggressive_recomputation=True)
    assert "cumsum" not in aggressive and aggressive
    assert kept_with(aggressive_recomputation=True, ban_recompute_reductions=False) == set()


def test_knobs_have_names_and_are_on_or_off():
    with pytest.raises(Exception, match="not 'recompute=true'; there are: ban_recompute_used_far"):
        kept_with(recompute=True)
    with pytest.raises(Exception, match="option 'partition_knobs' is for 'memory_budget'"):
        compile_with(lambda x: x * 2, partition_knobs={"recompute_views": True})(torch.ones(2))
    with pytest.raises(Exception, match="option 'partition' says what forward saves, and so does"):
        options = {"partition": lambda graph: [], "memory_budget": "default"}
        compile_with(lambda x: x * 2, **options)(torch.ones(2))
    with pytest.raises(Exception, match="option 'partition_knobs' is a dict of True and False"):
        kept_with(recompute_views=1)
