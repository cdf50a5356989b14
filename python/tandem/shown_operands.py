"""Composites that give an operand, or views of one, where their schema says nothing of it: a trace
would keep them as operators with results of their own, and what is written to one would be lost to
the other. They are traced as the views that they are made of."""

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree

from tandem.fakes import storage_of

_NAMES = (
    "align_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors",
    "cartesian_prod", "chain_matmul", "channel_shuffle", "combinations", "einsum", "meshgrid",
    "pixel_shuffle", "pixel_unshuffle", "sum_to_size", "tensordot",
)  # fmt: skip


def _opened(target):
    def run(*args, **kwargs):
        with disable_proxy_modes_tracing():
            results = _storages(target.decompose(*args, **kwargs))
        if results.isdisjoint(_storages((args, kwargs))):
            return NotImplemented  # it stays one operator
        return target.decompose(*args, **kwargs)

    return run


def _storages(values):
    leaves = pytree.tree_leaves(values)
    return {storage_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)} - {None}


def _dropout(operand, share, is_training):
    """Eager gives the operand where nothing is dropped; torch's own decomposition copies it."""
    drops = is_training and not (isinstance(share, float | int) and share == 0)
    return NotImplemented if drops else operand


def table():
    """As a trace takes it."""
    found = {torch.ops.aten.dropout.default: _dropout}
    for name in _NAMES:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            target = getattr(packet, overload)
            found[target] = _opened(target)
    return found


SHOWN_OPERANDS = table()
