"""`tandem.aot_compile`: calls that Dynamo is no part of."""

import pytest
import torch
from torch import nn

import tandem

OPTIONS = {"on_unsupported": "error"}
FROZEN = OPTIONS | {"freeze": True}


class Layered(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.register_buffer("seen", torch.zeros(4, width))
        self.scale = 2

    def forward(self, x, places, *, power=1, extra=None):
        for layer in self.layers:
            x = torch.relu(layer(x))
        self.seen.index_copy_(0, places, x)
        y = self.scale * x**power
        return {"y": y if extra is None else y + extra["bias"], "sum": self.seen.sum(0)}


def case(count=2):
    torch.manual_seed(count)
    model = Layered().eval()
    return model, torch.randn(count, 8), torch.arange(count)


def check(call, model, *args, **kwargs):
    """Both write the same buffer, from the same values."""
    before = model.seen.clone()
    got = call(*args, **kwargs)
    written = model.seen.clone()
    model.seen.copy_(before)
    with torch.no_grad():
        expected = model(*args, **kwargs)
    torch.testing.assert_close(written, model.seen)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("options", [OPTIONS, FROZEN])
def test_calls_equal_eager(options):
    model, x, places = case()
    bias = {"bias": torch.randn(8)}
    with torch.no_grad():
        call = tandem.aot_compile(model, (x, places), {"power": 2, "extra": bias}, options=options)
    for _ in range(3):
        model.seen.add_(1)
        check(call, model, torch.randn(2, 8), places + 1, power=2, extra={"bias": bias["bias"] + 1})


def test_dynamo_is_no_part_of_a_call(monkeypatch):
    """Nothing is compiled, and no code of the module runs."""
    model, x, places = case()
    with torch.no_grad():
        call = tandem.aot_compile(model, (x, places), options=FROZEN)
        expected = model(x, places)
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    monkeypatch.setattr(Layered, "forward", None)
    torch.testing.assert_close(call(x, places), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled


def test_what_is_written_to_weights_is_seen():
    model, x, places = case()
    for options in (OPTIONS, FROZEN):
        with torch.no_grad():
            call = tandem.aot_compile(model, (x, places), options=options)
            check(call, model, x, places)
            model.layers[1].weight.mul_(0.5)
            check(call, model, x, places)
            model.load_state_dict(case(3)[0].state_dict())
            check(call, model, x, places)
            model.layers[0].bias.data = torch.ones(8)
            check(call, model, x, places)


def test_frozen_weights_are_those_of_the_compile():
    model, x, places = case()
    with torch.no_grad():
        live = tandem.aot_compile(model, (x, places), options=OPTIONS)
        frozen = tandem.aot_compile(model, (x, places), options=FROZEN)
        before = model(x, places)
        model.layers[1].weight = nn.Parameter(torch.ones(8, 8))
        check(live, model, x, places)
        model.seen.zero_()
        torch.testing.assert_close(frozen(x, places), before)


def test_two_calls_share_a_buffer_and_weights():
    """As a prompt and a token do."""
    model, x, places = case(3)
    with torch.no_grad():
        prompt = tandem.aot_compile(model, (x, places), options=FROZEN)
        token = tandem.aot_compile(model, (x[:1], places[:1]), options=FROZEN)
    check(prompt, model, x, places)
    check(token, model, x[:1], places[:1] + 3)


def test_gradients_reach_parameters_and_arguments():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2))
    x = torch.randn(5, 4, requires_grad=True)
    call = tandem.aot_compile(model, (x,), options=OPTIONS)
    with torch.no_grad():  # the mode is that of the compile
        own = call(x)
    leaves = [x, *model.parameters()]
    got, expected = (torch.autograd.grad(y.square().sum(), leaves) for y in (own, model(x)))
    torch.testing.assert_close(got, expected)


def test_a_function_and_its_closure():
    table = torch.randn(4)

    def shifted(x, by=1.5):
        return (x + table).sin() * by

    x = torch.randn(3, 4)
    call = tandem.aot_compile(shifted, (x,), options=OPTIONS)
    torch.testing.assert_close(call(2 * x), shifted(2 * x))


@pytest.mark.parametrize(
    "args, kwargs, words",
    [
        (lambda x, p: (x[:1], p), {}, r"argument \[0\]\[0\] is Tensor torch.float32 \[1, 8\]"),
        (lambda x, p: (x.double(), p), {}, r"is Tensor torch.float64 .*compiled for Tensor"),
        (lambda x, p: (x.t().contiguous().t(), p), {}, r"of strides \(1, 2\)"),
        (lambda x, p: (x.clone().requires_grad_(), p), {}, "requires_grad=True"),
        (lambda x, p: (x, p), {"power": 3}, r"argument \[1\]\['power'\] is 3, compiled for 2"),
        (lambda x, p: (x, p), {"power": 2.0}, "is 2.0, compiled for 2"),
        (lambda x, p: (x,), {}, "compiled for arguments"),
        (lambda x, p: (x, p), {"extra": None}, "compiled for arguments"),
    ],
)
def test_other_arguments_are_refused(args, kwargs, words):
    model, x, places = case()
    with torch.no_grad():
        call = tandem.aot_compile(model, (x, places), {"power": 2}, options=OPTIONS)
    before = model.seen.clone()
    with pytest.raises(tandem.UserError, match=words):
        call(*args(x, places), **{"power": 2, **kwargs})
    assert torch.equal(model.seen, before)


@pytest.mark.parametrize(
    "compiled, called, is_alike",
    [
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (1, True, False),
        ("sum", "sum", True),
        (torch.device("cpu"), torch.device("cpu"), True),
        (torch.float64, torch.float64, True),
        (torch.float64, torch.float32, False),
    ],
)
def test_values_that_are_no_tensors(compiled, called, is_alike):
    def of_kind(x, value):
        return x + 1 if isinstance(value, str) else x * 2

    x = torch.randn(3)
    call = tandem.aot_compile(of_kind, (x, compiled), options=OPTIONS)
    if is_alike:
        assert torch.equal(call(x, called), of_kind(x, called))
    else:
        with pytest.raises(tandem.UserError, match="compiled for"):
            call(x, called)


def test_keywords_in_any_order():
    x, y = torch.randn(3), torch.randn(3)
    call = tandem.aot_compile(lambda a, b: a - b, kwargs={"b": y, "a": x}, options=OPTIONS)
    assert torch.equal(call(a=x, b=y), x - y) and torch.equal(call(b=x, a=y), y - x)
    nested = tandem.aot_compile(lambda a, b: a - b[0], (), {"b": [y], "a": x}, options=OPTIONS)
    assert torch.equal(nested(a=x, b=[y]), x - y) and torch.equal(nested(b=[y], a=x), x - y)
    with pytest.raises(tandem.UserError, match="compiled for"):
        call(a=x, b=[y])


def test_modules_with_hooks_and_compiled_ones():
    torch.manual_seed(5)
    x = torch.randn(2, 4)
    hooked = nn.Linear(4, 4).requires_grad_(False)
    hooked.register_forward_hook(lambda module, args, result: result * 3)
    for model in (hooked, torch.compile(hooked, backend=tandem.backend)):
        call = tandem.aot_compile(model, (x,), options=FROZEN)
        torch.testing.assert_close(call(x), hooked(x))
    doubled = torch.compile(lambda x: x * 2, backend=tandem.backend)
    assert torch.equal(tandem.aot_compile(doubled, (x,), options=OPTIONS)(x), x * 2)


def test_arguments_that_are_one_tensor_stay_one():
    x, y = torch.randn(3), torch.randn(3)
    call = tandem.aot_compile(lambda a, b: (a.mul(2), a - b), (x, x), options=OPTIONS)
    assert torch.equal(call(y, y)[1], torch.zeros(3))
    with pytest.raises(tandem.UserError, match="are one tensor"):
        call(x, y)


def test_other_modes_of_autocast_are_refused():
    x = torch.randn(4, 4)
    with torch.autocast("cpu"):
        call = tandem.aot_compile(lambda a, b: a @ b, (x, x), options=OPTIONS)
        assert call(x, x).dtype is torch.bfloat16
    with pytest.raises(tandem.UserError, match="autocast"):
        call(x, x)


def test_what_cannot_be_compiled_so_is_refused():
    def counts(x):
        global calls
        calls = 1
        return x + 1

    with pytest.raises(tandem.Unsupported, match=r"writes global names: \['calls'\]"):
        tandem.aot_compile(counts, (torch.ones(2),), options=OPTIONS)
    with pytest.raises(tandem.Unsupported, match="computes nothing"):
        tandem.aot_compile(lambda x: 3, (torch.ones(2),), options=OPTIONS)
    for model, args, words in (
        (torch.sin, (torch.ones(2),), "is no module, function or method"),
        (nn.ReLU(), torch.ones(2, 2), "args is a tuple, not a Tensor"),
    ):
        with pytest.raises(tandem.UserError, match=words):
            tandem.aot_compile(model, args, options=OPTIONS)
    with pytest.raises(tandem.UserError, match="kwargs is a dict, not a list"):
        tandem.aot_compile(nn.ReLU(), (torch.ones(2),), [1], options=OPTIONS)
    with pytest.raises(tandem.UserError, match="unknown option"):
        tandem.aot_compile(lambda x: x, (torch.ones(2),), options={"froze": True})


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_of_torchao_are_constants(weights):
    ao = pytest.importorskip("torchao.quantization")
    from torchao.quantization.granularity import PerGroup

    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(64, 96, bias=False), nn.ReLU(), nn.Linear(96, 32)).eval()
    model.requires_grad_(False)
    int4 = ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
    ao.quantize_(model, ao.Int8WeightOnlyConfig() if weights == "int8" else int4)
    x = torch.randn(1, 64)
    with torch.no_grad():
        tandem.reset_report()
        call = tandem.aot_compile(model, (x,), options=FROZEN)
        torch.testing.assert_close(call(x), model(x))
        frozen = tandem.report()["graphs"][0]["frozen"]
        assert frozen["sets"] == 1 and frozen["bytes"] > 0
        parts = [value for value in vars(model[0].weight).values() if torch.is_tensor(value)]
        next(part for part in parts if part.is_floating_point()).mul_(2)
        torch.testing.assert_close(call(x), model(x))


def test_parts_of_a_weight_take_no_other_name():
    """Dynamo calls a second attribute "w" "w_0"."""
    ao = pytest.importorskip("torchao.quantization")
    from tandem.wrapped import Unwrapped

    layer = nn.Linear(32, 32, bias=False).requires_grad_(False)
    ao.quantize_(layer, ao.Int8WeightOnlyConfig())
    torch._dynamo.mark_static_address(layer.weight)
    root = {"w": layer.weight, "w_0": torch.full((32,), 5.0), "w_1": torch.full((32,), 7.0)}
    graph = torch.fx.Graph()
    read = [graph.get_attr(name) for name in ("w", "w_0", "w_1")]
    graph.output(tuple(read))
    module = torch.nn.Module()
    for name, value in root.items():
        setattr(module, name, value)
    made = Unwrapped(torch.fx.GraphModule(module, graph), []).module()
    torch.testing.assert_close(made[0].dequantize(), layer.weight.dequantize())
    assert torch.equal(made[1], root["w_0"]) and torch.equal(made[2], root["w_1"])


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize(
    "value, words",
    [
        (torch.ones(4, 4), r"expected f32\[8, 8\], got f32\[4, 4\]"),
        (torch.ones(8, 8, dtype=torch.float64), r"expected f32\[8, 8\], got f64\[8, 8\]"),
        (torch.arange(64.0).view(8, 8).t(), None),
    ],
)
def test_other_memory_of_a_weight(value, words, freeze):
    """Nobody guards it: of another kind it is refused, other strides are followed."""
    model, x, places = case()
    with torch.no_grad():
        call = tandem.aot_compile(model, (x, places), options=OPTIONS | {"freeze": freeze})
        call(x, places)
        model.layers[2].weight.data = value
        if words is None:
            check(call, model, x, places)
        else:
            with pytest.raises(tandem.UserError, match=words):
                call(x, places)


def test_what_python_writes_is_written():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.last = 0, None

        def forward(self, x):
            self.calls += 1
            self.last = x * 2
            return x + 1

    model, x = Counting(), torch.randn(3)
    call = tandem.aot_compile(model, (x,), options=OPTIONS)
    assert model.calls == 0  # compiling runs nothing
    assert torch.equal(call(x + 1), x + 2)
    assert torch.equal(model.last, (x + 1) * 2)
