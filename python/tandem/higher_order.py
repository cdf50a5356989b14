"""Operators over graphs (checkpoint, custom autograd.Function, invoke_subgraph) while Dynamo's
graph is traced: their bodies run inline, and what they mean beyond that is left in the trace.
Loops and branches are in control_flow.py.

A checkpoint body's nodes carry a region in their metadata. A custom Function leaves a
`tandem_capture::custom_gradient` node behind its forward: it hands the outputs on, and names the
traced backward, which takes gradients of the outputs and then what forward saved.
"""

import torch
import torch.utils.checkpoint as checkpoint_module
from torch._higher_order_ops.utils import reenter_make_fx

from tandem import control_flow
from tandem._tandem import Unsupported

_library = torch.library.Library("tandem_capture", "FRAGMENT")
_library.define(
    "custom_gradient(Tensor[] outputs, Tensor[] inputs, Tensor[] saved, int body) -> Tensor[]"
)
_library.impl(
    "custom_gradient",
    lambda outputs, inputs, saved, body: [output.clone() for output in outputs],
    "CompositeExplicitAutograd",  # one node for traces from behind autograd too
)
CUSTOM_GRADIENT = torch.ops.tandem_capture.custom_gradient.default


class Region:
    """A checkpoint region. `policy(context, op, *args, **kwargs)` gives a CheckpointPolicy; None:
    all of it is computed again."""

    def __init__(self, number, context_fn):
        self.number = number
        self.policy = None
        if context_fn is not None:
            forward, _ = context_fn()
            self.policy = getattr(forward, "policy_fn", None)


    def word(self, node):
        """What the policy says of a node, as the text form says it."""
        if self.policy is None:
            return "must_recompute"
        context = checkpoint_module.SelectiveCheckpointContext(is_recompute=False)
        chosen = [
            self.policy(context, op, *node.args, **node.kwargs) for op in _policy_names(node.target)
        ]
        return max(chosen, key=lambda each: each.value in _SAVES).name.lower()


# A policy names the operators behind the dispatcher; the trace has composites.
_PARTS = {
    "aten.linear.default": ("addmm", "mm"),
    "aten.matmul.default": ("mm", "bmm"),
    "aten.conv1d.default": ("convolution",),
    "aten.conv2d.default": ("convolution",),
    "aten.conv3d.default": ("convolution",),
    "aten.scaled_dot_product_attention.default": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
    ),
}
_SAVES = {checkpoint_module.CheckpointPolicy.MUST_SAVE.value,
          checkpoint_module.CheckpointPolicy.PREFER_SAVE.value}


def _policy_names(target):
    parts = _PARTS.get(str(target), ())
    return [target, *(getattr(torch.ops.aten, part).default for part in parts)]


class Bodies:
    """What the trace refers to by number: backward bodies and checkpoint regions.
    `behind_autograd`: the trace is of what autograd and autocast dispatch to."""

    def __init__(self, behind_autograd=False):
        self.behind_autograd = behind_autograd
        self.graphs = []  # every GraphModule that was traced for itself
        self.backward = []  # (GraphModule, fakes of its inputs)
        self.regions = []

    def region(self, context_fn):
        self.regions.append(Region(len(self.regions) + 1, context_fn))
        return self.regions[-1].number


def checkpoint(interpreter, body, *operands, **_):
    region = interpreter.bodies.region(body.meta.get("_checkpoint_context_fn"))
    return interpreter.inner(body, region).run(*operands)


def inline(interpreter, body, *rest, **_):
    """invoke_subgraph(body, identifier, *operands), wrap(body, *operands)."""
    operands = rest[1:] if rest and isinstance(rest[0], str) else rest
    return interpreter.inner(body).run(*operands)


def custom_function(interpreter, forward, backward, *operands, non_differentiable_idx=(), **_):
    outputs, saved = interpreter.inner(forward).run(*operands)
    is_tuple = isinstance(outputs, (tuple, list))
    outputs = list(outputs) if is_tuple else [outputs]
    if any(not isinstance(value, torch.Tensor) for value in (*outputs, *saved)):
        raise Unsupported("a custom autograd.Function gives or saves what is no tensor")
    gradients = [torch.empty_like(output) for output in outputs]
    inner = interpreter.inner(backward)
    traced = reenter_make_fx(lambda *values: inner.run(*values))(*gradients, *saved)
    bodies = interpreter.bodies
    bodies.graphs.append(traced)
    bodies.backward.append((traced, [*gradients, *saved]))
    handed = CUSTOM_GRADIENT(outputs, list(operands), list(saved), len(bodies.backward) - 1)
    handed = [
        output.detach() if i in non_differentiable_idx else output
        for i, output in enumerate(handed)
    ]
    return tuple(handed) if is_tuple else handed[0]


HANDLERS = {
    "tag_activation_checkpoint": checkpoint,
    "autograd_function_apply": custom_function,
    "invoke_subgraph": inline,
    "wrap": inline,
    "cond": control_flow.cond,
    "map_impl": control_flow.map_rows,
    "scan": control_flow.scan,
    "while_loop": control_flow.while_loop,
}
