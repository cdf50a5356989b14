"""The backend of `torch.compile(model, backend="tandem")`: Dynamo's graph in, a callable
out."""

import time
import warnings

import sympy
import torch
import torch._dynamo

from tandem import _tandem
from tandem._tandem import UserError
from tandem.capture import capture
from tandem.encode import encode
from tandem.function import Compiled
from tandem.options import Options
from tandem.reports import EagerReport, GraphReport, add
from tandem.sizes import is_symbolic, specialize, symbols_of, tie_sizes

# Else Dynamo breaks the graph around nn.LSTM, nn.GRU and nn.RNN, and no backend sees them. It reads
# this before it calls a backend for the first time: so here, where a program names this one.
torch._dynamo.config.allow_rnn = True


def backend(module, examples, *, options=None, mode=None, **_):
    """Called by Dynamo for every graph."""
    del mode
    chosen = Options.of(options)
    _connect()
    if len(examples) == 1 and isinstance(examples[0], list):
        return module.forward  # compiled autograd's own graph: torch runs it
    return compile_graph(module, examples, chosen)


def compile_graph(module, examples, options):
    """A callable for one graph of torch functions and inputs like `examples`; the graph itself
    where Tandem cannot compile it and the options allow that."""
    try:
        return _compile_graph(module, examples, options)
    except UserError as error:  # what torch refuses too, it refuses with its own words
        if options.on_unsupported == "error":
            raise
        reason = str(error)
    add(EagerReport(reason))
    _warn(f"a whole graph runs in torch, because Tandem does not compile it: {reason}")
    return module.forward


def _compile_graph(module, examples, options):
    started = time.perf_counter()
    captured = capture(module, examples)
    times = {"capture": 1e3 * (time.perf_counter() - started)}
    encoded, native = _compile_as_general_as_possible(captured, options, times)
    if encoded.host:
        names = ", ".join(dict.fromkeys(host.name for host in encoded.host))
        _warn(f"operators that run in torch, because Tandem does not have them: {names}")
    compiled = Compiled(native, encoded, module.forward)
    add(GraphReport(compiled, times | native.times, captured.dialect))
    return compiled.callable()


def _compile_as_general_as_possible(captured, options, times):
    for floats_known, sizes in _attempts(captured):
        try:
            result = _compile(captured, options, times, floats_known, sizes)
        except UserError as error:
            problem = error
        else:
            specialize(sizes.values())
            return result
    raise problem


def _attempts(captured):
    """Which floats and sizes are numbers of the program, fewest first; Dynamo guards them. After
    none: floats; and one size, as the length of a recurrent network must be; and all sizes that
    stand in equations and cannot be made equal to others; and all of them."""
    symbolic = is_symbolic(captured)
    if symbolic:
        yield False, {}
    yield True, {}
    if not symbolic:
        return
    sizes = symbols_of(captured.fakes)
    for symbol in sizes:
        yield True, {symbol: sizes[symbol]}
    tie_sizes(captured.fakes)
    yield True, {}
    yield True, sizes


def _compile(captured, options, times, floats_known, sizes):
    started = time.perf_counter()
    use_host = options.on_unsupported == "eager"
    differentiate = torch.is_grad_enabled() and any(captured.requires_grad)
    freeze = options.freeze and not differentiate
    numbers = {symbol: sympy.Integer(size.node.hint) for symbol, size in sizes.items()}
    encoded = encode(
        captured, not torch.is_grad_enabled(), use_host, floats_known, numbers, freeze
    )
    times["encode"] = 1e3 * (time.perf_counter() - started)
    native = _tandem.compile_function(
        encoded.text,
        differentiate=differentiate,
        freeze=freeze,
        partition=options.memory_budget,
        report=options.report,
        host_functions=[f for host in encoded.host for f in (host.forward, host.backward)],
    )
    return encoded, native


def _warn(text):
    """Python's filters show a text once for a place."""
    warnings.warn(f"tandem: {text}", UserWarning, stacklevel=2)


_connected = False


def _connect():
    """Hands torch's C functions for tensors to the native module, where this torch has them."""
    global _connected
    if _connected:
        return
    _connected = True
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is not None:
        _tandem.use_exchange(torch.Tensor, exchange)
