"""The backend of `torch.compile(model, backend="tandem")`: Dynamo's graph in, a callable
out."""

import dataclasses
import functools
import os
import threading
import time
import warnings

import torch
import torch._dynamo

from tandem import _tandem
from tandem._tandem import InternalError, Unsupported, UserError
from tandem.capture import Captured, capture
from tandem.control_flow import Control
from tandem.encode import encode
from tandem.fakes import place_text
from tandem.flat_inputs import FlatInputs, has_lists
from tandem.function import Compiled
from tandem.layouts import holds_others
from tandem.options import BudgetError, Options
from tandem.outside import has_generator, is_outside
from tandem.reports import EagerReport, GraphReport, add
from tandem.subclasses import Desugared
from tandem.verify import Verified
from tandem.wrapped import Unwrapped, is_wrapped, wrapped_attributes

# Else Dynamo breaks the graph around nn.LSTM, nn.GRU and nn.RNN, and no backend sees them. It reads
# this before it calls a backend for the first time: so here, where a program names this one.
torch._dynamo.config.allow_rnn = True


def backend(module, examples, *, options=None, mode=None, **_):
    """Called by Dynamo for every graph."""
    del mode
    chosen = Options.of(options)
    _connect()
    if any(is_wrapped(example) for example in examples) or wrapped_attributes(module):
        unwrapped = Unwrapped(module, examples)
        with unwrapped.named_in_refusals():
            return unwrapped.callable(compile_graph(unwrapped.module, unwrapped.examples, chosen))
    if not has_lists(examples):
        return compile_graph(module, examples, chosen)
    # Compiled autograd's own graph. The weights that it reads change with every step.
    flat = FlatInputs(module, examples)
    chosen = dataclasses.replace(chosen, freeze=False)
    return flat.callable(compile_graph(flat.module, flat.examples, chosen))


def compile_graph(module, examples, options):
    """A callable for one graph of torch functions and inputs like `examples`; the graph itself
    where Tandem cannot compile it and the options allow that."""
    try:
        return _compile_graph(module, examples, options)
    except UserError as error:  # what torch refuses too, it refuses with its own words
        if options.on_unsupported != "eager":
            raise
        reason = str(error)
    except InternalError as error:  # of ours; the user's work goes on
        if options.on_unsupported != "eager":
            raise
        reason = str(error)
    add(EagerReport(reason))
    _warn(f"a whole graph runs in torch, because Tandem does not compile it: {reason}")
    return module.forward


def _compile_graph(module, examples, options):
    if any(holds_others(each) for each in examples):
        thawed = dataclasses.replace(options, freeze=False)
        again = functools.partial(_compile_graph, options=thawed)
        return Desugared(module, examples, again).callable()
    started = time.perf_counter()
    captured = capture(module, examples)
    times = {"capture": 1e3 * (time.perf_counter() - started)}
    try:
        compiled, report = _compile(captured, options, times, module.forward)
    except (UserError, BudgetError) as problem:  # bodies do not know of bytes
        if not captured.bodies.calls:
            raise
        captured = capture(module, examples, inlines=True)
        try:
            compiled, report = _compile(captured, options, times, module.forward)
        except BudgetError:
            raise problem from None
        report.inlined = str(problem)
    if report.missing:
        names = ", ".join(report.missing)
        _warn(f"operators that run in torch, because Tandem does not have them: {names}")
    add(report)
    return _leaving_mode(_callable(compiled, report, module, captured, options), captured)


def _callable(compiled, report, module, captured, options):
    if not options.verify:
        return compiled.callable()
    return Verified(compiled, module, captured, lambda other: _compile_forward(other, options))


def _leaving_mode(call, captured):
    """What the graph does to the grad mode (torch.set_grad_enabled, not ended inside) is left to
    it."""
    enabled = captured.bodies.leaves_grad
    if enabled == (not captured.no_grad):
        return call

    def call_and_set(*args):
        results = call(*args)
        torch._C._set_grad_enabled(enabled)
        return results

    return call_and_set


def _compile_forward(captured, options):
    with torch.no_grad():
        compiled, _ = _compile(captured, options, {}, captured.graph_module.forward)
    return compiled.callable()


def _compile(captured, options, times, fallback):
    """A Compiled, and its report."""
    _check_outside(captured, options)
    encoded, native = _compile_program(captured, options, times)
    compiled = Compiled(native, encoded, fallback, options, captured.turns_grad_on())
    return compiled, GraphReport(compiled, times | native.times, captured, options.freeze)


def _check_outside(captured, options):
    """What torch alone can run is an error for "strict". A draw from the caller's own generator is
    one for "error" too, because Tandem could have that."""
    for node in captured.graph_module.graph.nodes:
        if not is_outside(node) or isinstance(node.target, Control):
            continue
        name = str(node.target).removesuffix(".default")
        draws = has_generator(node)
        why = "draws from a torch.Generator" if draws else "has a size or number that data tell"
        text = f"[{name}] {why}, and runs in torch{place_text(node)}"
        if options.on_unsupported == "strict" or (draws and options.on_unsupported == "error"):
            raise Unsupported(text)
        if draws:
            _warn(text)


def _compile_program(captured, options, times):
    started = time.perf_counter()
    use_host = options.on_unsupported == "eager"
    has_history = not captured.no_grad or captured.turns_grad_on()
    differentiate = has_history and any(captured.requires_grad)
    freeze = options.freeze and not differentiate
    compile_body = functools.partial(_compile_body, options)
    encoded = encode(captured, use_host, compile_body, freeze)
    times["encode"] = 1e3 * (time.perf_counter() - started)
    native = _compile_text(
        encoded.text,
        differentiate=differentiate,
        freeze=bool(freeze),
        memory_budget=str(options.memory_budget),
        memory_budget_solver=options.memory_budget_solver,
        memory_budget_cost=options.memory_budget_cost,
        save_activations=options.save_activations or "none",
        save_activations_from=options.save_activations_from,
        save_activations_except=list(options.save_activations_except),
        report=options.report,
        tune=options.tune,
        threads=options.threads or 0,
        joint_passes=list(options.joint_passes),
        partition=options.partition,
        partition_knobs=[f"{k}={str(on).lower()}" for k, on in options.partition_knobs.items()],
        host_functions=[f for host in encoded.host for f in host.functions()],
        hints=encoded.hints.native(),
    )
    encoded.hints.guard(native.assumed)
    _check_products(native, options)
    return encoded, native


def _compile_text(text, **options):
    try:
        return _tandem.compile_function(text, **options)
    except UserError as error:
        if "[memory_budget] no choice" not in str(error):
            raise
        raise BudgetError(str(error)) from None  # no other sizes and no other engine would do


def _check_products(native, options):
    floats = [f"{product}: {reason}" for product, reason in native.quantized_products if reason]
    if floats and options.int8 == "require":
        raise Unsupported("quantized products that stay in floats:\n  " + "\n  ".join(floats))


def _compile_body(options, body, requires_grad):
    """What runs the body of a control-flow operator, and whether it draws a seed."""
    fakes = [*body.fakes, *body.symbols]
    captured = Captured(body.graph_module, fakes, requires_grad, [], "body", body.bodies)
    captured.no_grad, captured.autocast = body.no_grad, body.autocast
    compiled, body.report = _compile(captured, options, {}, body.eager)
    if compiled.writes_inputs:
        raise Unsupported("a body of a loop or branch writes to what it is given")
    return compiled.callable(), compiled.takes_seed


def _warn(text):
    """Python's filters show a text once for a place."""
    warnings.warn(f"tandem: {text}", UserWarning, stacklevel=2)


_connected = False


def _connect():
    """Hands the native module what it needs of torch: its C functions for tensors, where this torch
    has them, and its number of threads."""
    global _connected
    if _connected:
        return
    _connected = True
    _tandem.use_torch_threads(torch.get_num_threads)
    _tandem.watch_signals(threading.main_thread().ident)
    # What torch runs on its team in a forked child would wait for ever for threads that are not
    # there: host nodes, gradients that are added.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is not None:
        _tandem.use_exchange(torch.Tensor, exchange)
