"""Calls whose inputs share memory with one that is written. The native function is compiled once
more, for a tensor that owns that memory, and takes its inputs as views of it (GraphFunction.within
does that); here that tensor is found, and the writes are counted.

Results that are inputs, or views of them, are taken of the caller's own tensors, as always."""

import dataclasses

import torch

from tandem._tandem import UserError
from tandem.fakes import dtype_name

MOST = 16  # ways to overlap, of one graph; another one takes the place of the one used longest ago
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NEW = object()


class Overlapping:
    """For the calls of one Compiled, which it does not keep alive."""

    def __init__(self):
        # What a call looks like -> Compiled, or None: it runs in torch. Used last stands last.
        self._known = {}
        self.counts = {"compiled": 0, "dropped": 0}

    def run(self, compiled, everything):
        """All results, or None where this call is not for us; nothing has run then."""
        values = compiled.take(everything)
        recorded = compiled.recorded_writes()
        groups = _groups(values, compiled.overlap.groups(values), recorded)
        bases = [_base_of(values, group, recorded) for group in groups]
        if not groups or any(base is None for base in bases):
            return None
        key = (_key(values), _key(bases), tuple(groups))
        over = self._known.pop(key, _NEW)
        if over is _NEW:
            self._make_room()
            over = self._over(compiled, everything, values, groups, bases)
            self.counts["compiled"] += over is not None
        self._known[key] = over
        if over is None:
            return None
        everything = (*everything, *bases)
        fresh = over.run(over.take(everything), everything)
        if fresh is None:
            return None
        _count_writes(values, compiled.written_arguments, groups, bases)
        return over.give(everything, fresh)

    def _make_room(self):
        if len(self._known) >= MOST:
            dropped = self._known.pop(next(iter(self._known)), None)
            self.counts["dropped"] += dropped is not None

    def _over(self, compiled, everything, values, groups, bases):
        native, encoded = compiled.native, compiled.encoded
        try:
            memories = [
                _memory(native.names, values, *each) for each in zip(groups, bases, strict=True)
            ]
            over = native.within(memories, _sizes(encoded, everything))
        except UserError:
            return None
        names = [name for name in over.names if name not in encoded.names]
        if any(name not in over.names for each in encoded.sparse for name in each.arguments()):
            return None
        numbers = range(len(everything), len(everything) + len(bases))
        encoded = dataclasses.replace(
            encoded,
            names=[*encoded.names, *names],
            arguments=[*encoded.arguments, *numbers],
            requires_grad=[*encoded.requires_grad, *[base.requires_grad for base in bases]],
        )
        return compiled.over_bases(over, encoded)


def _count_writes(values, written, groups, bases):
    """A tensor that was made for the call has a version counter of its own."""
    for group, base in zip(groups, bases, strict=True):
        tensors = [values[i] for i in group if i in written]
        own = [each for each in tensors if base is not _owner(each) and not each.is_inference()]
        torch.autograd.graph.increment_version(own)


def _owner(tensor):
    return tensor._base if tensor._is_view() else tensor


def _groups(values, touching, recorded):
    """Numbers of what has to lie in one base. Where there is a history, or will be one, the base is
    the tensor that has it, and all else in its memory lies in it as well."""
    groups = []
    for group in touching:
        if _has_history(values, group, recorded):
            storage = _storage(values[group[0]])
            group = [i for i, value in enumerate(values) if _storage(value) == storage]
        groups.append(tuple(group))
    wholes = [set(group) for group in groups]
    return [each for each in dict.fromkeys(groups) if not any(set(each) < one for one in wholes)]


def _storage(value):
    """None for what has no elements."""
    is_there = isinstance(value, torch.Tensor) and value.numel() > 0
    return value.untyped_storage()._cdata if is_there else None


def _has_history(values, group, recorded):
    tensors = [values[i] for i in group]
    has = any(each.requires_grad or _owner(each).requires_grad for each in tensors)
    return has or not recorded.isdisjoint(group)


def _base_of(values, group, recorded):
    """The tensor that all members are views of; without a history, one over the memory from the
    first to the last of them. None where neither is there."""
    members = [values[i] for i in group]
    size = members[0].element_size()
    owner = _owner(members[0])
    if any(each.element_size() != size for each in (owner, *members)):
        return None
    if not _has_history(values, group, recorded):
        return _over_memory(members)
    return owner if all(_owner(each) is owner for each in members) else None


def _over_memory(members):
    begin = min(each.storage_offset() for each in members)
    end = max(each.storage_offset() + _extent(each) for each in members)
    dtypes = {each.dtype for each in members}
    dtype = dtypes.pop() if len(dtypes) == 1 else _BITS[members[0].element_size()]
    with torch.no_grad():
        made = torch.empty(0, dtype=dtype)
        return made.set_(members[0].untyped_storage(), begin, (end - begin,), (1,))


def _extent(tensor):
    """Places from the first to the last."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _key(values):
    """Numbers that the program takes at each call are no part of it; sizes are."""
    return tuple(
        (value.shape, value.stride(), value.storage_offset(), value.dtype, value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
        if not isinstance(value, float)
    )


def _memory(names, values, group, base):
    """As GraphFunction.within takes it."""
    begin = base.storage_offset()
    members = [
        (names[i], list(values[i].stride()), values[i].storage_offset() - begin) for i in group
    ]
    dtype = dtype_name(base.dtype)
    return (dtype, list(base.shape), list(base.stride()), base.requires_grad, members)


def _sizes(encoded, everything):
    """Of the symbols of the program's text."""
    sizes = {name: int(read(everything)) for name, read in encoded.symbols.items()}
    given = zip(encoded.names, encoded.arguments, strict=True)
    return sizes | {name: everything[i] for name, i in given if type(everything[i]) is int}
