"""What users hand over by mistake or by design: the right result or a clear error, and the next
good call is right."""

import dataclasses
import warnings

import pytest
import torch

import tandem
from compiled import compile_with

pytestmark = pytest.mark.filterwarnings("ignore")


def double(x):
    return x * 2 + 1


class Wrapper(torch.Tensor):
    """Holds another tensor."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def open_(value):
            return value.inner if isinstance(value, Wrapper) else value

        out = function(*map(open_, args), **{k: open_(v) for k, v in (kwargs or {}).items()})
        return Wrapper(out) if isinstance(out, torch.Tensor) else out


class Named(torch.Tensor):
    pass


def made_in_inference_mode():
    with torch.inference_mode():
        return torch.ones(3)


COMPLEX = torch.full((3,), 1 + 2j)
# What Tandem compiles itself.
FITTING = {
    "unaligned": lambda: torch.frombuffer(bytearray(range(13)), dtype=torch.float32, offset=1),
    "unaligned f64": lambda: torch.frombuffer(bytearray(27), dtype=torch.float64, offset=3),
    "strided": lambda: torch.arange(12.0)[::3],
    "transposed": lambda: torch.randn(3, 4).t(),
    "empty": lambda: torch.ones(0, 4),
    "of one element": lambda: torch.tensor(2.0),
    "expanded": lambda: torch.ones(1).expand(3),
    "overlapping": lambda: torch.arange(4.0).as_strided((3, 2), (1, 1)),
    "no leaf": lambda: torch.ones(3, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "made in inference mode": made_in_inference_mode,
    "subclass": lambda: torch.ones(3).as_subclass(Named),
    "wrapper": lambda: Wrapper(torch.ones(3)),
    "bool": lambda: torch.tensor([True, False]),
    "complex": lambda: COMPLEX.clone(),
}
# What it refuses, and torch computes.
REFUSED = {
    "meta": (lambda: torch.ones(3, device="meta"), "meta"),
    "conjugated": (lambda: COMPLEX.conj(), "conjugates"),
    "half of a conjugated": (lambda: COMPLEX.conj().imag, "a view that negates"),
    "negated": (lambda: torch._neg_view(torch.ones(3)), "a view that negates"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "layout torch.jagged",
    ),
}
# What torch does not compute either. (A nested tensor of the strided kind is not here: torch's own
# guards abort the process.)
IMPOSSIBLE = {
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "uint16": lambda: torch.ones(3, dtype=torch.uint16),
}


def plain(value):
    return value.inner if isinstance(value, Wrapper) else value


def check_equal(actual, expected):
    assert type(actual) is type(expected) and actual.dtype == expected.dtype
    assert actual.requires_grad == expected.requires_grad
    if expected.device.type == "meta":
        assert actual.shape == expected.shape
    elif expected.is_nested:
        torch.testing.assert_close(actual.values(), expected.values())
    else:
        torch.testing.assert_close(plain(actual), plain(expected))


def check_good_call(compiled):
    assert torch.equal(compiled(torch.arange(3.0)), torch.tensor([1.0, 3.0, 5.0]))


@pytest.mark.parametrize("name", FITTING)
def test_inputs_that_fit(name):
    for is_first in (True, False):
        compiled = compile_with(double)
        if not is_first:
            check_good_call(compiled)
        value = FITTING[name]()
        check_equal(compiled(value), double(value))
        check_good_call(compiled)
    assert all("eager" not in graph for graph in tandem.report()["graphs"])


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_that_are_refused(name):
    make, message = REFUSED[name]
    for is_first in (True, False):
        compiled = compile_with(double)
        if not is_first:
            check_good_call(compiled)
        with pytest.raises(Exception, match=message):
            compiled(make())
        check_good_call(compiled)
        compiled = compile_with(double, on_unsupported="eager")
        if not is_first:
            check_good_call(compiled)
        value = make()
        check_equal(compiled(value), double(value))
        check_good_call(compiled)


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("on_unsupported", ["error", "eager"])
def test_inputs_that_torch_refuses_too(name, on_unsupported):
    with pytest.raises((RuntimeError, NotImplementedError)):
        double(IMPOSSIBLE[name]())
    compiled = compile_with(double, on_unsupported=on_unsupported)
    for _ in range(2):
        with pytest.raises((RuntimeError, NotImplementedError)):
            compiled(IMPOSSIBLE[name]())
        check_good_call(compiled)


def test_a_tensor_whose_storage_is_gone():
    value = torch.ones(3)
    value.untyped_storage().resize_(0)  # eager reads through a null pointer
    compiled = compile_with(double)
    check_good_call(compiled)
    with pytest.raises(tandem.UserError, match="a tensor without memory"):
        compiled(value)
    check_good_call(compiled)


@pytest.mark.parametrize(
    "wrong",
    [
        torch.ones(4, 3, dtype=torch.float64),
        torch.ones(4, 3, dtype=torch.int64),
        torch.ones(4, 5),
        torch.ones(4, 3, device="meta"),
        "text",
        None,
        {"a": 1},
        [1.0, 2.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("on_unsupported", ["error", "eager"])
def test_what_a_layer_does_not_take(wrong, on_unsupported):
    layer = torch.nn.Linear(3, 2)
    with pytest.raises((RuntimeError, TypeError)) as expected:
        layer(wrong)
    compiled = compile_with(layer, on_unsupported=on_unsupported)
    good = torch.ones(4, 3)
    compiled(good)
    with pytest.raises((RuntimeError, TypeError)) as caught:
        compiled(wrong)
    if not isinstance(wrong, torch.Tensor):
        assert caught.type is expected.type
    torch.testing.assert_close(compiled(good), layer(good))


def test_a_wrong_gradient_loses_nothing():
    """What forward saved is still there after a tangent that cannot be read."""
    compiled = compile_with(lambda x: (x * x.exp()).sin())
    value = torch.ones(3, 3, requires_grad=True)
    result = compiled(value)
    with pytest.raises((RuntimeError, ValueError), match="sparse"):
        torch.autograd.grad(result, value, torch.eye(3).to_sparse())
    (actual,) = torch.autograd.grad(result, value, torch.ones(3, 3))
    (expected,) = torch.autograd.grad((value * value.exp()).sin().sum(), value)
    torch.testing.assert_close(actual, expected)


def test_a_model_on_another_device():
    layer = torch.nn.Linear(3, 2, device="meta")
    with pytest.raises(Exception, match="device meta: Tandem compiles for the CPU"):
        compile_with(layer)(torch.ones(4, 3, device="meta"))
    with pytest.raises(RuntimeError, match="device"):
        compile_with(layer)(torch.ones(4, 3))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        out = compile_with(layer, on_unsupported="eager")(torch.ones(4, 3, device="meta"))
    assert out.device.type == "meta" and any("meta" in str(w.message) for w in warned)


@dataclasses.dataclass
class Pair:
    a: object


OTHERS = [
    ("text", lambda y, o: y + len(o)),
    (None, lambda y, o: y - 1 if o is None else y),
    ({"a": 2, "b": torch.ones(3)}, lambda y, o: y * o["a"] + o["b"]),
    (Pair(3), lambda y, o: y * o.a),
    (Pair(torch.ones(3)), lambda y, o: y * o.a),
    ([torch.ones(3), 1], lambda y, o: y + o[0] * o[1]),
    (3, lambda y, o: y * o),
    (2.5, lambda y, o: y * o),
    (True, lambda y, o: y * o),
    (float("nan"), lambda y, o: y * o),
    (float("-inf"), lambda y, o: y * o),
    (-(2**63), lambda y, o: y + o),
]


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=[str(o)[:20] for o, _ in OTHERS])
def test_arguments_that_are_no_tensors(number):
    other, use = OTHERS[number]

    def function(x, value):
        return {"y": use(x * 2, value), "given": value}

    x = torch.arange(3.0)
    actual, expected = compile_with(function)(x, other), function(x, other)
    torch.testing.assert_close(actual["y"], expected["y"], equal_nan=True)
    assert str(actual["given"]) == str(expected["given"])


def test_written_inputs_of_odd_memory():
    def function(x):
        x.mul_(2)
        return x + 1

    for make in (
        lambda: torch.frombuffer(bytearray(range(13)), dtype=torch.float32, offset=1),
        lambda: torch.arange(12.0)[::3],
        lambda: torch.randn(3, 4).t(),
        lambda: torch.ones(0, 4),
    ):
        given = make()
        value, expected = given.clone(), given.clone()
        compiled = compile_with(function)
        torch.testing.assert_close(compiled(given), function(expected))
        torch.testing.assert_close(given, expected)
        assert given._version > 0
        torch.testing.assert_close(compiled(value), expected + 1)
