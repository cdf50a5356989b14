"""Which values of a trace share memory, and where a history ends on the way from one to another."""

import operator

import torch

from tandem._tandem import Unsupported
from tandem.fakes import is_in_place, is_tensor, storage_of, written_by

_DETACHES = (torch.ops.aten.detach.default, torch.ops.aten.detach_.default)


class Memory:
    """Filled node by node, in order."""

    def __init__(self):
        self.made = {}  # storage -> node that made it
        self._inputs = set()  # storages
        self._parent = {}  # node -> node whose memory it shares
        self._ends = {}  # node -> Result.history that begins there
        self._own = set()  # those of them that autograd sees a write to, there or below
        self._hooked = set()  # storages of views that have hooks, and of what stands for them
        self._handed_on = set()  # the latter

    def add_input(self, value):
        self._inputs.add(storage_of(value))

    def is_of_input(self, value):
        return storage_of(value) in self._inputs

    def note(self, node, no_grad):
        """`no_grad`: the mode that it stands in."""
        for written in written_by(node) if not no_grad else ():
            self._own.add(self._end_above(written))
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return
        storage = storage_of(value)
        if storage not in self._inputs:
            self.made.setdefault(storage, node)
        maker = node.args[0] if node.target is operator.getitem else node
        for source in maker.all_input_nodes:
            if is_tensor(source) and storage_of(source.meta["val"]) == storage:
                self._parent[node] = source
                break
        if node.target in _DETACHES:
            self._ends[node] = "none"
        elif no_grad and not is_in_place(node.target):
            self._ends[node] = "no_grad"

    def _end_above(self, node):
        while node is not None and node not in self._ends:
            node = self._parent.get(node)
        return node

    def note_hook(self, tensor, node):
        """What a hook hands on has memory of its own here; eager's is that of `tensor`."""
        if self._parent.get(tensor) is not None:
            made = storage_of(node.meta["val"][0])
            self._hooked |= {made, storage_of(tensor.meta["val"])}
            self._handed_on.add(made)

    def check_write(self, node, name):
        if storage_of(node.meta["val"]) in self._hooked:
            raise Unsupported(f"[{name}] writes to a view that has a hook")

    def check_result(self, value):
        if storage_of(value) in self._handed_on:
            raise Unsupported("a result is a view that has a hook")

    def history(self, node, differentiates):
        """Result.history of a view."""
        found = "base"
        while node is not None and found != "none":
            if node in self._ends:
                if node in self._own and differentiates:
                    raise Unsupported("a result is a detached alias with a history of its own")
                found = self._ends[node]
            node = self._parent.get(node)
        return found

    def input_below(self, node):
        """The placeholder that it was made from by views and writes, or None. Other inputs share
        its memory in this call, and need not in the next one."""
        while node is not None and node.op != "placeholder":
            node = self._parent.get(node)
        return node
