"""The machine's own roofs: the best measured matrix product, and the best measured stream of a mix
of reads and writes. Every share of a roof on the page is of one of these, measured in turn with
what it is the roof of.
"""

import ctypes
import os

import measure
import torch

LIBRARY = "build/bin/libbench_stream.so"
LINE_BYTES = 64
STREAMS = ("stream", "stream past caches")
# Rows, inner size, columns: square, and the products of a transformer of 128 tokens.
PRODUCTS = [(1024, 1024, 1024), (2048, 1024, 2048), (128, 768, 3072)]


class Stream:
    """A contender that reads and writes all of some tensors; it holds them."""

    def __init__(self, reads, writes, past_caches):
        self.tensors = [*reads, *writes]
        self.arguments = *described(reads), *described(writes), past_caches, measure.THREADS
        self.function = ctypes.CDLL(os.path.abspath(LIBRARY)).tandem_bench_stream

    def __call__(self):
        self.function(*self.arguments)


def streams(reads, writes):
    """Two contenders that read and write so many bytes of each tensor, {name: function}: stores
    through the caches, and past them. `reads`, `writes`: contiguous tensors of any dtype; one that
    is in both is updated in place, and what is written holds other values afterwards."""
    return {name: Stream(reads, writes, past) for past, name in enumerate(STREAMS)}


def described(tensors):
    """Of C: an array of pointers, how many, lines that each has."""
    pointers = (ctypes.c_void_p * max(1, len(tensors)))(*(x.data_ptr() for x in tensors))
    lines = min((x.nbytes // LINE_BYTES for x in tensors), default=0)
    return pointers, ctypes.c_int64(len(tensors)), ctypes.c_int64(lines)


def products(dtype):
    """Contenders for the best product, {name: (function, floating-point operations)}: torch's, and
    the compiled one with its weight packed. Plain names, so that a page can say whose is best."""
    import tandem

    found = {}
    for rows, inner, columns in PRODUCTS:
        linear = torch.nn.Linear(inner, columns, bias=False, dtype=dtype).eval()
        value = torch.randn(rows, inner).to(dtype)
        packed = torch.compile(linear, backend=tandem.backend, options={"freeze": True})
        shape, work = f"{rows}x{inner}x{columns}", 2 * rows * inner * columns
        found[f"torch {shape}"] = (without_gradients(linear, value), work)
        found[f"packed {shape}"] = (without_gradients(packed, value), work)
    return found


def without_gradients(function, value):
    def call():
        with torch.no_grad():
            return function(value)

    return call


def rates(dtype, rounds=5):
    """GFLOP/s of each contender of `products`, the median of turns, the best first."""
    contenders = products(dtype)
    timed = measure.alternate({name: call for name, (call, _) in contenders.items()}, rounds)
    found = {name: work / timed[name].median / 1e6 for name, (_, work) in contenders.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


READ_MIB = 256


class Roof:
    """The best product of a dtype and a stream of reads, as contenders that take their turns."""

    def __init__(self, dtype):
        self.rates = rates(dtype)
        product, self.operations = products(dtype)[next(iter(self.rates))]
        self.block = torch.ones(READ_MIB << 18)
        self.contenders = {"product": product, "stream": streams([self.block], [])["stream"]}

    def found(self, times):
        """Takes its own times out of those of `measure.alternate`."""
        product, stream = (times.pop(name).median for name in self.contenders)
        return {
            "gflops": self.operations / product / 1e6,
            "gb_per_s": self.block.nbytes / stream / 1e6,
            "product": next(iter(self.rates)),
            "torch_gflops": max(v for k, v in self.rates.items() if k.startswith("torch")),
        }


def operations(step):
    """Floating-point operations of the products and convolutions of one call."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()
