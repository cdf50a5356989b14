"""The backend of `torch.compile(model, backend="tandem")`: Dynamo's graph in, a callable out."""

import time

import torch

from tandem import _tandem
from tandem.capture import capture
from tandem.encode import encode
from tandem.function import Compiled
from tandem.options import Options
from tandem.reports import GraphReport, add


def backend(module, examples, *, options=None, mode=None, **_):
    """Called by Dynamo for every graph; torch finds it by its entry point `tandem`."""
    del mode
    chosen = Options.of(options)
    _connect()
    if len(examples) == 1 and isinstance(examples[0], list):
        return module.forward  # compiled autograd's own graph: torch runs it
    return compile_graph(module, examples, chosen)


def compile_graph(module, examples, options):
    """Compiles one graph of torch functions for inputs like `examples`."""
    started = time.perf_counter()
    captured = capture(module, examples)
    traced = time.perf_counter()
    requires_grad = [
        isinstance(fake, torch.Tensor) and fake.requires_grad for fake in captured.fakes
    ]
    training = torch.is_grad_enabled() and any(requires_grad)
    encoded = encode(captured, requires_grad, not torch.is_grad_enabled())
    written = time.perf_counter()
    native = _tandem.compile_function(
        encoded.text,
        differentiate=training,
        partition=options.memory_budget,
        report=options.report,
    )
    compiled = Compiled(native, encoded, module.forward)
    times = {"capture": 1e3 * (traced - started), "encode": 1e3 * (written - traced)}
    times |= native.times
    add(GraphReport(encoded, native, times, captured.dialect, training))
    return compiled.callable()


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
