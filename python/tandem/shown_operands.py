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


def _drops(share, is_training):
    return is_training and not (isinstance(share, float | int) and share == 0)


def _dropout(operand, share, is_training):
    """Eager gives the operand where nothing is dropped; torch's own decomposition copies it."""
    return NotImplemented if _drops(share, is_training) else operand


def is_dropout_of_nothing(target, args, kwargs):
    """Of a call in Dynamo's graph: a trace from behind dispatch sees the copy alone."""
    if target not in (torch.nn.functional.dropout, torch.dropout):
        return False
    named = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
    share, is_training = named.get("p", 0.5), named.get("training", named.get("train", True))
    return "input" in named and 0 <= share <= 1 and not _drops(share, is_training)


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
