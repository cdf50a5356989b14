"""torch.compile of optimizer steps and of gradient clipping: what eager computes, without compiling
again from the second step on, and in a few launches however many parameters there are."""

import copy
import warnings

import pytest
import tandem
import torch
from tandem.dynamo import backend
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

warnings.filterwarnings("ignore", category=UserWarning)

SHAPES = [(7, 5), (5,), (33,), (2, 3, 4), (), (64, 64), (0, 3)]
ERROR = {"on_unsupported": "error"}

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
]
IDS = [name + "".join(f"-{key}" for key in given if key != "lr") for name, given in OPTIMIZERS]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    tandem.reset_report()
    yield


def compiled(function):
    return torch.compile(function, backend=backend, options=ERROR)


def graphs():
    return tandem.report()["graphs"]


class Pair:
    """The same parameters twice: an optimizer in eager, one whose step is compiled."""

    def __init__(self, name, given, shapes=SHAPES, foreach=False, step=None):
        generator = torch.Generator().manual_seed(7)
        self.generator = generator
        # The centered variance is a small difference of squares.
        self.tolerance = 1e-5 if "centered" in given else 1e-6
        values = [torch.randn(shape, generator=generator) for shape in shapes]
        self.eager = [torch.nn.Parameter(value.clone()) for value in values]
        self.ours = [torch.nn.Parameter(value.clone()) for value in values]
        kind = getattr(torch.optim, name)
        self.eager_optimizer = kind(self.eager, foreach=foreach, **copy.deepcopy(given))
        self.optimizer = kind(self.ours, foreach=foreach, **copy.deepcopy(given))
        self.step = step or compiled(self.optimizer.step)

    def give_grads(self, without=()):
        for i, (a, b) in enumerate(zip(self.eager, self.ours, strict=True)):
            grad = torch.randn(a.shape, generator=self.generator)
            a.grad = None if i in without else grad.clone()
            b.grad = None if i in without else grad.clone()

    def run(self, steps=1, without=(), check_states=True):
        for _ in range(steps):
            self.give_grads(without)
            self.eager_optimizer.step()
            self.step()
            for a, b in zip(self.eager, self.ours, strict=True):
                torch.testing.assert_close(b, a, rtol=2e-6, atol=self.tolerance)
            if check_states:
                self.check_states()

    def check_states(self):
        states = self.eager_optimizer.state_dict()["state"]
        for number, state in self.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                expected = states[number][key]
                torch.testing.assert_close(value, expected, rtol=2e-6, atol=self.tolerance)


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize(("name", "given"), OPTIMIZERS, ids=IDS)
def test_steps(name, given, foreach):
    pair = Pair(name, given, foreach=foreach)
    pair.run(2)
    made = len(graphs())
    pair.run(4)
    assert len(graphs()) == made
    assert made <= 2


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_sgd_has_eagers_bits(foreach):
    # Eager fuses the product by alpha with the sum in some loops: powers of two round equally.
    pair = Pair("SGD", {"lr": 0.25, "momentum": 0.9, "weight_decay": 0.125}, foreach=foreach)
    pair.run(4)
    for a, b in zip(pair.eager, pair.ours, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_changing_rate_compiles_once_more(name, foreach):
    pair = Pair(name, {"lr": 0.02}, shapes=[(5, 3), (4,)], foreach=foreach)
    schedulers = [
        CosineAnnealingLR(optimizer, 10) for optimizer in (pair.eager_optimizer, pair.optimizer)
    ]
    for step in range(6):
        pair.run()
        for scheduler in schedulers:
            scheduler.step()
        if step == 2:
            made = len(graphs())
    assert len(graphs()) == made


@pytest.mark.parametrize(("name", "foreach"), [("SGD", False), ("SGD", True), ("AdamW", False)])
def test_tensor_rate(name, foreach):
    pair = Pair(name, {"lr": torch.tensor(0.1)}, shapes=[(5, 3), (4,)], foreach=foreach)
    schedulers = [StepLR(optimizer, 1, 0.5) for optimizer in (pair.eager_optimizer, pair.optimizer)]
    for step in range(5):
        pair.run()
        for scheduler in schedulers:
            scheduler.step()
        if step == 1:
            made = len(graphs())
    assert len(graphs()) == made


def test_loaded_state():
    pair = Pair("AdamW", {"lr": 0.01}, shapes=[(5, 3), (4,)])
    pair.run(2)
    saved = copy.deepcopy(pair.eager_optimizer.state_dict())
    pair.run(2)
    pair.eager_optimizer.load_state_dict(copy.deepcopy(saved))
    pair.optimizer.load_state_dict(copy.deepcopy(saved))
    pair.run(3)


def test_replaced_values():
    pair = Pair("Adam", {"lr": 0.01}, shapes=[(5, 3), (4,)], foreach=True)
    pair.run(2)
    for a, b in zip(pair.eager, pair.ours, strict=True):
        value = torch.randn(a.shape)
        a.data, b.data = value.clone(), value.clone()
    pair.run(2)


def test_replaced_parameters():
    pair = Pair("SGD", {"lr": 0.1, "momentum": 0.9}, shapes=[(5, 3), (4,)])
    pair.run(3)
    for side, optimizer in ((0, pair.eager_optimizer), (1, pair.optimizer)):
        new = torch.nn.Parameter(torch.arange(4.0))
        optimizer.param_groups[0]["params"][1] = new
        (pair.eager if side == 0 else pair.ours)[1] = new
    pair.run(3, check_states=False)  # that of the old parameter is in the way


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_grads_that_are_none(foreach):
    pair = Pair("AdamW", {"lr": 0.01}, shapes=[(5, 3), (4,), (6,)], foreach=foreach)
    pair.run(2, without=[1])
    pair.run(2)
    pair.run(1, without=[0, 2])


def test_parameters_that_share_memory():
    """Not what the program was compiled for: the graph runs in torch, and is right."""
    storage = torch.randn(10)
    pair = Pair("SGD", {"lr": 0.1}, shapes=[(5,), (5,)])
    pair.run(2)
    other = storage.clone()
    for side, base in ((pair.eager, storage), (pair.ours, other)):
        side[0].data, side[1].data = base[:5], base[3:8]
    pair.run(2)
    assert torch.equal(storage, other)


def test_a_write_is_seen_by_autograd():
    pair = Pair("SGD", {"lr": 0.1}, shapes=[(5,)])
    before = pair.ours[0]._version
    saved = (pair.ours[0] * pair.ours[0]).sum()
    pair.run()
    assert pair.ours[0]._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_sixteen_bit_parameters():
    generator = torch.Generator().manual_seed(1)
    value = torch.randn(40, generator=generator).bfloat16()
    sides = [torch.nn.Parameter(value.clone()) for _ in range(2)]
    optimizers = [torch.optim.SGD([side], lr=0.25, momentum=0.5, foreach=True) for side in sides]
    steps = [optimizers[0].step, compiled(optimizers[1].step)]
    for _ in range(3):
        grad = torch.randn(40, generator=generator).bfloat16()
        for side, step in zip(sides, steps, strict=True):
            side.grad = grad.clone()
            step()
    assert torch.equal(sides[0], sides[1])


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_few_launches(foreach):
    shapes = [(16, 16), (16,), (8, 16), (8,)] * 10
    pair = Pair("AdamW", {"lr": 0.01}, shapes=shapes, foreach=foreach)
    pair.run(3)
    counts = graphs()[-1]["forward"]
    assert counts["launches"] <= 4
    assert counts["kernel_calls"] >= len(shapes)


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
@pytest.mark.parametrize("kind", [2.0, 1.0, float("inf")])
def test_clip_grad_norm(kind, foreach):
    def clip(parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, 0.5, norm_type=kind, foreach=foreach)

    pair = Pair("SGD", {"lr": 0.1}, shapes=[(5, 3), (4,), ()])
    step = compiled(clip)
    for _ in range(3):
        pair.give_grads()
        expected = clip(pair.eager)
        torch.testing.assert_close(step(pair.ours), expected, rtol=1e-6, atol=1e-6)
        for a, b in zip(pair.eager, pair.ours, strict=True):
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("foreach", [False, True], ids=["loop", "foreach"])
def test_clip_grad_value(foreach):
    def clip(parameters):
        torch.nn.utils.clip_grad_value_(parameters, 0.5, foreach=foreach)

    pair = Pair("SGD", {"lr": 0.1}, shapes=[(5, 3), (4,), ()])
    step = compiled(clip)
    for _ in range(2):
        pair.give_grads()
        clip(pair.eager)
        step(pair.ours)
        for a, b in zip(pair.eager, pair.ours, strict=True):
            assert torch.equal(a.grad, b.grad)


def test_lists_that_share_elements():
    """In eager the elements are written one after the other."""

    def twice(x, y):
        torch._foreach_add_([x, x, y], [y, x, x], alpha=2)
        torch._foreach_mul_([x[:2], y], [0.5, 3.0])
        return torch._foreach_maximum([x, y], 0.25)

    x, y = torch.randn(4), torch.randn(4)
    ours = [x.clone(), y.clone()]
    expected = twice(x, y)
    actual = compiled(twice)(*ours)
    for a, b in zip([*actual, *ours], [*expected, x, y], strict=True):
        assert torch.equal(a, b)
