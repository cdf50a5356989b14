"""Operators over graphs (checkpoint, custom autograd.Function) while Dynamo's
graph is traced: their bodies run inline, and what they mean beyond that is left in the trace.
Loops, branches and invoke_subgraph, which have nodes, are in control_flow.py.

A checkpoint body's nodes carry a region in their metadata. A custom Function leaves a
`tandem_capture::custom_gradient` node behind its forward: it hands the outputs on, and names the
traced backward, which takes gradients of the outputs and then what forward saved.
"""

import torch
import torch.utils.checkpoint as checkpoint_module
from torch._higher_order_ops.utils import reenter_make_fx
from torch.utils import _pytree as pytree

from tandem import control_flow
from tandem._tandem import Unsupported, UserError

_library = torch.library.Library("tandem_capture", "FRAGMENT")
_library.define(
    "custom_gradient(Tensor[] outputs, Tensor[] inputs, Tensor[] saved, int[] kept, int body)"
    " -> Tensor[]"
)
_library.impl(
    "custom_gradient",
    lambda outputs, inputs, saved, kept, body: [output.clone() for output in outputs],
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
    `behind_autograd`: the trace is of what autograd and autocast dispatch to. `inlines`: regions
    that could be compiled once run inline; else `calls` has them."""

    def __init__(self, behind_autograd=False, inlines=False):
        self.behind_autograd = behind_autograd
        self.leaves_grad = None  # the mode after the graph
        self.graphs = []  # every GraphModule that was traced for itself
        # (GraphModule, fakes of its inputs, numbers of the tensors among what forward saved that
        # are watched: eager refuses a backward where somebody wrote to these)
        self.backward = []
        self.regions = []
        self.inlines = inlines
        self.calls = {}

    def region(self, context_fn):
        self.regions.append(Region(len(self.regions) + 1, context_fn))
        return self.regions[-1].number


def checkpoint(interpreter, body, *operands, **_):
    region = interpreter.bodies.region(body.meta.get("_checkpoint_context_fn"))
    return interpreter.inner(body, region).run(*operands)


def inline(interpreter, body, *rest, **_):
    """wrap(body, *operands)."""
    return interpreter.inner(body).run(*rest)


def _with_backward(interpreter, outputs, inputs, saved, backward, watched=()):
    """`outputs`, differentiated by the function `backward`: it gets their gradients, then `saved`.
    Sizes among those are symbols of the program, which its backward knows as well. `watched`: the
    numbers of what was saved by save_for_backward."""
    watched = [saved[number] for number in watched]
    saved, structure = pytree.tree_flatten([_plain(value) for value in saved])
    if any(not isinstance(value, (torch.Tensor, torch.SymInt, int)) for value in saved):
        kinds = ", ".join(sorted({type(value).__name__ for value in saved}))
        raise Unsupported(f"a custom autograd.Function saves what is no tensor or size: {kinds}")
    gradients = [torch.empty_like(output) for output in outputs]

    def run(*values):
        rest = pytree.tree_unflatten(values[len(gradients) :], structure)
        return backward(*values[: len(gradients)], *rest)

    traced = reenter_make_fx(run)(*gradients, *saved)
    bodies = interpreter.bodies
    bodies.graphs.append(traced)
    # The backward has a result for each of `inputs`; those of what is no tensor are left out.
    kept = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    tensors = [value for value in saved if isinstance(value, torch.Tensor)]
    numbers = [i for i, value in enumerate(tensors) if any(value is each for each in watched)]
    bodies.backward.append((traced, [*gradients, *saved], numbers))
    number = len(bodies.backward) - 1
    return CUSTOM_GRADIENT(outputs, [inputs[i] for i in kept], tensors, kept, number)


def _plain(value):
    return tuple(value) if isinstance(value, torch.Size) else value


def register_hook(interpreter, tensor, hook, *operands):
    """`tensor`, whose gradient goes through the graph `hook`."""
    if not tensor.requires_grad:
        raise UserError("cannot register a hook on a tensor that doesn't require gradient")
    inner = interpreter.inner(hook)

    def backward(gradient, *saved):
        results = inner.run(gradient, *saved)
        result = results[0] if isinstance(results, (tuple, list)) else results
        return gradient if result is None else result

    return _with_backward(interpreter, [tensor], [tensor], list(operands), backward)[0]


def custom_function(
    interpreter,
    forward,
    backward,
    *operands,
    non_differentiable_idx=(),
    saved_for_backward_idx=(),
    **_,
):
    outputs, saved = interpreter.inner(forward).run(*operands)
    is_tuple = isinstance(outputs, (tuple, list))
    outputs = list(outputs) if is_tuple else [outputs]
    if any(not isinstance(value, torch.Tensor) for value in outputs):
        raise Unsupported("a custom autograd.Function gives what is no tensor")
    run_backward = interpreter.inner(backward).run
    rest = list(operands), list(saved), run_backward, saved_for_backward_idx
    handed = _with_backward(interpreter, outputs, *rest)
    handed = [
        output.detach() if i in non_differentiable_idx else output
        for i, output in enumerate(handed)
    ]
    return tuple(handed) if is_tuple else handed[0]


HANDLERS = {
    "tag_activation_checkpoint": checkpoint,
    "autograd_function_apply": custom_function,
    "register_hook": register_hook,
    "invoke_subgraph": control_flow.invoke_subgraph,
    "wrap": inline,
    "cond": control_flow.cond,
    "map_impl": control_flow.map_rows,
    "scan": control_flow.scan,
    "while_loop": control_flow.while_loop,
}
