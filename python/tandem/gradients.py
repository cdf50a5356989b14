"""torch.autograd.grad inside Dynamo's graph (a training step in one graph, with
torch._dynamo.config.trace_autograd_ops): a node of the trace that names what it differentiates. The
compiler writes the gradients; torch's engine does not run."""

import torch

from tandem._tandem import Unsupported, UserError

_library = torch.library.Library("tandem_capture", "FRAGMENT")
_library.define(
    "gradient(Tensor[] outputs, Tensor[] tangents, Tensor[] inputs, bool create_graph) -> Tensor[]"
)


def _stand_ins(outputs, tangents, inputs, create_graph):
    """Where they have a history, it is one of everything that the gradient may depend on."""
    if not create_graph:
        return [torch.zeros_like(each).detach() for each in inputs]
    read = sum(0 * each.sum() for each in [*outputs, *tangents, *inputs])
    return [torch.zeros_like(each) + read.to(each.dtype) for each in inputs]


_library.impl("gradient", _stand_ins, "CompositeImplicitAutograd")
GRADIENT = torch.ops.tandem_capture.gradient.default


def _listed(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _reached(outputs):
    """Tensors that the history of the outputs ends in, and nodes on the way, by identity."""
    leaves, seen = set(), set()
    pending = [output.grad_fn for output in outputs if output.grad_fn is not None]
    leaves.update(id(output) for output in outputs if output.requires_grad)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        pending += [each for each, _ in node.next_functions if each is not None]
    return leaves, seen


def autograd_grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """In the place of torch.autograd.grad while a graph is traced."""
    del retain_graph, only_inputs
    if is_grads_batched:
        raise Unsupported("torch.autograd.grad with is_grads_batched, in a graph")
    outputs, inputs = _listed(outputs), _listed(inputs)
    tangents = [] if grad_outputs is None else _listed(grad_outputs)
    if any(tangent is None for tangent in tangents):
        tangents = [
            torch.ones_like(output) if tangent is None else tangent
            for output, tangent in zip(outputs, tangents, strict=True)
        ]
    leaves, nodes = _reached(outputs)
    used = [id(each) in leaves or (each.grad_fn is not None and each.grad_fn in nodes)
            for each in inputs]
    if not all(used) and not allow_unused and not materialize_grads:
        raise UserError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    if not any(used):
        return tuple(torch.zeros_like(each) if materialize_grads else None for each in inputs)
    wanted = [x for x, is_used in zip(inputs, used) if is_used]
    made = iter(GRADIENT(outputs, tangents, wanted, create_graph and torch.is_grad_enabled()))
    return tuple(
        next(made) if is_used else (torch.zeros_like(each) if materialize_grads else None)
        for each, is_used in zip(inputs, used)
    )
