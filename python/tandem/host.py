"""Nodes of a compiled graph that Python runs: an operator that torch computes
(`on_unsupported="eager"`), a loop or branch around bodies that Tandem compiled, or an effect.

The program calls `forward(tensors, sizes, results)` with tensors over its own buffers; what the
node gives is copied into `results`. Where a gradient may be asked for, autograd records the run,
and the gradient goes through that (recorded.py). Where nothing was recorded, it runs the node once
more.
"""

import re
import threading

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tandem._tandem import Unsupported
from tandem.fakes import place_text, written_arguments
from tandem.numbers import is_number
from tandem.outside import has_generator
from tandem.recorded import Recorded, current, keeps, using

# Running statistics, in the forms with `out=`.
_WRITES_MORE = {torch.ops.aten.native_batch_norm}
_NUMBER_TYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


class _HostNode:
    """`tensors` and `sizes`: what the node reads, nodes and texts; `written`: those of its
    arguments that it writes, whose new values are the results then."""

    written = ()
    histories = ()  # by tensor: it may have one; none at all where the node's results have none
    seed = False  # the last tensor that forward and backward get is a seed

    def __init__(self, node, sizes):
        self.node = node
        self.tensors = []
        self.sizes = []
        self._text_of_size = sizes.text
        self._ahead = threading.local()
        self._args = fx.node.map_aggregate(node.args, self._slot)
        self._kwargs = fx.node.map_aggregate(dict(node.kwargs), self._slot)

    def _slot(self, value):
        if isinstance(value, fx.Node):
            known = value.meta.get("val")
            if value.op == "get_attr" and known is None:
                return getattr(value.graph.owning_module, value.target)  # a generator
            if isinstance(known, torch.Tensor) or _is_read(value):
                if value not in self.tensors:
                    self.tensors.append(value)
                kind = "tensor" if isinstance(known, torch.Tensor) else "number"
                return _Slot(kind, self.tensors.index(value))
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
            if value.kind == "number":
                return tensors[value.number].item()
            return (tensors if value.kind == "tensor" else sizes)[value.number]

        return fx.node.map_aggregate(self._args, fill), fx.node.map_aggregate(self._kwargs, fill)

    def forward(self, tensors, sizes, results):
        values = self._taken() or self._named_values(tensors, sizes)
        given = [value for value in values if value is not None]
        with torch.no_grad():
            for result, value in zip(results, given, strict=True):
                result.copy_(value)

    def ahead(self, tensors, sizes):
        """All that it gives; its `forward` gives this, and runs nothing."""
        self._ahead.values = None
        self._ahead.values = self._named_values(tensors, sizes)
        return self._ahead.values

    def _taken(self):
        values = getattr(self._ahead, "values", None)
        self._ahead.values = None
        return values

    def _named_values(self, tensors, sizes):
        try:
            return self._values(tensors, sizes)
        except Exception as error:
            self._name(error)
            raise

    def _values(self, tensors, sizes):
        records = current()
        recorded = records and records.of(self, lambda: self._record(tensors, sizes))
        if recorded:
            return recorded.values
        with torch.no_grad():
            read = [tensor.clone() for tensor in tensors] if self.written else tensors
            return self._run(read, sizes)

    def _record(self, tensors, sizes):
        """As eager would. The program uses its buffers for something else behind the node."""
        inputs = [tensor.clone() for tensor in tensors]
        for tensor, has in zip(inputs, self.histories, strict=False):
            tensor.requires_grad_(has and tensor.is_floating_point())
        with using(None), torch.autograd.graph.saved_tensors_hooks(_same, _same):
            values = self._recorded(inputs, sizes)
        leaves = [tensor for tensor in inputs if tensor.is_floating_point()]
        return Recorded(leaves, values)

    def _recorded_before(self):
        records = current()
        return records and records.find(self)

    def _recorded_now(self, inputs, sizes):
        """Of what runs once more."""
        leaves = [tensor.requires_grad_() for tensor in inputs if tensor.is_floating_point()]
        with using(None):
            return Recorded(leaves, self._recorded(inputs, sizes))

    def backward(self, tensors, sizes, results):
        """`tensors`: the node's, then a gradient for each result that is a float; `results`: a
        gradient for each tensor that is one."""
        count = len(self.tensors) + self.seed
        recorded = self._recorded_before()
        keep = bool(recorded) and keeps()
        try:
            if not recorded:
                inputs = [tensor.detach() for tensor in tensors[:count]]
                recorded = self._recorded_now(inputs, sizes)
            gradients = _gradients(recorded, tensors[count:], retain_graph=keep)
        except Exception as error:
            self._name(error, "the gradient of ")
            raise
        _give(gradients, results)

    def functions(self):
        """By order of the derivative."""
        return self.forward, self.backward, self.second

    def second(self, tensors, sizes, results):
        """The gradient of `backward`. `tensors`: its tensors, then a tangent for each of its
        results; `results`: a gradient for each of its tensors that is a float."""
        tensors = [tensor.detach() for tensor in tensors]
        count = len(self.tensors) + self.seed
        floats = sum(tensor.is_floating_point() for tensor in tensors[:count])
        inputs, tangents = tensors[:count], tensors[len(tensors) - floats :]
        given = [tensor.requires_grad_() for tensor in tensors[count : len(tensors) - floats]]
        try:
            recorded = self._recorded_before() or self._recorded_now(inputs, sizes)
            with torch.enable_grad():
                first = _gradients(recorded, given, create_graph=True)
            leaves = [*recorded.leaves, *given]
            gradients = _gradients_of(first, leaves, tangents, retain_graph=True)
        except Exception as error:
            self._name(error, "the second gradient of ")
            raise
        _give(gradients, results)

    def _name(self, error, what=""):
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(
                f"tandem: raised by {what}{self.name}, which runs in torch as a node of a compiled "
                f"graph{place_text(self.node)}"
            )


def _is_read(node):
    """A number that comes as a tensor; an integer comes as a size."""
    value = node.meta.get("val")
    return is_number(node) and isinstance(value, (torch.SymFloat, torch.SymBool))


def _same(value):
    return value


def _gradients(recorded, tangents, **how):
    """Of the leaves."""
    return _gradients_of(recorded.outputs(), recorded.leaves, tangents, **how)


def _gradients_of(outputs, leaves, tangents, **how):
    """None for what nothing leads to."""
    pairs = [
        (out, tangent)
        for out, tangent in zip(outputs, tangents, strict=True)
        if out is not None and out.requires_grad
    ]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not pairs or not wanted:
        return [None] * len(leaves)
    outs, grads = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outs, wanted, grads, allow_unused=True, **how))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


def _give(gradients, results):
    with torch.no_grad():
        for result, gradient in zip(results, gradients, strict=True):
            result.copy_(gradient) if gradient is not None else result.zero_()


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
        results = self.node.target.run(operands, sizes[self._symbols :], seed)
        return [_number_as_tensor(value) for value in results]

    def _recorded(self, inputs, sizes):
        with torch.enable_grad():
            return self._run(inputs, sizes)


class HostSizes:
    """Runs a node, and gives integers that follow from what it gives: sizes, which the program must
    know before there is a place for the rest. `paths`: to each of them."""

    histories = ()

    def __init__(self, host, paths):
        self.name = host.name
        self.node = host.node
        self.sizes = host.sizes
        self.of = host
        self._paths = paths

    def functions(self):
        return self.forward, self.forward, self.forward  # integers have no gradient

    def forward(self, tensors, sizes, results):
        values = self.of.ahead(tensors, sizes)
        made = values if isinstance(self.node.meta["val"], (list, tuple)) else values[0]
        for result, path in zip(results, self._paths, strict=True):
            result.fill_(int(pytree.key_get(made, path)))


def _number_as_tensor(value):
    is_number = isinstance(value, (bool, int, float))
    return torch.tensor(value, dtype=_NUMBER_TYPES[type(value)]) if is_number else value


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
        if node.target.overloadpacket in _WRITES_MORE and self.written:
            raise Unsupported(f"[{self.name}] writes more than its schema says")
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags and not has_generator(node):
            raise Unsupported(f"[{self.name}] is random, and Tandem does not have it")
        if self.written and any(
            result.alias_info is None for result in node.target._schema.returns
        ):
            raise Unsupported(f"[{self.name}] writes arguments and gives new results")

    def returned(self):
        """Of what it writes, the numbers of what it gives: of as many all in their order, else by
        the schema's names for their memory."""
        schema = self.node.target._schema
        aliases = [each.alias_info for each in schema.arguments]
        sets = [alias.before_set for alias in aliases if alias and alias.is_write]
        if len(self.written) != len(sets):  # lists
            return range(len(self.written))
        return [sets.index(result.alias_info.before_set) for result in schema.returns]

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

    def _recorded(self, inputs, sizes):
        """Arguments that torch refuses to differentiate, before it runs anything, are constants."""
        while True:
            try:
                with torch.enable_grad():
                    read = [tensor.clone() for tensor in inputs] if self.written else inputs
                    return self._run(read, sizes)
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


class HostDraw(HostOp):
    """One that draws from a generator of the caller. It reads the effect before it, and gives one
    number for the next, as a HostEffect does."""

    def _run(self, tensors, sizes):
        return [*super()._run(tensors, sizes), torch.zeros((), dtype=torch.int64)]


class _Slot:
    """Stands for an argument that comes with the call."""

    def __init__(self, kind, number):
        self.kind = kind
        self.number = number
