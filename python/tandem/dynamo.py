"""The backend of `torch.compile(model, backend="tandem")`: Dynamo's graph in, a callable out."""

import time
import warnings

import torch

from tandem import _tandem
from tandem._tandem import UserError
from tandem.capture import capture
from tandem.encode import encode
from tandem.function import Compiled
from tandem.options import Options
from tandem.reports import EagerReport, GraphReport, add


def backend(module, examples, *, options=None, mode=None, **_):
    """Called by Dynamo for every graph; torch finds it by its entry point `tandem`."""
    del mode
    chosen = Options.of(options)
    _connect()
    if len(examples) == 1 and isinstance(examples[0], list):
        return module.forward  # compiled autograd's own graph: torch runs it
    if chosen.on_unsupported == "error":
        return compile_graph(module, examples, chosen)
    try:
        return compile_graph(module, examples, chosen)
    except UserError as error:  # what torch refuses too, it refuses with its own words
        reason = str(error)
    add(EagerReport(reason))
    _warn_once(f"a whole graph runs in torch, because Tandem does not compile it: {reason}")
    return module.forward


def compile_graph(module, examples, options):
    """Compiles one graph of torch functions for inputs like `examples`."""
    started = time.perf_counter()
    captured = capture(module, examples)
    traced = time.perf_counter()
    training = torch.is_grad_enabled() and any(captured.requires_grad)
    encoded = encode(
        captured, not torch.is_grad_enabled(), options.on_unsupported == "eager"
    )
    written = time.perf_counter()
    native = _tandem.compile_function(
        encoded.text,
        differentiate=training,
        partition=options.memory_budget,
        report=options.report,
        host_functions=[f for host in encoded.host for f in (host.forward, host.backward)],
    )
    compiled = Compiled(native, encoded, module.forward)
    if encoded.host:
        names = ", ".join(dict.fromkeys(host.name for host in encoded.host))
        _warn_once(f"operators that run in torch, because Tandem does not have them: {names}")
    times = {"capture": 1e3 * (traced - started), "encode": 1e3 * (written - traced)}
    times |= native.times
    add(GraphReport(encoded, native, times, captured.dialect, training))
    return compiled.callable()


def _warn_once(text):
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
