"""Calls whose inputs share memory with one that is written. The graph is compiled once more, for a
tensor that owns that memory, with the inputs as views that it takes itself: then functionalize
knows who sees which write.

Results that are inputs, or views of them, are taken of the caller's own tensors, as always."""

import torch
from torch import fx

from tandem._tandem import Unsupported

MOST = 16  # ways to overlap, of one graph; then calls run in torch


class Overlapping:
    """`compile(module, examples)` gives a callable or raises Unsupported. `written`: numbers of the
    graph's inputs."""

    def __init__(self, module, written, compile):
        self._module = module
        self._written = set(written)
        self._compile = compile
        self._known = {}  # what a call looks like -> callable, or None: it runs in torch

    def run(self, args):
        """All results, or None where this call is not for us; nothing has run then."""
        groups = self._groups(args)
        bases = [_base_of([args[i] for i in group]) for group in groups]
        if not groups or any(base is None for base in bases):
            return None
        key = (_key(args), _key(bases), tuple(groups))
        if key not in self._known:
            self._known[key] = self._compiled(args, groups, bases)
        call = self._known[key]
        if call is None:
            return None
        inside = {i for group in groups for i in group}
        results = call(*bases, *[arg for i, arg in enumerate(args) if i not in inside])
        self._count_writes(args, groups, bases)
        return results

    def _groups(self, args):
        """Numbers of the inputs of one memory, where one of them is written."""
        groups = {}
        for i, arg in enumerate(args):
            if isinstance(arg, torch.Tensor) and arg.numel() > 0:
                groups.setdefault(arg.untyped_storage()._cdata, []).append(i)
        return [
            tuple(group)
            for group in groups.values()
            if len(group) > 1 and self._written.intersection(group)
        ]

    def _compiled(self, args, groups, bases):
        if len(self._known) >= MOST:
            return None
        module, examples = _over_bases(self._module, args, groups, bases)
        try:
            return self._compile(module, examples)
        except Unsupported:
            return None

    def _count_writes(self, args, groups, bases):
        """A tensor that was made for the call has a version counter of its own."""
        for group, base in zip(groups, bases, strict=True):
            written = [args[i] for i in group if i in self._written]
            own = [each for each in written if base is not _owner(each) and not each.is_inference()]
            torch.autograd.graph.increment_version(own)


def _owner(tensor):
    return tensor._base if tensor._is_view() else tensor


def _base_of(members):
    """The tensor that all members are views of; else, without a history, one over their whole
    memory. None where neither is there."""
    owner = _owner(members[0])
    first = members[0]
    if any(each.dtype != first.dtype for each in members) or owner.dtype != first.dtype:
        return None
    if all(_owner(each) is owner for each in members):
        return owner
    if any(each.requires_grad for each in members):
        return None
    storage = first.untyped_storage()
    size = storage.nbytes() // first.element_size()
    with torch.no_grad():
        return torch.empty(0, dtype=first.dtype).set_(storage, 0, (size,), (1,))


def _key(values):
    return tuple(
        (value.shape, value.stride(), value.storage_offset(), value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    )


def _over_bases(module, args, groups, bases):
    """The graph with inputs: bases, then what is in no group."""
    graph = fx.Graph()
    made = {}
    examples = list(bases)
    for number, group in enumerate(groups):
        base = graph.placeholder(f"base{number}")
        for i in group:
            place = (tuple(args[i].shape), args[i].stride(), args[i].storage_offset())
            made[i] = (base, place)
    places = module.graph.find_nodes(op="placeholder")
    nodes = {}
    for i, place in enumerate(places):
        if i not in made:
            nodes[place] = graph.placeholder(place.name)
            examples.append(args[i])
    for i, (base, place) in made.items():
        nodes[places[i]] = graph.call_function(torch.as_strided, (base, *place))
    graph.output(graph.graph_copy(module.graph, nodes))
    return fx.GraphModule(module, graph), examples
