"""From Dynamo's graph to one ATen graph before autograd: composites kept, mutations kept, symbolic
sizes kept.

Dynamo hands over a graph of torch functions. `make_fx(pre_dispatch=True)` runs it on fake tensors
and records the ATen ops. What it would lose or apply in silence (autocast regions, checkpoint
regions, the backward of a custom autograd.Function, `x.data`) goes through our own interpreter.
Whatever it still cannot follow shows up as a tensor constant that is no constant: then the capture
is refused.
"""

import contextlib

import torch
from torch import fx
from torch._dynamo.utils import get_static_address_type
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import make_fx

from tandem._tandem import Unsupported
from tandem.gradients import autograd_grad
from tandem.higher_order import HANDLERS, Bodies


class Captured:
    """An ATen graph: `graph_module`, the fakes of its inputs, which of them require grad, `weights`,
    the numbers of those that are parameters or buffers of a module, and `lifted`, the tensors that the graph holds itself and that follow the inputs at every call."""

    def __init__(
        self, graph_module, fakes, requires_grad, lifted, dialect, bodies=None, weights=()
    ):
        self.graph_module = graph_module
        self.fakes = fakes
        self.requires_grad = requires_grad
        self.lifted = lifted
        self.bodies = bodies or Bodies()
        self.weights = weights
        self.dialect = dialect


class _Interpreter(fx.Interpreter):
    """Runs Dynamo's graph; tensors that it holds as attributes become inputs. Nodes of a checkpoint
    region are marked in their metadata."""

    def __init__(self, module, attributes, bodies, region=0):
        super().__init__(module)
        self._attributes = attributes
        self.bodies = bodies
        self._region = region

    def inner(self, body, region=None):
        """For a body that runs inline."""
        return _Interpreter(body, {}, self.bodies, self._region if region is None else region)

    def run_node(self, node):
        if self._region:
            node.meta["custom"] = {**node.meta.get("custom", {}), "tandem_region": self._region}
        return super().run_node(node)

    def get_attr(self, target, args, kwargs):
        if target in self._attributes:
            return self._attributes[target]
        return super().get_attr(target, args, kwargs)

    def call_function(self, target, args, kwargs):
        if target is torch.amp.autocast_mode._enter_autocast:
            context = torch.amp.autocast(*args, **kwargs)
            context.__enter__()
            return context
        if target is torch.amp.autocast_mode._exit_autocast:
            args[0].__exit__(None, None, None)
            return None
        if target is torch.autograd.grad:
            return autograd_grad(*args, **kwargs)
        if getattr(target, "__name__", "") == "_get_data_attr":
            return args[0].detach()
        handler = HANDLERS.get(getattr(target, "__name__", ""))
        if handler is not None and isinstance(target, torch._ops.HigherOrderOperator):
            return handler(self, *args, **kwargs)
        return super().call_function(target, args, kwargs)


def _tensor_attributes(module):
    """Tensors that the graph reads as attributes, by qualified name, in order of first use."""
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = module
            for part in node.target.split("."):
                value = getattr(value, part)
            if isinstance(value, torch.Tensor):
                found[node.target] = value
    return found


def _fake_of(mode, context, value):
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(value, FakeTensor) and value.fake_mode is mode:
        return value
    symbolic = context.tensor_to_context.get(value) if context is not None else None
    source = symbolic.tensor_source if symbolic is not None else None
    return mode.from_tensor(
        value, static_shapes=symbolic is None, symbolic_context=symbolic, source=source
    )


def _leaks(graph_module):
    """Tensor constants of a trace that are no literals of the program."""
    found = []
    for node in graph_module.graph.nodes:
        if node.op != "get_attr":
            continue
        value = getattr(graph_module, node.target, None)
        if not isinstance(value, torch.Tensor):
            continue
        lifts = all(user.target is torch.ops.aten.lift_fresh_copy.default for user in node.users)
        if isinstance(value, FakeTensor) or not lifts:
            found.append(node)
    return found


def _trace(module, attributes, fakes, count, mode, pre_dispatch, bodies):
    names = list(attributes)

    def run(*values):
        held = dict(zip(names, values[count:], strict=True))
        return _Interpreter(module, held, bodies).run(*values[:count])

    with contextlib.ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(fx.traceback.preserve_node_meta())
        tracer = make_fx(run, tracing_mode="real", pre_dispatch=pre_dispatch)
        return tracer(*fakes)


def capture(module, examples):
    """The ATen graph of Dynamo's `module` on inputs like `examples`. Raises Unsupported where torch
    cannot trace it without losing a part."""
    mode = detect_fake_mode(examples) or FakeTensorMode(allow_non_fake_inputs=True)
    context = TracingContext.try_get()
    attributes = _tensor_attributes(module)
    inputs = list(examples) + list(attributes.values())
    fakes = [_fake_of(mode, context, value) for value in inputs]
    # Read now: tracing an in-place op may set it.
    requires_grad = [isinstance(fake, torch.Tensor) and fake.requires_grad for fake in fakes]
    weights = {i for i, value in enumerate(examples) if get_static_address_type(value) is not None}
    for dialect, pre_dispatch in (("pre", True), ("post", False)):
        bodies = Bodies()
        try:
            traced = _trace(module, attributes, fakes, len(examples), mode, pre_dispatch, bodies)
        except Exception as error:  # of torch: sizes that depend on data, operators without fakes
            raise Unsupported(_refusal(error)) from error
        leaks = _leaks(traced)
        if not leaks:
            held = list(attributes.values())
            return Captured(traced, fakes, requires_grad, held, dialect, bodies, weights)
    where = leaks[0].meta.get("stack_trace") or ""
    raise Unsupported(
        "torch.make_fx cannot follow this program: a value that depends on its inputs became a "
        f"constant ({leaks[0].target}){_last_line(where)}"
    )


def _refusal(error):
    if isinstance(error, Unsupported):
        return str(error)
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return f"[{error.func}] its result's size, or a number it gives, depends on data"
    text = str(error).strip().split("\n")[0]
    return f"torch.make_fx cannot trace this program: {type(error).__name__}: {text}"


def _last_line(stack_trace):
    lines = [line.strip() for line in stack_trace.strip().split("\n") if line.strip()]
    return f" at {' '.join(lines[-2:])}" if lines else ""
