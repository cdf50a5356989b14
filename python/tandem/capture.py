"""From Dynamo's graph to one ATen graph before autograd: composites kept, mutations kept, symbolic
sizes kept.

Dynamo hands over a graph of torch functions. `make_fx(pre_dispatch=True)` runs it on fake tensors
and records the ATen ops. What it would lose or apply in silence (autocast regions, checkpoint
regions, the backward of a custom autograd.Function, `x.data`) goes through our own interpreter.
Whatever it still cannot follow shows up as a tensor constant that is no constant: then the capture
is refused.
"""

import contextlib
import gc
import os
import tempfile
import traceback

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.utils import get_static_address_type
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tandem._tandem import InternalError, Unsupported, UserError
from tandem.autocast import CAST_WHOLE, ambient_autocast, lowered, open_composites
from tandem.control_flow import floored
from tandem.fakes import gives_its_operand
from tandem.gradients import autograd_grad
from tandem.higher_order import HANDLERS, Bodies
from tandem.hooks import hooks_where_tensors_are_made
from tandem.modes import restore_modes
from tandem.numbers import FLOORED, READS_OF_NUMBERS
from tandem.shown_operands import SHOWN_OPERANDS, is_dropout_of_nothing
from tandem.wrapped import check_results


class Captured:
    """An ATen graph: `graph_module`, the fakes of its inputs, which of them require grad, and
    `lifted`, the tensors that the graph holds itself and that follow the inputs at every call.
    `no_grad` and `autocast` are the modes that it starts in, `users` the numbers of inputs that the
    user holds (None: all), `weights` those, and of `lifted` behind them, that are parameters or
    buffers of a module, `unwatched`
    those of them that were made in inference mode: nobody counts writes to these. `zeros`: the
    weights that are zero points, and 0."""

    def __init__(self, graph_module, fakes, requires_grad, lifted, dialect, bodies=None):
        self.no_grad = not torch.is_grad_enabled()
        self.autocast = ambient_autocast()
        self.users = None
        self.weights = self.unwatched = self.zeros = frozenset()
        self.graph_module = graph_module
        self.fakes = fakes
        self.requires_grad = requires_grad
        self.lifted = lifted
        self.bodies = bodies or Bodies()
        self.dialect = dialect

    def turns_grad_on(self):
        """It starts without gradients, and has a region with them."""
        nodes = self.graph_module.graph.find_nodes(
            op="call_function", target=torch._C._set_grad_enabled
        )
        return self.no_grad and any(node.args[0] for node in nodes)


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
        marks = {"tandem_region": self._region} if self._region else {}
        if self.bodies.behind_autograd:
            marks["tandem_grad"] = torch.is_grad_enabled()
        else:  # the trace of a body has no nodes for its regions
            marks["tandem_autocast"] = ambient_autocast()
        if marks:
            node.meta["custom"] = {**node.meta.get("custom", {}), **marks}
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
        if target is torch.autograd.grad_mode._enter_inference_mode:
            before = torch.is_grad_enabled()  # to a trace it is a region without gradients
            torch._C._set_grad_enabled(not args[0])
            return before
        if target is torch.autograd.grad_mode._exit_inference_mode:
            torch._C._set_grad_enabled(args[0])
            return None
        if target in FLOORED and any(isinstance(arg, torch.SymFloat) for arg in args):
            return floored(target, *args)
        if target is torch.autograd.grad:
            return autograd_grad(*args, **kwargs)
        if is_dropout_of_nothing(target, args, kwargs):
            return args[0] if args else kwargs["input"]
        name = getattr(target, "__name__", "").partition(".")[0]  # with or without an overload's
        if name in CAST_WHOLE and ambient_autocast() is not None:
            args, kwargs = lowered((args, kwargs))
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


def _check_kind(number, value):
    """Tensors that are more than elements in memory: fakes do not show it, or trace differently."""
    if isinstance(value, torch.Generator):
        raise Unsupported(f"input {number} is a torch.Generator: a trace would keep this one")
    if not isinstance(value, torch.Tensor):
        return
    kinds = {
        f"of layout {value.layout}": value.layout is not torch.strided,
        "quantized": value.is_quantized,
        "nested": value.is_nested,
        f"a {type(value).__name__}, which holds others": is_traceable_wrapper_subclass(value),
    }
    if not any(kinds.values()):
        kinds = {
            "a view that negates": value.is_neg(),
            "a view that conjugates": value.is_conj(),
        }
    for kind, is_it in kinds.items():
        if is_it:
            raise Unsupported(f"input {number} is {kind}: Tandem takes elements in memory")


def _is_zero_point(node):
    """Of something that is dequantized; other zeros may become something else."""
    return any(
        str(user.target).startswith(("quantized_decomposed.dequantize", "torchao.dequantize"))
        and node in user.args[1:]
        for user in node.users
    )


def _is_zero(value):
    """Zero points of symmetric quantization, which cost a product a pass over its left factor."""
    most = 1 << 22  # elements, of a group each: more are no zero points, and asking takes time
    if value.is_floating_point() or value.is_complex() or isinstance(value, FakeTensor):
        return False
    return 0 < value.numel() <= most and not value.any().item()


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


def _hand_on_operands(graph):
    """Without the nodes where eager gives the operand itself (`x.float()` of a float): a trace goes
    on with the node in its place, and a mode around it would then count for all later uses."""
    for node in list(graph.nodes):
        if gives_its_operand(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _drop_known_reads(graph):
    """Without `item()` of a tensor that is made from numbers alone, as torch.div of two sizes is:
    torch knew what it gives, so nobody reads the node."""
    for target in READS_OF_NUMBERS:
        for node in graph.find_nodes(op="call_function", target=target):
            if not node.users and not node.meta.get("unbacked_bindings"):
                graph.erase_node(node)


def _drop_shapes_alone(graph):
    """Without what torch computed on the device `meta` to learn a shape (forward-mode rules do)."""
    for node in reversed(list(graph.nodes)):
        value = node.meta.get("val")
        is_shape = isinstance(value, torch.Tensor) and value.device.type == "meta"
        if is_shape and node.op == "call_function" and not node.users:
            graph.erase_node(node)


def _same(value):
    return value


@contextlib.contextmanager
def _regions_closed():
    """The trace enters regions as the program does (no_grad, autocast, torch.func). Where it fails
    inside one, or the program leaves a mode set, nobody else restores what was there."""
    functorch, hooks = torch._C._functorch, torch._C._autograd
    depth = functorch.get_dynamic_layer_stack_depth()
    refusal = hooks._saved_tensors_hooks_get_disabled_error_message()
    grad = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    caches = torch.is_autocast_cache_enabled()
    try:
        yield
    finally:
        functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if refusal is None:
            hooks._saved_tensors_hooks_enable()
        torch.set_grad_enabled(grad)
        torch.set_autocast_enabled("cpu", autocast[0])
        torch.set_autocast_dtype("cpu", autocast[1])
        torch.set_autocast_cache_enabled(caches)


@contextlib.contextmanager
def _nothing_collected():
    """A collection may end a generator that is inside of `torch.no_grad`: that sets the mode, which
    a trace records as a node of its own."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _trace(module, attributes, fakes, count, mode, pre_dispatch, bodies):
    names = list(attributes)

    def run(*values):
        held = dict(zip(names, values[count:], strict=True))
        results = _Interpreter(module, held, bodies).run(*values[:count])
        check_results(results)
        bodies.leaves_grad = torch.is_grad_enabled()
        return results

    with contextlib.ExitStack() as stack:
        stack.enter_context(_nothing_collected())
        stack.enter_context(mode)
        # Autograd records the trace; hooks of the call that compiles (torch.utils.checkpoint counts
        # what is saved) must not see that. Where there are none, torch.func wants none.
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_same, _same))
        stack.enter_context(_regions_closed())
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(fx.traceback.preserve_node_meta())
        table = SHOWN_OPERANDS if pre_dispatch else None
        tracer = make_fx(run, table, tracing_mode="real", pre_dispatch=pre_dispatch)
        return tracer(*fakes)


def capture(module, examples, inlines=False):
    """The ATen graph of Dynamo's `module` on inputs like `examples`. `inlines`: regions that could
    be compiled once are written out. Raises Unsupported where torch
    cannot trace it without losing a part."""
    mode = detect_fake_mode(examples) or FakeTensorMode(
        allow_non_fake_inputs=True, shape_env=ShapeEnv()
    )
    context = TracingContext.try_get()
    module = hooks_where_tensors_are_made(module)
    attributes = _tensor_attributes(module)
    inputs = list(examples) + list(attributes.values())
    for number, value in enumerate(inputs):
        _check_kind(number, value)
    fakes = [_fake_of(mode, context, value) for value in inputs]
    # Read now: tracing an in-place op may set it.
    requires_grad = [isinstance(fake, torch.Tensor) and fake.requires_grad for fake in fakes]
    weights = {i for i, value in enumerate(inputs) if get_static_address_type(value) is not None}
    unwatched = {i for i in weights if inputs[i].is_inference()}
    for dialect, pre_dispatch in (("pre", True), ("post", False)):
        bodies = Bodies(not pre_dispatch, inlines)
        try:
            traced = _trace(module, attributes, fakes, len(examples), mode, pre_dispatch, bodies)
        except UserError as error:
            raise Unsupported(str(error)) from error
        except Exception as error:  # of torch: sizes that depend on data, operators without fakes
            if _is_ours(error):
                raise InternalError(_mistake(error, module)) from error
            raise Unsupported(_refusal(error)) from error
        leaks = [leak for graph in (traced, *bodies.graphs) for leak in _leaks(graph)]
        if not leaks:
            for graph in (traced, *bodies.graphs):
                _hand_on_operands(graph.graph)
                _drop_known_reads(graph.graph)
                _drop_shapes_alone(graph.graph)
            if pre_dispatch:
                open_composites(traced.graph, ambient_autocast())
            held = list(attributes.values())
            captured = Captured(traced, fakes, requires_grad, held, dialect, bodies)
            captured.weights, captured.unwatched = weights - unwatched, unwatched
            nodes = traced.graph.find_nodes(op="placeholder")
            captured.zeros = {
                i for i in captured.weights if _is_zero_point(nodes[i]) and _is_zero(inputs[i])
            }
            if bodies.behind_autograd:
                restore_modes(traced, captured)
            return captured
    where = leaks[0].meta.get("stack_trace") or ""
    raise Unsupported(
        "torch.make_fx cannot follow this program: a value that depends on its inputs became a "
        f"constant ({leaks[0].target}){_last_line(where)}"
    )


def _is_ours(error):
    """Whether code of this package raised it, and not what that called."""
    frame = _first(error).__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    return os.path.dirname(frame.tb_frame.f_code.co_filename) == os.path.dirname(__file__)


def _first(error):
    """fx makes another of a KeyError."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _mistake(error, module):
    """What to report, with the graph in a file."""
    error = _first(error)
    handle, path = tempfile.mkstemp(prefix="tandem-graph-", suffix=".py")
    with os.fdopen(handle, "w") as file:
        file.write(module.print_readable(print_output=False))
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"tandem: internal error while tracing a graph, at {os.path.basename(place.filename)}:"
        f"{place.lineno}: {type(error).__name__}: {error}. The graph is in {path}; please report it"
    )


def _refusal(error):
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return f"[{error.func}] its result's size, or a number it gives, depends on data"
    text = str(error).strip().split("\n")[0]
    return f"torch.make_fx cannot trace this program: {type(error).__name__}: {text}"


def _last_line(stack_trace):
    lines = [line.strip() for line in stack_trace.strip().split("\n") if line.strip()]
    return f" at {' '.join(lines[-2:])}" if lines else ""
