"""Functions of the user over the joint graph: what they see, what they may do, what is refused."""

import pytest
import tandem
import torch
from compiled import compile_with


def step(function, x, w, *passes, **options):
    """The result and gradients."""
    x, w = (each.detach().clone().requires_grad_() for each in (x, w))
    compiled = compile_with(
        function, on_unsupported="strict", joint_passes=list(passes), **options
    )
    result = compiled(x, w)
    result.sum().backward()
    return result.detach(), x.grad, w.grad


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return torch.randn(4, 3), torch.randn(3, 3)


def model(x, w):
    return torch.tanh(x @ w) * 2


def test_a_pass_sees_both_halves(tensors):
    seen = {}

    def look(graph):
        seen["ops"] = [(node.op, node.is_backward) for node in graph.nodes]
        seen["inputs"] = [(value.name, value.dtype, value.sizes) for value in graph.inputs]
        seen["outputs"] = [(kind, name) for kind, name, _ in graph.outputs]
        tanh = next(node for node in graph.nodes if node.op == "aten.tanh")
        assert tanh.operands[0].node.op.startswith("aten.m") and tanh in tanh.operands[0].readers
        assert "test_joint_passes.py" in tanh.place
        (scale,) = [each for each in tanh.results[0].readers if not each.is_backward]
        seen["arguments"] = list(scale.arguments.items())
        seen["text"] = str(graph)

    result, *_ = step(model, *tensors, look)
    torch.testing.assert_close(result, model(*tensors))
    assert ("aten.tanh", False) in seen["ops"] and ("aten.tanh_backward", True) in seen["ops"]
    assert [entry[1:] for entry in seen["inputs"]][:2] == [("f32", [4, 3]), ("f32", [3, 3])]
    assert [kind for kind, _ in seen["outputs"]] == ["output", "grad", "grad"]
    assert seen["arguments"][1] == ("other", 2)
    assert seen["text"].startswith("graph @g(") and "aten.tanh_backward" in seen["text"]


def test_a_pass_rewrites_forward_and_backward(tensors):
    def halved(graph):
        """Every tanh of forward becomes half of it; gradients are left as they were."""
        for node in graph.nodes:
            if node.op == "aten.tanh" and not node.is_backward:
                half = graph.insert("aten.mul.Scalar", node.results[0], 0.5, before=later(node))
                for reader in node.results[0].readers:
                    assert reader.op != "aten.relu"
                graph.replace(node.results[0], half.results[0])

    def later(node):
        return next(each for each in node.results[0].readers if not each.is_backward)

    def clipped(graph):
        for kind, _, value in graph.outputs:
            if kind == "grad":
                limit = graph.insert("aten.clamp", value, min=-0.5, max=0.5)
                graph.replace(value, limit.results[0])

    x, w = tensors
    result, *_ = step(model, x, w, halved)
    torch.testing.assert_close(result, torch.tanh(x @ w))
    plain = step(model, x, w)
    result, *gradients = step(model, x, w, clipped)
    torch.testing.assert_close(result, plain[0])
    for got, wanted in zip(gradients, plain[1:], strict=True):
        torch.testing.assert_close(got, wanted.clamp(-0.5, 0.5))
    assert gradients[1].abs().max() == 0.5 < plain[2].abs().max()


def test_passes_run_in_order_and_on_graphs_without_gradients(tensors):
    order = []
    with torch.no_grad():
        compile_with(
            model, joint_passes=[lambda g: order.append(1), lambda g: order.append(len(g.nodes))]
        )(*tensors)
    assert order[0] == 1 and order[1] > 0


def test_what_a_pass_draws_has_numbers_of_its_own(tensors):
    def noise(graph):
        for node in graph.nodes:
            if node.op == "aten.tanh":
                value = node.results[0]
                made = graph.insert("aten.rand_like", value, before=value.readers[0])
                graph.replace(value, made.results[0])

    def f(x, w):
        return torch.nn.functional.dropout(torch.tanh(x @ w), 0.5), torch.rand(4, 3)

    compiled = compile_with(f, joint_passes=[noise], on_unsupported="strict")
    one, other = compiled(*tensors)
    drawn = one[one != 0] / 2
    assert 0 < len(drawn) < one.numel() and ((drawn > 0) & (drawn < 1)).all()
    assert not torch.isclose(drawn[:, None], other.flatten()[None], atol=1e-7).any()
    again, _ = compiled(*tensors)
    assert not torch.equal(one, again)


def test_sizes_that_vary_are_text(tensors):
    seen = []

    def look(graph):
        seen.extend(graph.inputs[-1].sizes if graph.inputs[-1].is_tensor else [])
        tanh = next(node for node in graph.nodes if node.op == "aten.tanh")
        sizes = tanh.results[0].sizes
        ones = graph.insert("aten.full", sizes, 1.0, dtype="f32", before=graph.nodes[0])
        more = graph.insert("aten.add.Tensor", tanh.results[0], ones.results[0],
                            before=tanh.results[0].readers[0])
        graph.replace(tanh.results[0], more.results[0])

    def f(x):
        return torch.tanh(x) * 2

    compiled = compile_with(f, joint_passes=[look], on_unsupported="strict")
    for rows in (4, 6):
        x = torch.randn(rows, 3)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), (torch.tanh(x) + 1) * 2)
    assert any(isinstance(size, str) for size in seen)


def used(graph):
    graph.erase(next(node for node in graph.nodes if node.op == "aten.tanh"))


def unknown(graph):
    graph.insert("aten.no_such", graph.inputs[0])


def misfit(graph):
    graph.insert("aten.tanh", graph.inputs[0], 3, before=graph.nodes[0])


def other_type(graph):
    graph.replace(graph.nodes[0].results[0], graph.inputs[1])


def out_of_order(graph):
    last = graph.insert("aten.tanh", graph.nodes[0].results[0])
    graph.replace(graph.nodes[0].results[0], last.results[0])


def erased(graph):
    node = graph.insert("aten.tanh", graph.inputs[0])
    graph.erase(node)
    node.op


def a_number(graph):
    graph.insert("aten.tanh", object())


@pytest.mark.parametrize(
    "broken, text",
    [
        (used, "[aten::tanh] cannot be erased: its result is read"),
        (unknown, "there is no operator 'aten.no_such'"),
        (misfit, "aten::tanh"),
        (other_type, "a value of type f32[3, 3] cannot stand for one of type f32[4, 3]"),
        (out_of_order, "[joint_passes] behind 'out_of_order'"),
        (erased, "the node was erased"),
        (a_number, "an argument of an operator is a value"),
    ],
)
def test_what_a_pass_may_not_do_is_an_error(tensors, broken, text):
    with pytest.raises(Exception) as caught:
        step(model, *tensors, broken)
    assert text in str(caught.value)


def test_what_a_pass_raises_reaches_the_user(tensors):
    def fails(graph):
        raise KeyError("mine")

    with pytest.raises(Exception, match="mine"):
        step(model, *tensors, fails)


def test_handles_end_with_the_pass(tensors):
    kept = []
    step(model, *tensors, lambda graph: kept.extend([graph, graph.nodes[0], graph.inputs[0]]))
    graph, node, value = kept
    for read in (lambda: graph.nodes, lambda: node.op, lambda: value.dtype):
        with pytest.raises(tandem.UserError, match="the pass is over"):
            read()


class Known:
    def __init__(self, name):
        self.name = name
        self.runs = 0

    def uuid(self):
        return self.name

    def __call__(self, graph):
        self.runs += 1


def test_the_cache_knows_passes_by_their_uuid(tensors, tmp_path, monkeypatch):
    monkeypatch.setenv("TANDEM_CACHE_DIR", str(tmp_path))
    one, other = Known("one"), Known("other")
    states = []
    for each in (one, one, other, lambda graph: None):
        step(model, *tensors, each)
        states.append(tandem.report()["graphs"][-1]["cache"])
    assert (one.runs, other.runs) == (1, 1)
    assert states[:3] == ["miss", "hit", "miss"]
    assert states[3] == "bypassed: joint pass '<lambda>' has no identity that a later process knows"


def test_options_name_what_is_wrong(tensors):
    with pytest.raises(Exception, match="option 'joint_passes' is a list of functions"):
        compile_with(model, joint_passes=[3])(*tensors)
