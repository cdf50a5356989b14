"""Models whose weights torchao's `quantize_` made tensors of classes of its own: through
torch.compile as they are, equal to eager, frozen or not; what they hold may change."""

import pytest
import tandem
import torch
import torchao.quantization as ao
from compiled import compile_with
from torch import nn
from torchao.quantization.granularity import PerGroup

CONFIGS = {
    "int8 weights": ao.Int8WeightOnlyConfig(),
    "int8 weights and activations": ao.Int8DynamicActivationInt8WeightConfig(),
    "int4 weights": ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "int4 weights, int8 activations": ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32)
    ),
}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
# Sums of floats; of bf16, one rounding of the result.
NEAR = {torch.float32: 2e-6, torch.bfloat16: 4e-3}


def quantized(config, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))
    model = layers.eval().to(dtype)
    ao.quantize_(model, config)
    assert type(model[0].weight.data) is not torch.Tensor
    return model


def check(compiled, model, x):
    expected, result = model(x), compiled(x)
    assert result.dtype == expected.dtype
    off = (result.double() - expected.double()).norm() / expected.double().norm()
    assert off <= NEAR[x.dtype]


@configs
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("freeze", [False, True])
def test_equal_to_eager(config, dtype, freeze):
    model = quantized(config, dtype)
    with torch.no_grad():
        compiled = compile_with(model, freeze=freeze)
        for sizes in [(5, 128), (2, 3, 128)]:
            check(compiled, model, torch.randn(sizes, dtype=dtype))
    graphs = tandem.report()["graphs"]
    assert not any("eager" in graph or graph["fallbacks"] for graph in graphs)
    assert bool(graphs[0]["frozen"]) == freeze


REASONS = {
    "int8 weights and activations": "",
    "int4 weights": "its left factor is not dequantized",
    "int4 weights, int8 activations": "its left factor has a scale for each block",
}


@pytest.mark.parametrize(("name", "reason"), REASONS.items(), ids=REASONS.keys())
def test_products_in_floats_say_why(name, reason):
    model = quantized(CONFIGS[name])
    with torch.no_grad():
        compile_with(model, freeze=True)(torch.randn(5, 128))
    [graph] = tandem.report()["graphs"]
    assert [each for _, each in graph["quantized products"]] == [reason] * 2


@configs
def test_a_batch_that_varies(config):
    model = quantized(config)
    with torch.no_grad():
        compiled = compile_with(model, dynamic=True, freeze=True)
        for rows in (2, 5, 9):
            check(compiled, model, torch.randn(rows, 128))
    assert len(tandem.report()["graphs"]) == 1


@pytest.mark.parametrize("freeze", [False, True])
def test_what_a_weight_holds_may_change(freeze):
    model, other = (quantized(ao.Int8WeightOnlyConfig(), seed=seed) for seed in (0, 1))
    x = torch.randn(5, 128)
    with torch.no_grad():
        compiled = compile_with(model, freeze=freeze)
        check(compiled, model, x)
        model[0].weight.qdata.copy_(other[0].weight.qdata)
        check(compiled, model, x)
        model[2].weight.scale.mul_(3)
        check(compiled, model, x)
        model[0].weight = other[0].weight
        check(compiled, model, x)


def test_such_a_result_is_refused():
    """By name; by default the graph runs in torch."""
    model = quantized(ao.Int8WeightOnlyConfig())

    def function(x):
        return model(x), model[0].weight[:8]

    x = torch.randn(5, 128)
    message = "an input is a Int8Tensor, which holds others"
    with torch.no_grad():
        with pytest.raises(Exception, match=message):
            compile_with(function)(x)
        with pytest.warns(UserWarning, match="a whole graph runs in torch"):
            y, weight = compile_with(function, on_unsupported="eager")(x)
        assert torch.equal(y, model(x))
        assert torch.equal(weight.dequantize(), model[0].weight[:8].dequantize())


def test_a_part_that_comes_later_is_asked_for():
    """torchao keeps what a weight may have as an attribute that is None."""
    from tandem.layouts import Layout, parts_of

    weight = quantized(CONFIGS["int8 weights"])[0].weight.data
    optional = [name for name, held in vars(weight).items() if held is None]
    layout = Layout(weight)
    assert [id(part) for part in layout.parts_in(weight)] == [id(p) for p in parts_of(weight)]
    held = len(parts_of(weight))
    for name in optional:
        setattr(weight, name, torch.ones(1))
        assert len(layout.parts_in(weight)) == len(parts_of(weight))
        setattr(weight, name, None)
    assert optional and len(layout.parts_in(weight)) == held
