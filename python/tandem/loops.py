"""Loops and branches as nodes of the program: the text of the call, and of the bodies as graphs of
the same text. What the program cannot run yet stays with Python (host.py), which says why."""

import torch

from tandem.capture import Captured
from tandem.control_flow import Cond, WhileLoop
from tandem.cutting import needs_chain
from tandem.gradients import GRADIENT


class InPython(Exception):
    """Why the program does not run the node."""


def control_call(node, flags, argument, encoder_of):
    """Text of the call, and of its bodies. `flags`: of the operands, whether they have a history;
    `argument(value)`: text; `encoder_of(captured, number)`: what writes body `number`."""
    _check(node, flags)
    encoders = [_encoder(body, encoder_of, i) for i, body in enumerate(node.target.bodies)]
    texts = [_text(encoder) for encoder in encoders]
    predicate, lists = _operands(node)
    parts = [] if predicate is None else [argument(predicate)]
    parts += [argument(values) for values in lists]
    parts += [f'"{encoder.name}"' for encoder in encoders]
    kind = {Cond: "cond", WhileLoop: "while_loop"}.get(type(node.target), "scan")
    return f"tandem.{kind}({', '.join(parts)})", texts


def _operands(node):
    """The operands as the node takes them: lists of tensors, but for the predicate of a branch."""
    control, values = node.target, list(node.args)
    if isinstance(control, Cond):
        return values[0], [_tensors(values[1:])]
    carried = values[: control.carried]
    if isinstance(control, WhileLoop):
        return None, [_tensors(carried), _tensors(values[control.carried :])]
    end = control.carried + control.rows
    return None, [_tensors(carried), _tensors(values[control.carried : end]), _tensors(values[end:])]


def _tensors(values):
    return [value for value in values if isinstance(_value(value), torch.Tensor)]


def _value(value):
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value


def _check(node, flags):
    control = node.target
    if isinstance(control, WhileLoop) and any(flags):
        raise InPython("a loop that data end has no gradient in a program")
    graph = node.graph
    if any(flags) and any(each.target is GRADIENT for each in graph.nodes):
        raise InPython("a gradient is asked for inside of the graph")
    first = _value(node.args[0]) if isinstance(control, Cond) else None
    if isinstance(control, Cond) and getattr(first, "dtype", None) is not torch.bool:
        raise InPython("the predicate is no tensor of bool")
    for value in map(_value, node.args):
        if not isinstance(value, (torch.Tensor, torch.SymInt, int, type(None))):
            raise InPython(f"an operand is a {type(value).__name__}")
    for body in control.bodies:
        for value in body.results():
            if value is not None and not isinstance(value, torch.Tensor):
                raise InPython("a body gives a number")


def _encoder(body, encoder_of, number):
    fakes = [*body.fakes, *body.symbols]
    captured = Captured(body.graph_module, fakes, [False] * len(fakes), [], "body", body.bodies)
    captured.no_grad, captured.autocast = body.no_grad, body.autocast
    if needs_chain(captured):
        raise InPython("a size in a body is known to data alone")
    encoder = encoder_of(captured, number)
    encoder.gives_none = False
    encoder.knows_autocast = captured.autocast is None and body.bodies.behind_autograd
    return encoder


def _text(encoder):
    encoded = encoder.encode()
    if encoded.lifted or encoded.readers or encoded.has_asserts:
        raise InPython("a body holds tensors, reads floats or asserts")
    return encoded.text
