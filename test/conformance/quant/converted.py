"""Models quantized by torchao, compiled frozen, and compared with what their graphs say.

The reference is not eager alone: eager adds floats, in an order of its own, and rounds at each
step. `Exact` computes the products of the same graph in f64, and everything else as eager does.
Behind a quantization a sum that rounds to the other side of a tie is one step off, in eager as in
ours; so we may be as far from the exact graph as eager is, and always by `NEAR` of it.
"""

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed
from compiled import compile_with, reported_kernels
from machine import multiplies_bytes
from torch import fx
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

import tandem

Q = torch.ops.quantized_decomposed
NEAR = 1e-3  # a norm: 60 dB
NEAR_BF16 = 1e-2  # bf16 rounds by 4e-3
# What products of bytes read their activations as. Where that is not bytes, an input of bytes is
# widened by one kernel more.
FACTOR = "u8" if multiplies_bytes() else "i16"
WIDENS = int(FACTOR != "u8")


def recipe(**options):
    """torchao's own, of all its default operators."""
    config = get_default_x86_inductor_quantization_config(**options)
    return X86InductorQuantizer().set_global(config)


def exported(model, inputs, dynamic_shapes=None):
    return torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes).module()


def quantize(model, *inputs, quantizer=None, dynamic_shapes=None, **options):
    """`model` after torchao's conversion, with ranges of `inputs`."""
    quantizer = quantizer or recipe(**options)
    with torch.no_grad():
        prepared = prepare_pt2e(exported(model.eval(), inputs, dynamic_shapes), quantizer)
        prepared(*inputs)
        return convert_pt2e(prepared)


def quantize_in_training(model, *inputs, is_dynamic=False):
    """The same by way of fake quantization, behind a few steps that move the statistics."""
    prepared = prepare_qat_pt2e(
        exported(model.train(), inputs), recipe(is_qat=True, is_dynamic=is_dynamic)
    )
    for _ in range(3):
        prepared(*inputs)
    move_exported_model_to_eval(prepared)
    with torch.no_grad():
        prepared(*inputs)
        return convert_pt2e(prepared)


PRODUCTS = ("conv", "linear", "mm.", "bmm", "matmul", "addmm")


class Exact(fx.Interpreter):
    """A graph whose products are those of its factors, rounded once."""

    def call_function(self, target, args, kwargs):
        if not any(word in str(target) for word in PRODUCTS) or "_int_mm" in str(target):
            return super().call_function(target, args, kwargs)
        wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
        result = super().call_function(target, tuple(wide), kwargs)
        return result.float()


def distance(a, b):
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def compare(ours, eager, exact, near):
    assert ours.dtype == eager.dtype and ours.shape == eager.shape
    found, allowed = distance(ours, exact), max(distance(eager, exact), near)
    assert found <= allowed, f"{found:.2e} of the exact graph, eager {distance(eager, exact):.2e}"


def compiled_once(model, *inputs, autocast=None, dynamic=None, int8="require"):
    """The result, and what the report says of the one graph."""
    with torch.no_grad(), torch.autocast("cpu", autocast, enabled=autocast is not None):
        call = compile_with(model, freeze=True, report=True, int8=int8, dynamic=dynamic)
        result = call(*inputs)
    [graph] = tandem.report()["graphs"]
    return result, graph


def check(model, *inputs, products, launches=None, library=0, autocast=None, dynamic=None):
    """Each of `products` is one of integers, no other product has a dequantized factor; the whole
    is `launches` of kernels and `library` calls."""
    with torch.no_grad():
        exact = Exact(model).run(*inputs)
        with torch.autocast("cpu", autocast, enabled=autocast is not None):
            eager = model(*inputs)
    ours, graph = compiled_once(model, *inputs, autocast=autocast, dynamic=dynamic)
    if isinstance(eager, torch.Tensor):
        ours, eager, exact = [ours], [eager], [exact]
    near = NEAR if autocast is None else NEAR_BF16
    for each in zip(ours, eager, exact, strict=True):
        compare(*each, near)
    check_steps(graph, products, launches, library)
    return graph


def check_steps(graph, products, launches=None, library=0):
    assert [reason for _, reason in graph["quantized products"]] == [""] * products
    assert graph["forward"]["library_calls"] == library, reported_kernels()
    if launches is not None:
        assert graph["forward"]["launches"] == launches, reported_kernels()


def check_bits(function, *inputs, products=0, launches=None, **options):
    """Where eager has no rounding of its own, ours are its bits."""
    with torch.no_grad():
        expected = function(*inputs)
    ours, graph = compiled_once(function, *inputs, **options)
    assert ours.dtype == expected.dtype and torch.equal(ours, expected), distance(ours, expected)
    check_steps(graph, products, launches)
    return graph
