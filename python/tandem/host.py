"""Nodes of a compiled graph that Python runs: an operator that torch computes
(`on_unsupported="eager"`), a loop or branch around bodies that Tandem compiled, or an effect.

The program calls `forward(tensors, sizes, results)` with tensors over its own buffers; what the
node gives is copied into `results`. The gradient runs the node once more, recorded by autograd, so
nothing has to live from forward to backward.
"""

import re

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tandem._tandem import Unsupported
from tandem.fakes import place_text, written_arguments


class _HostNode:
    """`tensors` and `sizes`: what the node reads, nodes and texts; `written`: those of its
    arguments that it writes, whose new values are the results then."""

    written = ()
    seed = False  # the last tensor that forward and backward get is a seed

    def __init__(self, node, sizes):
        self.node = node
        self.tensors = []
        self.sizes = []
        self._text_of_size = sizes.text
        self._args = fx.node.map_aggregate(node.args, self._slot)
        self._kwargs = fx.node.map_aggregate(dict(node.kwargs), self._slot)

    def _slot(self, value):
        if isinstance(value, fx.Node):
            known = value.meta.get("val")
            if isinstance(known, torch.Tensor):
                if value not in self.tensors:
                    self.tensors.append(value)
                return _Slot("tensor", self.tensors.index(value))
            value = known
        if isinstance(value, torch.SymInt):
            self.sizes.append(self._text_of_size(value))
            return _Slot("size", len(self.sizes) - 1)
        return value

    def _filled(self, tensors, sizes):
        """Arguments of the target."""

        def fill(value):
            if not isinstance(value, _Slot):
                return value
            return (tensors if value.kind == "tensor" else sizes)[value.number]

        return fx.node.map_aggregate(self._args, fill), fx.node.map_aggregate(self._kwargs, fill)

    def forward(self, tensors, sizes, results):
        if self.written:
            tensors = [tensor.clone() for tensor in tensors]
        with torch.no_grad():
            try:
                values = self._run(tensors, sizes)
            except Exception as error:
                self._name(error)
                raise
            for result, value in zip(results, values, strict=True):
                result.copy_(value)

    def backward(self, tensors, sizes, results):
        """`tensors`: the node's, then a gradient for each result that is a float; `results`: a
        gradient for each tensor that is one."""
        count = len(self.tensors) + self.seed
        inputs = [tensor.detach() for tensor in tensors[:count]]
        leaves = [tensor.requires_grad_() for tensor in inputs if tensor.is_floating_point()]
        try:
            gradients = self._gradients(inputs, leaves, tensors[count:], sizes)
        except Exception as error:
            self._name(error, "the gradient of ")
            raise
        for result, gradient in zip(results, gradients, strict=True):
            result.copy_(gradient) if gradient is not None else result.zero_()

    def functions(self):
        """By order of the derivative."""
        return self.forward, self.backward, self.second

    def second(self, tensors, sizes, results):
        """The gradient of `backward`. `tensors`: its tensors, then a tangent for each of its
        results; `results`: a gradient for each of its tensors that is a float."""
        inputs = [tensor.detach() for tensor in tensors]
        count = len(self.tensors) + self.seed
        floats = sum(tensor.is_floating_point() for tensor in inputs[:count])
        given, tangents = inputs[: len(inputs) - floats], inputs[len(inputs) - floats :]
        leaves = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
        try:
            with torch.enable_grad():
                first = self._gradients(given[:count], leaves[:floats], given[count:], sizes, True)
            ends = [
                (gradient, tangent)
                for gradient, tangent in zip(first, tangents, strict=True)
                if gradient is not None and gradient.requires_grad
            ]
            gradients = [None] * len(leaves)
            if ends:
                outs, grads = zip(*ends, strict=True)
                wanted = [leaf for leaf in leaves if leaf.requires_grad]
                found = iter(torch.autograd.grad(outs, wanted, grads, allow_unused=True))
                gradients = [next(found) if leaf.requires_grad else None for leaf in leaves]
        except Exception as error:
            self._name(error, "the second gradient of ")
            raise
        for result, gradient in zip(results, gradients, strict=True):
            result.copy_(gradient) if gradient is not None else result.zero_()

    def _name(self, error, what=""):
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(
                f"tandem: raised by {what}{self.name}, which runs in torch as a node of a compiled "
                f"graph{place_text(self.node)}"
            )

    def _gradients(self, inputs, leaves, tangents, sizes, recorded=False):
        outputs = self._differentiable(inputs, sizes)
        pairs = [
            (out, grad)
            for out, grad in zip(outputs, tangents, strict=True)
            if out.requires_grad
        ]
        gradients = [None] * len(leaves)
        if pairs:
            outs, grads = zip(*pairs, strict=True)
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            found = iter(
                torch.autograd.grad(outs, wanted, grads, create_graph=recorded, allow_unused=True)
            )
            gradients = [next(found) if leaf.requires_grad else None for leaf in leaves]
        return gradients


class HostControl(_HostNode):
    """A control-flow node."""

    def __init__(self, node, sizes):
        super().__init__(node, sizes)
        self.name = node.target.kind
        self.seed = node.target.takes_seed
        self._symbols = len(self.sizes)
        self.sizes += [sizes.text(symbol) for symbol in node.target.symbols]

    def _run(self, tensors, sizes):
        seed = int(tensors[-1]) if self.seed else None
        operands, _ = self._filled(tensors, sizes)
        return self.node.target.run(operands, sizes[self._symbols :], seed)

    def _differentiable(self, inputs, sizes):
        with torch.enable_grad():
            return [out for out in self._run(inputs, sizes) if out.is_floating_point()]


class HostEffect(_HostNode):
    """What is there for what it does, as `print`. It reads the effect before it, and gives one
    number for the next one to read: so they run in their order, each once."""

    def __init__(self, node, sizes):
        super().__init__(node, sizes)
        self.name = str(node.target).removesuffix(".default")

    def _run(self, tensors, sizes):
        args, kwargs = self._filled(tensors, sizes)
        self.node.target(*args, **kwargs)
        return [torch.zeros((), dtype=torch.int64)]


def _wait(results):
    """A collective gives its tensors before they hold anything, and its program waits where it
    reads them. Here they are copied at once."""
    for result in results:
        torch.ops._c10d_functional.wait_tensor(result.detach())


class HostOp(_HostNode):
    """An operator of torch."""

    def __init__(self, node, sizes):
        super().__init__(node, sizes)
        self.name = str(node.target).removesuffix(".default")
        self.written = self._written_arguments()
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            raise Unsupported(f"[{self.name}] is random, and Tandem does not have it")
        if self.written and any(
            result.alias_info is None for result in node.target._schema.returns
        ):
            raise Unsupported(f"[{self.name}] writes arguments and gives new results")

    def _written_arguments(self):
        return [each for each in written_arguments(self.node) if isinstance(each, fx.Node)]

    def _run(self, tensors, sizes):
        args, kwargs = self._filled(tensors, sizes)
        out = self.node.target(*args, **kwargs)
        if self.written:
            return [tensors[self.tensors.index(each)] for each in self.written]
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        if self.node.target.namespace.startswith("_c10d_functional"):
            _wait(results)
        return results

    def _differentiable(self, inputs, sizes):
        """Results that are floats, recorded; arguments that torch refuses to differentiate are
        constants."""
        while True:
            try:
                with torch.enable_grad():
                    read = [tensor.clone() for tensor in inputs] if self.written else inputs
                    return [out for out in self._run(read, sizes) if out.is_floating_point()]
            except RuntimeError as error:
                refused = re.search(r"differentiable with respect to argument '(\w+)'", str(error))
                if refused is None or not self._make_constant(inputs, refused[1]):
                    raise

    def _make_constant(self, inputs, name):
        """Whether argument `name` had a tensor that required grad until now."""
        given = zip(self.node.target._schema.arguments, self.node.args, strict=False)
        named = {argument.name: value for argument, value in given} | dict(self.node.kwargs)
        changed = False
        for value in pytree.tree_leaves(named[name]):
            if value in self.tensors:
                leaf = inputs[self.tensors.index(value)]
                changed = changed or leaf.requires_grad
                leaf.requires_grad_(False)
        return changed


class _Slot:
    """Stands for an argument that comes with the call."""

    def __init__(self, kind, number):
        self.kind = kind
        self.number = number
