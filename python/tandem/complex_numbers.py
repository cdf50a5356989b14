"""Complex numbers inside of a graph, as pairs of real tensors: the compiler has none.

The capture hands every call over that takes a `Pair` or makes one (`handles`), and records what
`call` does with the two parts. Gradients follow from that. Complex inputs and results of a graph
are refused, as is a write to what a pair is made of: parts are no views of each other.
"""

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tandem._tandem import Unsupported

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_LONGEST_FACTOR = 1024  # its matrix has 8 MiB
_SHORT = 32  # up to here one product is as fast as two and a transposition


class Pair:
    """`re + i im`."""

    def __init__(self, re, im):
        self.re = re
        self.im = im

    def both(self, function):
        """Of a function that is linear over the reals, or moves elements."""
        return Pair(function(self.re), function(self.im))


class Calls:
    """The calls of one trace, and the tensors that its pairs are made of or shown as."""

    def __init__(self, module):
        self._is_needed = makes_pairs(module)
        self._parts = []  # (tensor, its version)

    def takes(self, name, args, kwargs):
        """Whether the call is for `run`."""
        return self._is_needed and handles(name, args, kwargs)

    def run(self, name, args, kwargs):
        value = call(name, args, kwargs)
        for each in pytree.tree_leaves(value, is_leaf=_is_pair):
            parts = (each.re, each.im) if isinstance(each, Pair) else (each,)
            self._parts += [(part, part._version) for part in parts if _is_tensor(part)]
        return value

    def check(self, results):
        """At the end of the trace."""
        if any(part._version != version for part, version in self._parts):
            raise Unsupported("a write to a part of complex numbers is not supported")
        if any(_is_pair(value) for value in pytree.tree_leaves(results, is_leaf=_is_pair)):
            raise Unsupported("a result of the graph is complex: Tandem gives real ones")


def _is_pair(value):
    return isinstance(value, Pair)


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


def makes_pairs(module):
    """Whether a graph of Dynamo's module has a call that makes complex numbers of real ones."""
    graphs = [each.graph for each in module.modules() if isinstance(each, fx.GraphModule)]
    return any(_may_make(node) for graph in graphs for node in graph.nodes)


def _may_make(node):
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if name in ("to", "type"):
        values = (*node.args, *node.kwargs.values())
        return any(value in _REAL for value in values if _is_dtype(value))
    return name in _TRANSFORMS or name in ("complex", "polar", "view_as_complex")


def handles(name, args, kwargs):
    """Whether the call is one over complex numbers."""
    if name == "getitem" and not isinstance(args[0], Pair):
        return False  # of a list
    values = pytree.tree_leaves((args, kwargs), is_leaf=_is_pair)
    if any(_is_pair(value) for value in values):
        return True
    if any(isinstance(value, torch.Tensor) and value.is_complex() for value in values):
        return False  # an input of the graph: refused by its dtype
    if name in ("to", "type") and any(value in _REAL for value in values if _is_dtype(value)):
        return True
    return name in _TRANSFORMS or name in ("complex", "polar", "view_as_complex")


def _is_dtype(value):
    return isinstance(value, torch.dtype)


def call(name, args, kwargs):
    """The result of a call that `handles` names. Raises Unsupported for what pairs cannot do."""
    if name in _TRANSFORMS:
        return _TRANSFORMS[name](*args, **kwargs)
    function = _FUNCTIONS.get(name.strip("_") if name.endswith("__") else name)
    if function is None:
        raise Unsupported(f"[{name}] of complex numbers is not supported")
    return function(*args, **kwargs)


# --- making pairs and taking them apart


def _to(value, *args, **kwargs):
    dtypes = [each for each in (*args, *kwargs.values()) if _is_dtype(each)]
    if not dtypes:
        return value
    if dtypes[0] not in _REAL:
        raise Unsupported("[to] complex numbers to real ones: take their real part")
    real = _REAL[dtypes[0]]
    if isinstance(value, Pair):
        return value.both(lambda part: part.to(real))
    return Pair(value.to(real, copy=True), torch.zeros_like(value, dtype=real))


def _polar(magnitude, angle):
    return Pair(magnitude * torch.cos(angle), magnitude * torch.sin(angle))


def _view_as_complex(value):
    return Pair(value.select(-1, 0), value.select(-1, 1))


def _view_as_real(value):
    return torch.stack((value.re, value.im), -1)


def _attribute(value, name):
    if name in ("real", "imag"):
        return value.re if name == "real" else value.im
    if name in ("shape", "device", "ndim"):
        return getattr(value.re, name)
    if name in ("T", "mT"):
        return value.both(lambda part: getattr(part, name))
    raise Unsupported(f"[{name}] of complex numbers is not supported")


# --- arithmetic


def _pair(value):
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        return Pair(value.real, value.imag)
    return Pair(value, None)


def _add(a, b, *, alpha=1, sign=1):
    a, b = _pair(a), _pair(b)
    scale = alpha * sign
    re = a.re + b.re * scale
    if b.im is None:
        im = a.im + torch.zeros_like(re)
    elif a.im is None:
        im = b.im * scale + torch.zeros_like(re)
    else:
        im = a.im + b.im * scale
    return Pair(re, im)


def _sub(a, b, *, alpha=1):
    return _add(a, b, alpha=alpha, sign=-1)


def _product(multiply):
    """(a + i b)(c + i d) = (a c - b d) + i (a d + b c)"""

    def product(x, y):
        x, y = _pair(x), _pair(y)
        if y.im is None:
            return Pair(multiply(x.re, y.re), multiply(x.im, y.re))
        if x.im is None:
            return Pair(multiply(x.re, y.re), multiply(x.re, y.im))
        re = multiply(x.re, y.re) - multiply(x.im, y.im)
        return Pair(re, multiply(x.re, y.im) + multiply(x.im, y.re))

    return product


def _times(a, b):
    return a * b


_mul = _product(_times)


def _div(a, b):
    if isinstance(b, Pair):
        raise Unsupported("[div] by complex numbers is not supported")
    return _mul(a, 1 / b) if isinstance(b, complex) else _pair(a).both(lambda part: part / b)


def _conj(value):
    return Pair(value.re, -value.im)


def _abs(value):
    return torch.hypot(value.re, value.im)


def _both(name):
    """Of a tensor method that does the same to each part."""

    def call_both(value, *args, **kwargs):
        return value.both(lambda part: getattr(part, name)(*args, **kwargs))

    return call_both


def _listed(name):
    """Of one that gives several tensors."""

    def call_listed(value, *args, **kwargs):
        parts = (getattr(part, name)(*args, **kwargs) for part in (value.re, value.im))
        return tuple(Pair(re, im) for re, im in zip(*parts, strict=True))

    return call_listed


def _joined(join):
    def call_joined(values, *args, **kwargs):
        pairs = [_pair(value) for value in values]
        zero = [pair.im if pair.im is not None else torch.zeros_like(pair.re) for pair in pairs]
        return Pair(join([pair.re for pair in pairs], *args, **kwargs), join(zero, *args, **kwargs))

    return call_joined


_MOVES = (
    "clone contiguous detach expand flatten flip getitem index_select mean movedim "
    "narrow neg permute repeat reshape roll select squeeze sum swapaxes t transpose unflatten "
    "unsqueeze view"
).split()
_FUNCTIONS = {
    **{name: _both(name) for name in _MOVES},
    **{name: _listed(name) for name in ("chunk", "split", "unbind")},
    "getitem": _both("__getitem__"),
    "cat": _joined(torch.cat),
    "stack": _joined(torch.stack),
    "getattr": _attribute,
    "real": lambda value: value.re,
    "imag": lambda value: value.im,
    "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex,
    "complex": lambda real, imag: Pair(real.clone(), imag.clone()),
    "polar": _polar,
    "to": _to,
    "type": _to,
    "is_complex": lambda value: True,
    "is_floating_point": lambda value: False,
    "dim": lambda value: value.re.dim(),
    "numel": lambda value: value.re.numel(),
    "size": lambda value, *args, **kwargs: value.re.size(*args, **kwargs),
    "add": _add,
    "radd": lambda a, b: _add(b, a),
    "sub": _sub,
    "subtract": _sub,
    "rsub": lambda a, b: _sub(b, a),
    "mul": _mul,
    "multiply": _mul,
    "rmul": lambda a, b: _mul(b, a),
    "matmul": _product(torch.matmul),
    "div": _div,
    "truediv": _div,
    "conj": _conj,
    "conj_physical": _conj,
    "resolve_conj": lambda value: value,
    "abs": _abs,
    "absolute": _abs,
    "angle": lambda value: torch.atan2(value.im, value.re),
}


# --- Fourier transforms: operators of the compiler, of the two parts (ops/linalg/fourier.cc)


def _fft(re, im, s, dim, norm, inverse):
    value = torch.complex(re, torch.zeros_like(re) if im is None else im)
    sizes = [value.shape[d] if n == -1 else n for n, d in zip(s, dim, strict=True)] if s else None
    made = (torch.fft.ifftn if inverse else torch.fft.fftn)(value, sizes, dim, norm)
    return made.real.clone(), made.imag.clone()


def _irfft(re, im, n, dim, norm):
    value = torch.complex(re, torch.zeros_like(re) if im is None else im)
    return torch.fft.irfft(value, n, dim, norm)


# The names and schemas are those of the compiler's table.
_library = torch.library.Library("tandem", "FRAGMENT")
_library.define(
    "fft(Tensor re, Tensor? im, SymInt[]? s, int[] dim, str norm, bool inverse) -> (Tensor, Tensor)"
)
_library.impl("fft", _fft, "CompositeExplicitAutograd")  # one node of a trace
_library.define("irfft(Tensor re, Tensor? im, SymInt? n, int dim, str norm) -> Tensor")
_library.impl("irfft", _irfft, "CompositeExplicitAutograd")


def _start(value):
    """Of an argument of a transform: a pair, or a real tensor as one without imaginary part."""
    if isinstance(value, Pair):
        return value
    return Pair(value if value.is_floating_point() else value.to(torch.get_default_dtype()), None)


def _transform(value, sizes, dims, norm, inverse):
    """Over several dimensions, sizes None or one for each."""
    value = _start(value)
    sizes = None if sizes is None else [-1 if size is None else size for size in sizes]
    return Pair(*torch.ops.tandem.fft(value.re, value.im, sizes, dims, norm or "backward", inverse))


def _dims(value, sizes, dims):
    rank = (value.re if isinstance(value, Pair) else value).dim()
    if dims is not None:
        return [dims] if isinstance(dims, int) else list(dims)
    return list(range(rank - len(sizes), rank)) if sizes is not None else list(range(rank))


def _of_one(inverse):
    def transform(input, n=None, dim=-1, norm=None):
        return _transform(input, [n], [dim], norm, inverse)

    return transform


def _of_many(inverse, default):
    def transform(input, s=None, dim=default, norm=None):
        return _transform(input, s, _dims(input, s, dim), norm, inverse)

    return transform


def _half(whole, dim):
    """The half that the other one mirrors."""
    return whole.both(lambda part: part.narrow(dim, 0, part.shape[dim] // 2 + 1))


def _real_of_one(input, n=None, dim=-1, norm=None):
    return _half(_transform(input, [n], [dim], norm, False), dim)


def _real_of_many(default):
    def transform(input, s=None, dim=default, norm=None):
        dims = _dims(input, s, dim)
        return _half(_transform(input, s, dims, norm, False), dims[-1])

    return transform


def _inverse_real(input, n=None, dim=-1, norm=None):
    half = _start(input)
    return torch.ops.tandem.irfft(half.re, half.im, n, dim, norm or "backward")


def _inverse_real_of_many(default):
    def transform(input, s=None, dim=default, norm=None):
        dims = _dims(input, s, dim)
        value = input
        if len(dims) > 1:
            value = _transform(value, s and s[:-1], dims[:-1], norm, True)
        return _inverse_real(value, s and s[-1], dims[-1], norm)

    return transform


_TRANSFORMS = {
    "fft_fft": _of_one(False),
    "fft_ifft": _of_one(True),
    "fft_fft2": _of_many(False, (-2, -1)),
    "fft_ifft2": _of_many(True, (-2, -1)),
    "fft_fftn": _of_many(False, None),
    "fft_ifftn": _of_many(True, None),
    "fft_rfft": _real_of_one,
    "fft_irfft": _inverse_real,
    "fft_rfft2": _real_of_many((-2, -1)),
    "fft_irfft2": _inverse_real_of_many((-2, -1)),
    "fft_rfftn": _real_of_many(None),
    "fft_irfftn": _inverse_real_of_many(None),
}
