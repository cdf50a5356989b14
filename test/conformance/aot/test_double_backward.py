"""Gradients of gradients, which upstream always refuses: beside eager, operator by operator and in
the programs that people write for them."""

import gc
import warnings
import weakref

import pytest
import torch
import torch.utils.checkpoint
from torch._higher_order_ops import scan

import second_gradients
import tandem
from beside_eager import Program, Tensors, same_values

# Of a fixed part of PyTorch's entries; second_gradients.py sweeps over all of them.
PART = 4


@pytest.fixture
def compiled():
    return Program("works").compile


def pairs(ours, eager):
    for a, b in zip(ours, eager, strict=True):
        same_values(a, b, "gradient")


@pytest.fixture(scope="module")
def table():
    return second_gradients.entries()


def test_operators(table):
    found = {}
    for name in [name for name in table if second_gradients.number_of(name) % PART == 0]:
        found[name] = second_gradients.verdict(table[name])
    wrong = [f"{name}: {verdict}" for name, verdict in found.items() if not is_expected(verdict)]
    assert not wrong
    assert list(found.values()).count("right") > 60


def is_expected(verdict):
    """Operators that Tandem lacks have no first gradient either."""
    return verdict in ("right", "none", "no first")


# The first gradient of each reads what forward saved beside its result.
NORMS = ["nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.batch_norm",
         "nn.functional.instance_norm", "nn.functional.rms_norm", "nn.functional.logsigmoid",
         "native_layer_norm", "native_batch_norm"]  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_norms(table, name):
    assert second_gradients.verdict(table[name]) == "right"


def test_gradient_penalty(compiled):
    """A step of WGAN-GP: the critic's weights get gradients of a gradient's norm."""

    def critic():
        torch.manual_seed(1)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, stride=2), torch.nn.LeakyReLU(0.2),
            torch.nn.Conv2d(4, 8, 3, stride=2), torch.nn.LeakyReLU(0.2),
            torch.nn.Flatten(), torch.nn.Linear(32, 1),
        ).double()  # fmt: skip

    def step(wrap):
        module = critic()
        call = wrap(module)
        real, fake, mix = torch.randn(3, 5, 1, 12, 12, dtype=torch.float64).unbind(0)
        mixed = (real * mix + fake * (1 - mix)).requires_grad_()
        score = call(mixed)
        (slope,) = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)
        penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        (call(fake).mean() - call(real).mean() + 10 * penalty).backward()
        return [parameter.grad for parameter in module.parameters()]

    pairs(step(compiled), step(lambda module: module))


def scalar(x, w):
    return (x @ w).tanh().square().sum() + (x.exp() * w.sum(1)).sum()


@pytest.mark.parametrize("dynamic", [False, True])
def test_product_with_the_hessian(compiled, dynamic):
    def product(call):
        t = Tensors()
        x, w = t.leaf(3, 4), t.leaf(4, 4)
        gradients = torch.autograd.grad(call(x, w), (x, w), create_graph=True)
        return torch.autograd.grad(gradients, (x, w), (torch.ones(3, 4), torch.ones(4, 4)))

    pairs(product(compiled(scalar, dynamic=dynamic)), product(scalar))


def product_by_grad(x):
    return torch.func.grad(lambda y: torch.func.grad(energy)(y).square().sum())(x)


def forward_over_reverse(x):
    return torch.func.jvp(torch.func.grad(energy), (x,), (torch.ones_like(x),))[1]


def whole_hessian(x):
    return torch.func.hessian(energy)(x)


def energy(x):
    return (x.sin() * x).sum() + x.prod()


@pytest.mark.parametrize("function", [product_by_grad, forward_over_reverse, whole_hessian])
def test_transforms_of_functorch(compiled, function):
    x = Tensors().value(4, dtype=torch.float64)
    same_values(compiled(function)(x), function(x), "derivative")


def test_checkpoint_around_the_call(compiled):
    def second(call):
        x = Tensors().leaf(4)
        value = torch.utils.checkpoint.checkpoint(call, x, use_reentrant=False)
        (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.sum(), x)

    def function(x):
        return (x.sin() * x).exp()

    pairs(second(compiled(function)), second(function))


def test_a_freed_input_under_hooks_is_refused(compiled):
    x = Tensors().leaf(3)
    middle = x * 2
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        value = compiled(lambda y: y.sin())(middle)
    del middle
    with pytest.raises(RuntimeError, match="an input that was freed"):
        torch.autograd.grad(value.sum(), x, create_graph=True)


def test_fourth_order(compiled):
    def orders(call):
        x = Tensors().leaf(5, dtype=torch.float64)
        value, found = call(x).sum(), []
        for _ in range(4):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            found.append(gradient)
            value = (gradient * torch.arange(1, 6)).sum()
        return found

    def function(x):
        return x.sin() * x.exp()

    pairs(orders(compiled(function)), orders(function))


def test_gradgradcheck(compiled):
    call = compiled(lambda x, w: torch.nn.functional.layer_norm(x @ w, (3,)).sigmoid())
    t = Tensors()
    inputs = t.leaf(2, 4, dtype=torch.float64), t.leaf(4, 3, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_third_derivative_of_layer_norm(compiled):
    """Eager's own is wrong: its second one takes mean and deviation for constants."""

    def by_hand(x):
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def third(call):
        x = Tensors().leaf(3, 4, dtype=torch.float64)
        value = (call(x) * torch.linspace(1, 2, 4)).sum()
        for _ in range(3):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            value = (gradient.sin() * torch.linspace(2, 3, 4)).sum()
        return [gradient]

    ours = third(compiled(lambda x: torch.nn.functional.layer_norm(x, (4,))))
    pairs(ours, third(by_hand))


def test_the_same_mask(compiled):
    """f = (m x) x, with the mask m of the first run: f' = 2 m x, f'' = 2 m."""
    call = compiled(lambda x: torch.nn.functional.dropout(x, 0.5) * x)
    x = Tensors().leaf(32)
    value = call(x)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    mask = value.detach() / x.detach().square()
    torch.testing.assert_close(first, 2 * mask * x)
    torch.testing.assert_close(second, 2 * mask)


class SavesItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result * 3


def test_custom_function_that_saves_its_result(compiled):
    def second(call):
        x = Tensors().leaf(3)
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), x)

    pairs(second(compiled(SavesItsResult.apply)), second(SavesItsResult.apply))


def test_batch_norm_with_running_statistics(compiled):
    def second(wrap):
        torch.manual_seed(0)
        module = torch.nn.BatchNorm1d(4).double()
        x = Tensors().leaf(6, 4, dtype=torch.float64)
        value = (wrap(module)(x) * torch.arange(24).view(6, 4)).sum()
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return first, *torch.autograd.grad(first.square().sum(), (x, module.weight))

    pairs(second(compiled), second(lambda module: module))


def test_retained_and_accumulated(compiled):
    """Second gradients through two calls of one compiled function, added where they meet."""

    def run(call):
        x = Tensors().leaf(4)
        value = call(call(x)).sum()
        value.backward(create_graph=True)
        x.grad.square().sum().backward()
        return [x.grad]

    def function(x):
        return x.sin() * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: a cycle of x and its gradient
        pairs(run(compiled(function)), run(function))


def test_linear_functions_have_none(compiled):
    x = Tensors().leaf(3)
    (first,) = torch.autograd.grad(compiled(lambda x: x * 2)(x).sum(), x, create_graph=True)
    assert torch.equal(first, torch.full((3,), 2.0))


def test_an_input_that_changed_is_noticed(compiled):
    t = Tensors()
    x, buffer = t.leaf(3), t.value(3)
    value = compiled(lambda x, b: (x * b).sin())(x, buffer)
    buffer.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value.sum(), x, create_graph=True)


def test_a_written_input_is_refused(compiled):
    def function(x, y):
        y.mul_(x)
        return y.sin()

    t = Tensors()
    x, y = t.leaf(3), t.value(3)
    value = compiled(function)(x, y)
    with pytest.raises(RuntimeError, match="as it was before the graph wrote to it"):
        torch.autograd.grad(value.sum(), x, create_graph=True)


def with_an_operator_of_torch(x, w):
    return (torch.linalg.matrix_exp(x) @ w).sin() * w


def with_a_branch(x, w):
    def yes(x, w):
        return (x @ w).sin()

    def no(x, w):
        return (x * w).cos()

    return torch.cond(x.sum() > 100, yes, no, (x, w)) * x


def without_the_branch(x, w):
    """Eager's cond is not recorded a second time: its second gradient lacks what the branch has."""
    return (x * w).cos() * x


def with_a_scan(x, w):
    def step(carry, row):
        carry = torch.tanh(carry + row @ w)
        return carry, carry * row

    last, rows = scan(step, x[0] * 2, x)
    return rows * last


def without_the_scan(x, w):
    carry, rows = x[0] * 2, []
    for row in x:
        carry = torch.tanh(carry + row @ w)
        rows.append(carry * row)
    return torch.stack(rows) * carry


def orders(call, count):
    """Gradients of each order up to `count`, and what the next one starts from."""
    t = Tensors()
    leaves = t.leaf(3, 3, dtype=torch.float64), t.leaf(3, 3, dtype=torch.float64)
    weights = torch.linspace(1, 2, 9, dtype=torch.float64).view(3, 3)
    value, found = (call(*leaves) * weights).sum(), []
    for _ in range(count):
        gradients = torch.autograd.grad(value, leaves, create_graph=True)
        found += gradients
        value = sum((each.sin() * weights).sum() for each in gradients)
    return found, value, leaves


@pytest.mark.parametrize(
    "function, reference, count",
    [(with_a_branch, without_the_branch, 3), (with_a_scan, without_the_scan, 3)],
)
def test_loops_and_branches(function, reference, count):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=tandem.backend, fullgraph=True)
    pairs(orders(compiled, count)[0], orders(reference, count)[0])


@pytest.mark.filterwarnings("ignore:tandem")
def test_nodes_that_python_runs():
    """Their gradients end with the second."""

    def twice(call):
        t = Tensors()
        leaves = t.leaf(3, 3, dtype=torch.float64), t.leaf(3, 3, dtype=torch.float64)
        weights = torch.linspace(1, 2, 9, dtype=torch.float64).view(3, 3)
        first = torch.autograd.grad((call(*leaves) * weights).sum(), leaves, create_graph=True)
        value = sum((each.sin() * weights).sum() for each in first)
        return [*first, *torch.autograd.grad(value, leaves, retain_graph=True)], value, leaves

    torch._dynamo.reset()
    function = with_an_operator_of_torch
    ours, value, leaves = twice(torch.compile(function, backend=tandem.backend, fullgraph=True))
    pairs(ours, twice(function)[0])
    with pytest.raises(tandem.Unsupported, match="no gradients beyond the second"):
        torch.autograd.grad(value, leaves, create_graph=True)


def test_plain_backward_keeps_no_inputs(compiled):
    x = Tensors().leaf(3)
    middle = x * 2
    value = compiled(lambda y: y.exp())(middle).sum()
    watched = weakref.ref(middle)
    del middle
    value.backward()
    gc.collect()
    assert watched() is None
