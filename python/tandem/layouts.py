"""Tensors that hold others (`__tensor_flatten__`): their parts, and how they are made of them."""

import operator

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tandem._tandem import Unsupported


def holds_others(value):
    """Those of other layouts (jagged) have sizes of a kind of their own."""
    return is_traceable_wrapper_subclass(value) and value.layout is torch.strided


class Layout:
    """How a value is made of its parts."""

    def __init__(self, value):
        names, self.context = value.__tensor_flatten__()
        self.type, self.size, self.stride = type(value), value.shape, value.stride()
        if any(isinstance(each, torch.SymInt) for each in (*self.size, *self.stride)):
            raise Unsupported(f"a {self.type.__name__} of sizes that are not known")
        self.parts = {name: layout_of(getattr(value, name)) for name in names}
        self._reads = [operator.attrgetter(path) for path in self._paths()]

    def _paths(self):
        """Of attributes, from one tensor to the next, to each part."""
        return [
            name + rest
            for name, layout in self.parts.items()
            for rest in ([f".{path}" for path in layout._paths()] if layout else [""])
        ]

    def parts_in(self, value):
        """Of a value that has this layout: the guards of a compiled graph say so, and asking each
        tensor at each call takes 3 us of it."""
        return [read(value) for read in self._reads]

    def made_of(self, parts):
        inner = {name: made_of(layout, parts) for name, layout in self.parts.items()}
        return self.type.__tensor_unflatten__(inner, self.context, self.size, self.stride)

    def key(self):
        parts = tuple((name, layout and layout.key()) for name, layout in self.parts.items())
        return self.type, repr(self.context), tuple(self.size), tuple(self.stride), parts


def layout_of(value):
    return Layout(value) if holds_others(value) else None


def made_of(layout, parts):
    """`parts`: an iterator, which goes on behind those of the value."""
    return next(parts) if layout is None else layout.made_of(parts)


def parts_of(value):
    if not holds_others(value):
        return [value]
    names, _ = value.__tensor_flatten__()
    return [part for name in names for part in parts_of(getattr(value, name))]


def flat_parts(values):
    return [part for value in values for part in parts_of(value)]
