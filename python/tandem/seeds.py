"""Seeds of compiled programs: one number a call. It comes from torch's generator, so that
manual_seed makes runs repeatable; or, in the body of a control-flow operator, from the seed of the
operator, so that the run for the gradient draws what the run for the values drew.
"""

import contextlib
import threading

import torch

_here = threading.local()


def draw_seed():
    source = getattr(_here, "source", None)
    if source is not None:
        return next(source)
    return torch.empty((), dtype=torch.int64).random_().item()


@contextlib.contextmanager
def seeds_from(seed):
    """Calls of this thread draw their seeds from `seed`; None leaves it as it is."""
    outside = getattr(_here, "source", None)
    if seed is not None:
        _here.source = _splitmix(seed)
    try:
        yield
    finally:
        _here.source = outside


def _splitmix(state):
    """SplitMix64 (Steele, Lea, Flood 2014); 63 bits of each number."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield (z ^ (z >> 31)) >> 1
