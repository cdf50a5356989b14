"""A training step that Dynamo hands over as one graph (trace_autograd_ops): differentiated by the
compiler, run as one program, equal to eager."""

import copy

import pytest
import tandem
import torch
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def one_graph():
    torch._dynamo.reset()
    tandem.reset_report()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        yield
    torch._dynamo.reset()


def compiled(step):
    options = {"on_unsupported": "error"}
    return torch.compile(step, backend=tandem.backend, fullgraph=True, options=options)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(6, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.out = torch.nn.Linear(16, 3)
        self.unused = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.out(self.norm(F.gelu(self.hidden(x))))


def sgd_step(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad * 0.1)
    for parameter in model.parameters():
        parameter.grad = None
    return loss.detach()


def test_steps_of_gradient_descent():
    torch.manual_seed(0)
    expected = Net()
    actual = copy.deepcopy(expected)
    step = compiled(sgd_step)
    for _ in range(5):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        torch.testing.assert_close(step(actual, x, y), sgd_step(expected, x, y))
    for a, b in zip(actual.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    graphs = tandem.report()["graphs"]
    assert len(graphs) == 1
    assert "tandem.gradient" in graphs[0]["text"]
    assert not graphs[0]["training"], "no autograd.Function is needed"


def test_gradients_stay_on_the_parameters_and_add_up():
    def step(model, x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    torch.manual_seed(0)
    expected = Net()
    actual = copy.deepcopy(expected)
    fast = compiled(step)
    for _ in range(3):
        x = torch.randn(4, 6)
        torch.testing.assert_close(fast(actual, x), step(expected, x))
    for a, b in zip(actual.parameters(), expected.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_grad_with_a_tangent():
    def f(w, x, g):
        y = (w * x).sin()
        (dw,) = torch.autograd.grad(y, [w], grad_outputs=[g])
        return dw * 2

    w = torch.randn(5, requires_grad=True)
    x, g = torch.randn(5), torch.randn(5)
    torch.testing.assert_close(compiled(f)(w, x, g), f(w, x, g))


def test_a_gradient_inside_a_custom_backward():
    text = """
    graph @g(%x: f32[3] {input grad}) {
      %0 = aten.mul.Tensor(%x, 2) {no_grad}
      %1 = tandem.custom_gradient([%0], [%x], [%x], [0], "body")
      return %1
    }
    graph @body(%grad: f32[3], %x: f32[3]) {
      %0 = aten.mul.Tensor(%x, %x)
      %1 = tandem.gradient([%0], [%grad], [%x])
      return %1
    }
    """
    x, tangent = torch.randn(3), torch.randn(3)
    value, gradient = tandem.compile_text(text, gradients="tangents").run([x, tangent])
    torch.testing.assert_close(value, x * 2)
    torch.testing.assert_close(gradient, 2 * x * tangent)
