"""A call compiled ahead of time. Dynamo looks once, when it is compiled; what it would ask at each
call of all that the module holds (guards), and fetch from it (weights), is a promise of the caller.
What a call is given is compared with what it was compiled for.
"""

import dis
import inspect

import torch
from torch._dynamo import config
from torch._dynamo.convert_frame import fullgraph_capture, get_traced_fn
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.utils import get_metrics_context
from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr
from torch._guards import TracingContext, tracing
from torch.utils import _pytree as pytree

from tandem._tandem import Unsupported, UserError
from tandem.dynamo import backend
from tandem.options import Options

_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.device)


class Arguments:
    """What those of each call must be like: the same tree, tensors of the same kind, other values
    equal, other objects the same ones. A tensor that was given twice must be again."""

    def __init__(self, args, kwargs):
        self._names = sorted(kwargs)
        given = args, self._in_order(kwargs)
        leaves, self._tree = pytree.tree_flatten(given)
        each = (*args, *kwargs.values())
        self._is_flat = all(pytree.tree_structure(value).is_leaf() for value in each)
        self._count = len(args)
        self._kinds = [_kind_of(leaf) for leaf in leaves]
        self._shared = _shared(leaves)
        self._paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(given)]

    def check(self, args, kwargs):
        """UserError for others."""
        leaves = self._leaves(args, kwargs)
        for i, (leaf, kind) in enumerate(zip(leaves, self._kinds, strict=True)):
            if not _is_alike(_kind_of(leaf), kind):
                raise UserError(
                    f"tandem.aot_compile: argument {self._paths[i]} is {_text(_kind_of(leaf))}, "
                    f"compiled for {_text(kind)}"
                )
        if _shared(leaves) != self._shared:
            raise UserError(
                "tandem.aot_compile: other arguments are one tensor than when this was compiled"
            )

    def _in_order(self, kwargs):
        return {name: kwargs[name] for name in self._names if name in kwargs}

    def _leaves(self, args, kwargs):
        """By hand where each argument is one: pytree takes as long as a small program."""
        same = len(args) == self._count and kwargs.keys() == set(self._names)
        if same and self._is_flat:
            return [*args, *(kwargs[name] for name in self._names)]
        given = self._in_order(kwargs) | kwargs
        leaves, tree = pytree.tree_flatten((args, given))
        if tree != self._tree:
            raise UserError(f"tandem.aot_compile: compiled for arguments {self._tree}, not {tree}")
        return leaves


def _kind_of(leaf):
    if not isinstance(leaf, torch.Tensor):
        return leaf
    layout = leaf.shape, leaf.stride() if leaf.layout is torch.strided else leaf.layout
    return torch.Tensor, type(leaf), leaf.dtype, leaf.device, *layout, leaf.requires_grad


def _is_alike(kind, other):
    """By their texts, floats are equal where NaN is, and where only zeros of one sign are."""
    if kind is other:
        return True
    if type(kind) is not type(other):
        return False
    if isinstance(kind, (float, complex)):
        return repr(kind) == repr(other)
    return isinstance(kind, (*_VALUES, tuple)) and kind == other


def _text(kind):
    if not (isinstance(kind, tuple) and kind and kind[0] is torch.Tensor):
        return repr(kind)
    _, cls, dtype, device, sizes, strides, requires_grad = kind
    words = f"{cls.__name__} {dtype} {list(sizes)} of strides {strides} on {device}"
    return f"{words}, requires_grad={requires_grad}"


def _shared(leaves):
    """The place of the first of each group of equal tensors, by place."""
    first = {}
    tensors = (leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
    return [i if t is None else first.setdefault(id(t), i) for i, t in enumerate(tensors)]


def _autocast():
    """The type of the mode; None without it."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


class AotCompiled:
    """What `aot_compile` gives: called as `model` is. It keeps the model, and with
    `options={"freeze": True}` the weights that it has now."""

    def __init__(self, run, owner, arguments):
        self._run = run
        self._owner = () if owner is None else (owner,)
        self._arguments = arguments
        self._is_grad_enabled = torch.is_grad_enabled()
        self._autocast = _autocast()

    def __call__(self, *args, **kwargs):
        self._arguments.check(args, kwargs)
        if _autocast() != self._autocast:
            raise UserError(
                f"tandem.aot_compile: compiled with autocast {self._autocast}, called with "
                f"{_autocast()}"
            )
        with torch.set_grad_enabled(self._is_grad_enabled):
            return self._run(*self._owner, *args, **kwargs)


def aot_compile(model, args=(), kwargs=None, *, options=None):
    """Compiles `model(*args, **kwargs)`, a module or function, for calls like this one."""
    kwargs = {} if kwargs is None else kwargs
    _check_call(model, args, kwargs)
    args, kwargs = tuple(args), dict(kwargs)
    model = innermost_fn(getattr(model, "_orig_mod", model))  # of what torch.compile gave
    arguments = Arguments(args, kwargs)
    found = _captured(model, args, kwargs, Options.of(options).freeze)
    given = found.backend_input
    if given is None:
        raise Unsupported("tandem.aot_compile: the call computes nothing with tensors")
    if any(isinstance(example, torch.SymInt) for example in given.example_inputs):
        raise Unsupported("tandem.aot_compile: a size that varies (mark_dynamic)")
    environment = found.graph_capture_output.get_runtime_env()
    _check_globals(environment.bytecode)
    context = TracingContext(given.fake_mode)
    context.tensor_to_context = given.tensor_to_context
    with tracing(context):
        compiled = backend(given.graph_module, given.example_inputs, options=options)
    traced, owner = get_traced_fn(model)
    run = environment.forward_callable(
        given.backend_id, compiled, extra_globals=traced.__globals__
    )
    return AotCompiled(run, owner, arguments)


def _check_call(model, args, kwargs):
    if not isinstance(args, (tuple, list)):  # a tensor would be taken for its rows
        raise UserError(f"tandem.aot_compile: args is a tuple, not a {type(args).__name__}")
    if not isinstance(kwargs, dict):
        raise UserError(f"tandem.aot_compile: kwargs is a dict, not a {type(kwargs).__name__}")
    if isinstance(model, torch.nn.Module) or inspect.isfunction(model) or inspect.ismethod(model):
        return
    raise UserError(f"tandem.aot_compile: {model!r} is no module, function or method of Python")


def _captured(model, args, kwargs, freeze):
    """With `freeze` weights are attributes of the graph, else inputs that each call fetches."""
    static = {"assume_static_by_default": True, "automatic_dynamic_shapes": False}
    with (
        config.patch(prepare_freezing=bool(freeze), **static),
        get_metrics_context(),
        torch_function_mode_stack_state_mgr,
    ):
        return fullgraph_capture(model, args, kwargs)


def _check_globals(bytecode):
    """The function that runs has globals of its own."""
    stored = {i.argval for i in dis.get_instructions(bytecode) if i.opname == "STORE_GLOBAL"}
    if stored:
        raise Unsupported(f"tandem.aot_compile: the call writes global names: {sorted(stored)}")
