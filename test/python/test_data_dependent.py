"""Sizes and numbers that only data tell: with Dynamo's graph breaks (its default), and with symbols
of unknown value inside one graph."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import config
from torch._higher_order_ops import while_loop

import tandem
from compared import beside_eager
from compiled import compile_with, through_core


@pytest.fixture
def one_graph():
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def inputs():
    torch.manual_seed(0)
    return torch.randn(6, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)


def chosen(x, w):
    return (x[x.sum(1) > 0] @ w).tanh().sum(0), x[x > 0].sin()


def listed(x, w):
    places = torch.nonzero(x[:, 0] > 0).squeeze(1)
    return (x * 2)[places] @ w, places + 1


def selected(x, w):
    return torch.masked_select(x * 2, x > 0).exp() * w.sum()


def repeated(x, w):
    counts = (x.detach()[:, 0] > 0).long() + 1
    return torch.repeat_interleave(x * 2, counts, dim=0) @ w


def numbered(x, w):
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 24)
    return (x.flatten() * 2)[:n].sin(), torch.arange(n) * n, n, n + 1


def scaled(x, w):
    scale = x.detach().round().sum().item()  # of whole numbers: exact in any order
    return x @ w * scale + scale, scale * 2


def below_zero(x, w):
    n = (x.detach() > 0).sum().item() - 100
    return x * n + w.sum()


def written(x, w):
    y = x * 2
    y[y > 0] = 0.5
    y[x < -1] = w.sum()
    return y.sin()


def replaced(x, w):
    """A value for each element that a mask chooses."""
    y = x * 2
    v = y.view(-1)
    y[y > 0] = (y[y > 0] * w.sum()).sin()
    y[y[:, 0] < 0] = y[y[:, 0] < 0] @ w.new_ones(4, 4)
    return y.cos(), v


def places(x, w):
    rows, columns = torch.where(x > 0)
    return rows * 4 + columns, x[rows, columns] * w.sum()


def distinct(x, w):
    values, inverse = torch.unique((x.detach() * 2).round(), return_inverse=True)
    return values * 2, inverse + 1, x.sum() * w.sum()


def in_turn(x, w):
    """Each size follows from the one before; a view and a write cross the cuts."""
    y = x * 2
    first = y[0]
    some = y[y.sum(1) > -100]
    y.mul_(3)
    more = some[some[:, 0] > 0]
    return (more @ w).sum(0), first + 1, y


def integers_cross(x, w):
    values, indices = x.sort(dim=1)
    chosen = values[values > 0]
    return indices * 2, values * chosen.sum(), chosen.view(-1, 1) * w[:1], x.gather(1, indices)


def views_of_results(x, w):
    y = x[x > 0] * w.sum()
    places = torch.nonzero(x)
    return y, y.view(-1, 1), y[:-1], places, places.t(), y.shape[0] + 2


def regions(x, w):
    with torch.no_grad():
        limit = x.mean()
        kept = x[x > limit]
        factor = kept.sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = x[x[:, 0] > 0]
        product = rows @ w
    return product.float() * factor, kept


ALL = [chosen, listed, selected, repeated, numbered, scaled, below_zero, written, places, distinct]
ALL += [in_turn, regions, replaced, integers_cross, views_of_results]


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_parts_of_a_broken_graph(function):
    x, w = inputs()
    options = {"fullgraph": False, "tolerance": 2e-2 if function is regions else 1e-5}
    compiled = beside_eager(function, x, w, **options)
    beside_eager(function, -x.detach().requires_grad_(), w, compiled=compiled, **options)
    for graph in tandem.report()["graphs"]:
        assert graph["fallbacks"] == {}


def in_pairs(x, w):
    chosen = x[x[:, 0] > 0].flatten()
    return chosen.view(-1, 2).t() * w.sum(), chosen[:, None] - chosen[None]


def stacked(x, w):
    part = x[x[:, 0] > 0]
    normed = F.layer_norm(F.softmax(part @ w[:, :4].mean(1, keepdim=True) * part, -1), (4,))
    return normed, part.t() @ part, part.expand(2, -1, -1) * 1, torch.cat([part, x]), part.sum(0)


@pytest.mark.parametrize("function", [in_pairs, stacked])
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_any_count(one_graph, function, dynamic):
    x, w = inputs()
    compiled = compile_with(function, fullgraph=True, dynamic=dynamic)
    for count in (3, 1, 0, 6, 2):
        y = x.detach().abs() + 1
        y[count:] *= -1
        beside_eager(function, y.requires_grad_(), w, compiled=compiled, tolerance=1e-4)
    assert len(tandem.report()["graphs"]) == 1


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_one_graph(one_graph, function, dynamic):
    x, w = inputs()
    tolerance = 2e-2 if function is regions else 1e-5
    compiled = beside_eager(function, x, w, dynamic=dynamic, tolerance=tolerance)
    for other in (-x.detach(), x.detach().abs() + 1, -x.detach().abs() - 1):
        other.requires_grad_()
        beside_eager(function, other, w, compiled=compiled, tolerance=tolerance)
    with torch.no_grad():
        beside_eager(function, x, w, compiled=compiled, tolerance=tolerance)
    graphs = tandem.report()["graphs"]
    assert len(graphs) == 2 and all(graph["fallbacks"] == {} for graph in graphs)
    assert graphs[0]["fallbacks"] == {}  # one program, and nothing in torch


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.__name__)
def test_nothing_runs_in_torch(one_graph, function):
    tolerance = 2e-2 if function is regions else 1e-5
    options = {"on_unsupported": "strict", "tolerance": tolerance}
    compiled = beside_eager(function, *inputs(), **options)
    for factor in (-1, 0, 3):
        x, w = inputs()
        x = (x.detach() * factor).requires_grad_()
        beside_eager(function, x, w, compiled=compiled, tolerance=tolerance)


def test_relations_of_sizes(one_graph):
    def function(x, y):
        n = (x > 0).sum().item()
        torch._check(n <= y.shape[0], lambda: "more than y has")
        return y[:n] * 2, torch.ones(n)

    x = torch.tensor([1.0, -1, 2])
    compiled = beside_eager(function, x, torch.randn(5, 2), dynamic=True, on_unsupported="strict")
    beside_eager(function, torch.ones(4), torch.randn(4, 2), compiled=compiled)
    with pytest.raises(RuntimeError):
        compiled(torch.ones(6), torch.randn(5, 2))


def test_sizes_that_a_check_says(one_graph):
    def function(x, w):
        n = (x.detach() > 0).sum().item()
        torch._check(n == 3)
        places = torch.nonzero(x.detach() > 0)
        torch._check(places.shape[0] == 3)
        return x[x > 0] * w[:n], places + torch.ones(3, 1), w.new_ones(n)

    x = torch.tensor([1.0, -1, 2, 0.5], requires_grad=True)
    w = torch.randn(5, requires_grad=True)
    compiled = beside_eager(function, x, w, on_unsupported="strict")
    with pytest.raises(RuntimeError, match="is 2, which is not in"):
        compiled(torch.tensor([1.0, -1, -2, 0.5]), w)


def test_second_derivatives(one_graph):
    def function(x):
        return (x[x > 0] ** 3).sum() + torch.masked_select(x.sin(), x < 0).sum()

    x = torch.tensor([1.0, -1, 2, 0.5], requires_grad=True)
    compiled = compile_with(function, fullgraph=True, on_unsupported="strict")

    def second(f):
        (first,) = torch.autograd.grad(f(x), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0]

    torch.testing.assert_close(second(compiled), second(function))


def test_counts_in_a_training_step(one_graph):
    """A loss over the chosen rows alone, as detectors have it: weights and statistics learn."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

    def loss(x, labels):
        chosen = labels >= 0
        return F.cross_entropy(model(x)[chosen], labels[chosen]) + chosen.sum() * 0.1

    compiled = compile_with(loss, fullgraph=True, on_unsupported="strict")
    for seed in range(3):
        torch.manual_seed(seed)
        x, labels = torch.randn(9, 4), torch.randint(-2, 3, (9,))
        grads = []
        for f in (compiled, loss):
            model.zero_grad()
            value = f(x, labels)
            value.backward()
            grads.append([value.detach(), *(p.grad.clone() for p in model.parameters())])
        for ours, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_mask_written_to_is_one_program(one_graph):
    beside_eager(written, *inputs())
    assert tandem.report()["graphs"][0]["fallbacks"] == {}


def test_inputs_are_written(one_graph):
    def function(x, buffer):
        buffer.add_(1)
        some = x[x > 0]
        buffer.mul_(some.numel())
        x.mul_(2)
        return some * buffer.sum(), buffer, x[0]

    beside_eager(function, torch.randn(6, 4), torch.ones(3))


def test_checks(one_graph):
    def function(x):
        n = x.sum().item()
        torch._check(n < 5, lambda: "too many")
        return torch.ones(4) * n

    compiled = compile_with(function, fullgraph=True)
    assert torch.equal(compiled(torch.tensor([1, 2])), torch.full((4,), 3.0))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([4, 2]))


def test_dropout_behind_a_mask(one_graph):
    def function(x):
        return F.dropout(x[x > 0] * 2, 0.5)

    compiled = compile_with(function, fullgraph=True)
    x = torch.ones(400, requires_grad=True)
    torch.manual_seed(1)
    first = compiled(x)
    torch.manual_seed(1)
    assert torch.equal(first, compiled(x))
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


def test_loop_over_numbers(one_graph):
    def step(i, n, x):
        return i + 1, n * 2, x * i + n

    def function(x):
        return while_loop(lambda i, n, x: i < 5, step, (0, 3, x))

    def reference(x):
        i, n = 0, 3
        while i < 5:
            i, n, x = step(i, n, x)
        return i, n, x

    compiled = beside_eager(function, torch.randn(3), reference=reference)
    beside_eager(function, torch.randn(3), compiled=compiled, reference=reference)
    assert tandem.report()["graphs"][0]["control flow"] == {"while_loop": 1}


def test_loop_with_an_index(one_graph):
    def function(x):
        def step(i, total):
            return i - 2, total * 2 + x[i + 4] * i

        return while_loop(lambda i, total: i > -5, step, (1, torch.zeros(4)))

    def reference(x):
        i, total = 1, torch.zeros(4)
        while i > -5:
            i, total = i - 2, total * 2 + x[i + 4] * i
        return i, total

    beside_eager(function, torch.randn(6, 4), reference=reference, dynamic=True)


def test_loop_in_a_loop(one_graph):
    def inside(i, x):
        return while_loop(lambda j, x: j < 3, lambda j, x: (j + 1, x + j), (i, x))

    def function(x):
        def step(i, x):
            j, x = inside(0, x)
            return i + j, x * 2

        return while_loop(lambda i, x: i < 9, step, (0, x))

    def reference(x):
        for _ in range(3):
            x = (x + 0 + 1 + 2) * 2
        return 9, x

    beside_eager(function, torch.randn(6, 4), reference=reference)


def test_body_that_writes(one_graph):
    def function(x, buffer):
        def step(i, x):
            buffer.add_(1)
            return i + 1, x * 2

        return while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x))

    with torch.no_grad(), pytest.raises(Exception, match="writes to what it is given"):
        compile_with(function)(torch.ones(3), torch.zeros(3))


def test_branch_with_a_mask_inside(one_graph):
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x[x > 0].sum() * 2, lambda x: x.sum(), (x,))

    def reference(x):
        return x[x > 0].sum() * 2 if x.sum() > 0 else x.sum()

    x = torch.tensor([1.0, -2, 3], requires_grad=True)
    beside_eager(function, x, reference=reference)


def test_branches_of_other_sizes(one_graph):
    def branches(x):
        return lambda x: (x.sin(), x.shape[0]), lambda x: (x[:2].cos() * 2, 7)

    def function(x):
        y, n = torch.cond(x.sum() > 0, *branches(x), (x,))
        return y * 2, n + 1

    def reference(x):
        y, n = branches(x)[0 if x.sum() > 0 else 1](x)
        return y * 2, n + 1

    x = torch.rand(5, 3, requires_grad=True)
    compiled = beside_eager(function, x, reference=reference)
    beside_eager(function, -x.detach(), compiled=compiled, reference=reference)


def test_branch_on_a_number(one_graph):
    def function(x):
        n = (x > 0).sum().item()
        return torch.cond(n > 3, lambda x: x.sin() * n, lambda x: x.cos(), (x,))

    def reference(x):
        n = (x > 0).sum().item()
        return x.sin() * n if n > 3 else x.cos()

    compiled = beside_eager(function, torch.ones(5, requires_grad=True), reference=reference)
    beside_eager(function, -torch.ones(5), compiled=compiled, reference=reference)


def test_mask_and_values_of_known_sizes():
    """Their number has to be the mask's count, which only the call tells."""

    def function(x, v):
        y = x * 2
        y[x > 0] = v
        return y.sin()

    x, v = torch.tensor([1.0, -1, 2], requires_grad=True), torch.ones(2, requires_grad=True)
    compiled = beside_eager(function, x, v)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(torch.ones(3), v)


def test_a_number_that_torch_knows():
    """torch.div of two sizes is a tensor, whose number a view takes: no node that tells a size."""

    def function(x):
        count = torch.div(x.size(1), 4, rounding_mode="trunc")
        return x.view(x.size(0), count, 4) * 2

    x = torch.randn(2, 16)
    torch.testing.assert_close(compile_with(function)(x), function(x))
    assert [graph["fallbacks"] for graph in tandem.report()["graphs"]] == [{}]


def test_a_mask_of_more_elements_than_what_it_selects_from():
    x, mask = torch.randn(7), torch.ones(7, 7, dtype=torch.bool)
    for function in [torch.masked_select, lambda x, mask: torch.masked_select(x, mask) * 2]:
        for compiled in [through_core(function), compile_with(function)]:
            found = compiled(x, mask)
            found = found[0] if isinstance(found, (list, tuple)) else found
            assert torch.equal(found, function(x, mask))


class Padded(torch.nn.Module):
    """As Encodec's layers pad: by numbers that buffers hold, and then cut, by nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("left", torch.tensor(3))
        self.register_buffer("right", torch.tensor(2))

    def forward(self, x, extra):
        padded = F.pad(x * 2, (self.left, self.right))
        return padded[..., : padded.shape[-1] - extra]


def test_view_of_what_numbers_of_buffers_pad():
    module = Padded()
    compiled = compile_with(module, dynamic=True, fullgraph=True)
    for length in (9, 13, 20):
        x = torch.randn(2, length)
        torch.testing.assert_close(compiled(x, 0), module(x, 0))


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect", "circular"])
def test_gradients_of_what_numbers_of_buffers_pad(mode):
    """Of which nobody knows the sign."""
    module = Padded()

    def padded(x):
        return F.pad(x.sin(), (module.left, module.right), mode=mode)

    compiled = compile_with(padded, dynamic=True, fullgraph=True)
    for left, right, length in ((3, 2, 9), (1, 4, 13), (-2, 3, 11), (-1, -2, 20)):
        module.left.fill_(left)
        module.right.fill_(right)
        x = torch.randn(2, 3, length, requires_grad=True)
        weight = torch.randn(length + left + right)
        values, gradients = [], []
        for call in (padded, compiled):
            values.append(call(x))
            gradients.append(torch.autograd.grad((values[-1] * weight).sum(), x)[0])
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*gradients)


class Trimmed(torch.nn.Module):
    """As Encodec's decoder trims: where is rounded from an attribute that is no integer."""

    def __init__(self, ratio):
        super().__init__()
        self.ratio = ratio

    def forward(self, x):
        right = math.ceil(8 * self.ratio)
        return (x * 2)[..., 8 - right : x.shape[-1] - right]


def test_bounds_of_a_number_that_guards_tell():
    module = Trimmed(1.0)
    compiled = compile_with(module, dynamic=True, fullgraph=True)
    for ratio in (1.0, 0.5, 0.2, 0.0):
        module.ratio = ratio
        for length in (20, 31):
            x = torch.randn(2, length)
            torch.testing.assert_close(compiled(x), module(x))
