"""Tensors that hold others (`__tensor_flatten__`): their parts, and how they are made of them."""

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
        self._absent = [name for name, held in vars(value).items() if held is None]
        self._is_nested = any(self.parts.values())

    def parts_in(self, value):
        """Of a value that the guards of a compiled graph know: asking each tensor which parts it
        has takes 3 us of a call. One that it did not have may have come: no guard sees that."""
        held = vars(value)
        if self._is_nested or any(held.get(name) is not None for name in self._absent):
            return parts_of(value)
        return [getattr(value, name) for name in self.parts]

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
