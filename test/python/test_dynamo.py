"""torch.compile(model, backend="tandem") at its border: what crosses, what is shared, what is
remembered for backward, and what is refused."""

import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing

import tandem
from compiled import compile_with, through_core


def same(actual, expected, tolerance=1e-5):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def gradients(function, module, x):
    module.zero_grad()
    loss = function(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in module.parameters())]


def test_inference_and_training():
    module, x = model(), torch.randn(3, 8)
    compiled = compile_with(module)
    with torch.no_grad():
        same(compiled(x), module(x))
    for actual, expected in zip(
        gradients(compiled, module, x), gradients(module, module, x), strict=True
    ):
        same(actual, expected)
    graphs = tandem.report()["graphs"]
    assert [graph["training"] for graph in graphs] == [False, True]
    assert all(graph["fallbacks"] == {} for graph in graphs)


def test_gradients_accumulate_over_forwards():
    module = model()
    compiled = compile_with(module)
    inputs = [torch.randn(3, 8) for _ in range(3)]
    module.zero_grad()
    losses = [compiled(x).sum() for x in inputs]
    for loss in reversed(losses):
        loss.backward()
    actual = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    sum(module(x).sum() for x in inputs).backward()
    for a, p in zip(actual, module.parameters(), strict=True):
        same(a, p.grad)
    assert len(tandem.report()["graphs"]) == 1


def test_backward_twice_needs_retain_graph():
    module = model()
    loss = compile_with(module)(torch.randn(3, 8)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_saved_input_that_is_written_is_noticed():
    x = torch.randn(4, requires_grad=True)
    y = x.clone()
    out = compile_with(lambda a: a.sin() * a)(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_double_backward():
    x = torch.randn(4, requires_grad=True)
    out = compile_with(lambda a: a.sin())(x).sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    same(first, x.cos())
    same(torch.autograd.grad(first.sum(), x)[0], -x.sin())


def test_buffers_are_written_back():
    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))

    ours, eager = build(), build()
    compiled = compile_with(ours)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        same(compiled(x), eager(x))
    for a, b in zip(ours.buffers(), eager.buffers(), strict=True):
        same(a, b)


def test_results_alias_as_in_eager():
    def function(x, y):
        z = x * 2
        y.add_(1)
        return z, z.view(-1), y, x.t(), x.shape[0]

    x, y = torch.randn(2, 3), torch.randn(2)
    z, flat, written, turned, rows = compile_with(function)(x, y)
    assert flat.data_ptr() == z.data_ptr() and flat._is_view()
    assert written is y and turned.data_ptr() == x.data_ptr() and turned._base is x
    assert rows == 2


def test_layouts_of_results():
    def function(x):
        return (x + 1), (x + 1).transpose(0, 1).contiguous().transpose(0, 1)

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for actual, expected in zip(compile_with(function)(x), function(x), strict=True):
        assert actual.stride() == expected.stride()


def test_overlapping_inputs_see_each_others_writes():
    def function(a, b):
        a.mul_(2)
        return a + b

    compiled = compile_with(function)
    same(compiled(torch.ones(4), torch.ones(4)), torch.full((4,), 3.0))
    base = torch.ones(6)
    expected_base = torch.ones(6)
    same(compiled(base[:4], base[2:]), function(expected_base[:4], expected_base[2:]))
    same(base, expected_base)
    assert tandem.report()["calls in torch"] == 0


def test_a_write_to_shared_memory_gives_it_a_history():
    """Before, none of the inputs that lie there has one."""

    def function(x, y, w):
        x.mul_(w)
        return [y * 2]

    found = []
    for call in (function, through_core(function, {"on_unsupported": "strict"})):
        memory, w = torch.arange(1.0, 5.0), torch.tensor(3.0, requires_grad=True)
        x, y = memory[:3], memory[1:]
        (result,) = call(x, y, w)
        assert x.requires_grad and memory.requires_grad and result.requires_grad
        (result.square().sum() + x.sum()).backward()
        found.append([result, x, y, memory, w.grad])
    torch.testing.assert_close(*found)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, k):
        ctx.save_for_backward(x, w)
        ctx.k = k
        return x * w, x.sin()

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        return g * w * ctx.k + h, g * x, None  # not the true gradient: the user's


def test_custom_function_keeps_its_backward():
    def function(x, w):
        a, b = Scaled.apply(x * 2, w, 3)
        return (a * b.exp()).sum()

    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    expected = torch.autograd.grad(function(x, w), (x, w))
    actual = torch.autograd.grad(compile_with(function, fullgraph=True)(x, w), (x, w))
    for a, b in zip(actual, expected, strict=True):
        same(a, b, 1e-4)


@pytest.mark.parametrize("budget", ["default", "as_read", "min_cut"])
def test_checkpoint_draws_the_same_masks(budget):
    def body(a, b):
        return F.dropout((a * b).exp(), 0.5, True) * a

    def function(x, w):
        return checkpointing.checkpoint(body, x, w, use_reentrant=False)

    x, w = torch.ones(64, requires_grad=True), torch.zeros(64, requires_grad=True)
    out = compile_with(function, fullgraph=True, memory_budget=budget)(x, w)
    out.sum().backward()
    assert set(out.detach().tolist()) == {0.0, 2.0}
    same(w.grad, out.detach())  # d/dw of mask * 2 * exp(x w) * x


def save_products(_, op, *args, **kwargs):
    policy = checkpointing.CheckpointPolicy
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return policy.MUST_SAVE if op in products else policy.PREFER_RECOMPUTE


def test_selective_checkpoint():
    linear = torch.nn.Linear(8, 8)
    contexts = partial(checkpointing.create_selective_checkpoint_contexts, save_products)

    def function(x):
        body = lambda a: linear(linear(a).sin())  # noqa: E731
        return checkpointing.checkpoint(body, x, use_reentrant=False, context_fn=contexts).sum()

    x = torch.randn(4, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(function(x), x)
    (actual,) = torch.autograd.grad(compile_with(function, fullgraph=True)(x), x)
    same(actual, expected)


def test_no_grad_region_and_detach():
    def function(x):
        with torch.no_grad():
            scale = x.abs().max()
        return (x / scale).sum() + (x.detach() * x).sum()

    x = torch.randn(5, requires_grad=True)
    (expected,) = torch.autograd.grad(function(x), x)
    (actual,) = torch.autograd.grad(compile_with(function)(x), x)
    same(actual, expected)


def test_manual_seed_repeats_a_run():
    compiled = compile_with(lambda x: F.dropout(x, 0.5, True))
    x = torch.ones(1000)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first) and not torch.equal(first, second)


def test_dynamic_sizes_share_one_program():
    module = model()
    compiled = compile_with(lambda x: module(x).sum(1), dynamic=True)
    for batch in (3, 5, 64):
        x = torch.randn(batch, 8)
        for actual, expected in zip(
            gradients(compiled, module, x),
            gradients(lambda y: module(y).sum(1), module, x),
            strict=True,
        ):
            same(actual, expected, 1e-4)
    assert len(tandem.report()["graphs"]) == 1


def test_an_error_of_the_program_leaves_inputs_alone():
    def function(x, table, index):
        x.add_(1)
        return table[index] + x

    x, table = torch.zeros(2), torch.randn(3, 2)
    compiled = compile_with(function)
    with pytest.raises((IndexError, tandem.UserError), match="index"):
        compiled(x, table, torch.tensor([7]))
    same(x, torch.zeros(2))
    same(compiled(x, table, torch.tensor([1])), table[1:2] + 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    module = model().to(dtype)
    x = torch.randn(3, 8, dtype=dtype)
    tolerance = {torch.float64: 1e-12}.get(dtype, 3e-2)
    for actual, expected in zip(
        gradients(compile_with(module), module, x), gradients(module, module, x), strict=True
    ):
        same(actual, expected, tolerance)


def test_missing_operator_is_named_or_runs_in_torch():
    def function(x):
        return torch.linalg.matrix_exp(x.tanh()).sum()

    x = torch.randn(3, 3, requires_grad=True)
    with pytest.raises(Exception, match="aten.linalg_matrix_exp"):
        compile_with(function)(x)
    with pytest.warns(UserWarning, match="aten.linalg_matrix_exp"):
        out = compile_with(function, on_unsupported="eager")(x)
    (expected,) = torch.autograd.grad(function(x), x)
    (actual,) = torch.autograd.grad(out, x)
    same(actual, expected)
    assert tandem.report()["graphs"][0]["fallbacks"] == {"aten.linalg_matrix_exp": 1}


def test_what_cannot_be_compiled_is_refused_by_name():
    with pytest.raises(Exception, match="complex32"):
        compile_with(lambda x: x * 2)(torch.zeros(2, dtype=torch.complex32))


def test_unknown_options_are_listed():
    with pytest.raises(Exception, match="unknown option 'speed'.*memory_budget"):
        compile_with(lambda x: x * 2, speed=9)(torch.zeros(2))
    with pytest.raises(Exception, match="one of"):
        compile_with(lambda x: x * 2, on_unsupported="ignore")(torch.zeros(2))


def test_two_threads_may_call_one_model():
    module = model()
    compiled = compile_with(module)
    inputs = [torch.randn(3, 8) for _ in range(2)]
    expected = [module(x).detach() for x in inputs]
    with torch.no_grad():
        compiled(inputs[0])
    failures = []

    def work(number):
        with torch.no_grad():
            for _ in range(200):
                if not torch.allclose(compiled(inputs[number]), expected[number], atol=1e-5):
                    failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_report_prints_and_is_a_dict():
    compile_with(lambda x: (x * 2).sum())(torch.zeros(3))
    report = tandem.report()
    assert report["graphs"][0]["ops"] == {"aten.mul.Tensor": 1, "aten.sum": 1}
    assert "graph 0: inference, 2 ops" in str(report)


def test_frozen_weights_are_constants_until_somebody_writes_them():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 5),
    ).eval()
    model[1].running_mean.normal_()
    compiled = compile_with(model, freeze=True, report=True)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        kernels = tandem.report()["graphs"][-1]["kernels"]
        assert "setup" in kernels, "batch norm is folded once"
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model[4].bias = torch.nn.Parameter(torch.ones(5))
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model.load_state_dict({name: value / 2 for name, value in model.state_dict().items()})
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    compiled(x).sum().backward()
    assert model[0].weight.grad is not None, "a graph with gradients is not frozen"


def test_frozen_buffers_that_the_graph_writes_stay_inputs():
    class Count(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("scale", torch.full((4,), 3.0))

        def forward(self, x):
            self.calls.add_(1)
            return x * self.scale + self.calls

    model = Count()
    compiled = compile_with(model, freeze=True)
    for call in range(1, 4):
        torch.testing.assert_close(compiled(torch.ones(4)), torch.full((4,), 3.0 + call))
    assert model.calls == 3


def test_a_frozen_buffer_that_shares_memory_with_a_written_one():
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("whole", torch.zeros(4))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x):
            self.whole.add_(1)
            return x * self.part

    expected, actual = Shared(), Shared()
    compiled = compile_with(actual, freeze=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2)), expected(torch.ones(2)))
