"""Loops, branches and regions as nodes of the program: the text of the call, and of the bodies as
graphs of the same text. What the program cannot run yet stays with Python (host.py), which says
why."""

import torch

from tandem._tandem import Unsupported
from tandem.capture import Captured
from tandem.control_flow import Cond, Region, WhileLoop
from tandem.gradients import GRADIENT
from tandem.numbers import NUMBERS, is_number
from tandem.outside import has_outside, is_outside, makes_size


class InPython(Exception):
    """Why the program does not run the node."""


def control_bodies(node, encoder_of):
    """Names of the bodies, and their texts. `encoder_of(captured, number)`: what writes body
    `number`."""
    control = node.target
    encoders = [_encoder(body, encoder_of, i) for i, body in enumerate(control.bodies)]
    for encoder in encoders:
        encoder.carried = control.carried if isinstance(control, WhileLoop) else 0
    return [encoder.name for encoder in encoders], [_text(encoder) for encoder in encoders]


def control_call(node, argument, names):
    """Text of the call of bodies of these names; `argument(value)`: text."""
    predicate, lists = _operands(node)
    parts = [] if predicate is None else [argument(predicate)]
    parts += [argument(values) for values in lists]
    parts += [f'"{name}"' for name in names]
    kinds = {Cond: "cond", WhileLoop: "while_loop", Region: "invoke_subgraph"}
    return f"tandem.{kinds.get(type(node.target), 'scan')}({', '.join(parts)})"


def _operands(node):
    """The operands as the node takes them: lists of tensors, but for the predicate of a branch.
    Numbers are tensors, too; what is an expression of sizes the bodies know."""
    control, values = node.target, list(node.args)
    if isinstance(control, Cond):
        return values[0], [_given(values[1:])]
    if isinstance(control, Region):
        return None, [_given(values)]
    carried = [value for value in values[: control.carried] if value is not None]
    if isinstance(control, WhileLoop):
        return None, [carried, _given(values[control.carried :])]
    end = control.carried + control.rows
    return None, [carried, _given(values[control.carried : end]), _given(values[end:])]


def _given(values):
    kinds = (torch.Tensor, torch.SymFloat, torch.SymBool)
    return [value for value in values if isinstance(_value(value), kinds)]


def _value(value):
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value


def _check(node, flags):
    control = node.target
    graph = node.graph
    if is_outside(node):
        raise InPython("sizes of what it gives depend on what it runs")
    if any(flags) and any(each.target is GRADIENT for each in graph.nodes):
        raise InPython("a gradient is asked for inside of the graph")
    first = _value(node.args[0]) if isinstance(control, Cond) else True
    if not isinstance(first, NUMBERS) and getattr(first, "dtype", None) is not torch.bool:
        raise InPython("the predicate is no bool")
    for body in control.bodies if isinstance(control, Region) else ():  # may run inline, twice
        if any(map(makes_size, body.graph_module.graph.nodes)):
            raise InPython("a size in a region is known to data alone")


def _encoder(body, encoder_of, number):
    fakes = [*body.fakes, *body.symbols]
    captured = Captured(body.graph_module, fakes, [False] * len(fakes), [], "body", body.bodies)
    captured.no_grad, captured.autocast = body.no_grad, body.autocast
    if has_outside(captured):
        raise InPython("a body has what no program holds")
    encoder = encoder_of(captured, number)
    encoder.gives_none = False
    encoder.knows_autocast = captured.autocast is None and body.bodies.behind_autograd
    return encoder


def _text(encoder):
    encoded = encoder.encode()
    if encoded.lifted or encoded.readers:
        raise InPython("a body holds tensors, or reads floats")
    return encoded.text


class ControlLines:
    """The part of the encoder that writes loops and branches."""

    def _inner(self, captured, name):
        inner = type(self)(captured, self._known, False, replacements=self._sizes.replacements)
        inner.name = name
        inner.is_body = True
        return inner

    def _operand(self, value):
        """Of a body: a tensor."""
        if isinstance(value, list):
            return "[" + ", ".join(map(self._operand, value)) + "]"
        is_tensor = value is None or not (isinstance(value, NUMBERS) or is_number(value))
        return self._argument(value) if is_tensor else self.number(value)

    def _number_of(self, node):
        """Among the results of a loop or branch."""
        self._tensors[node] = "%" + self._names[node]
        made = node.args[0].meta.get("unbacked_bindings") or ()
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr in made:
            self._read_symbol(value.node.expr, self._tensors[node])

    def _control(self, node):
        self._ops[node.target.kind] = self._ops.get(node.target.kind, 0) + 1
        history = self._nodes_with_history()
        flags = [arg in history and not self._no_grad for arg in node.args]
        values = list(node.meta["val"])
        results = [f"v{len(self._lines)}_{i}" for i in range(len(values))]
        self._names[node] = results
        kept = [pair for pair in zip(results, values, strict=True) if pair[1] is not None]
        name = f"{self.name}_{len(self._lines)}"

        def encoder_of(captured, number):
            return self._inner(captured, f"{name}_{number}")

        try:
            _check(node, flags)
            if node.target not in self._written:  # calls of a region are of one body
                self._written[node.target], texts = control_bodies(node, encoder_of)
                self._more_graphs += texts
            call = control_call(node, self._operand, self._written[node.target])
        except (InPython, Unsupported) as reason:
            if isinstance(node.target, Region):
                raise Unsupported(str(reason)) from None
            return self._host_control(node, flags, kept, reason)
        self._controls[node.target.kind] = self._controls.get(node.target.kind, 0) + 1
        typed = [f"%{result}: {self._type_text(value)}" for result, value in kept]
        self._add_line(typed, call, node)
