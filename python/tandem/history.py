"""Which values of a traced graph may have a history of gradients. Traces do not keep that."""

import torch
from torch import fx

from tandem.fakes import changes_shape, storage_of, written_by


def nodes_with_history(graph, requires_grad, no_grad):
    """`requires_grad`: of the placeholders. Never too few: a write with history counts for all that
    share the memory."""
    found = set()
    storages = set()
    flags = iter(requires_grad)
    for node in graph.nodes:
        if node.op == "placeholder":
            has = next(flags)
        elif node.target is torch._C._set_grad_enabled:
            no_grad = not node.args[0]
            continue
        else:
            written = [node.args[0]] if changes_shape(node.target) else written_by(node)
            has = _reads_history(node, written or [node], found, storages) and not no_grad
            # What is written without history keeps the one that it has.
            has = has or any(each in found for each in written)
            if has:
                storages |= {storage_of(tensor) for each in written for tensor in _tensors(each)}
        if has:
            found.add(node)
    return found


def may_show_history(node):
    """Whether what stands behind the node can tell that its tensor has a history: a region with
    gradients, or a result in its memory."""
    storages = {storage_of(tensor) for tensor in _tensors(node)}
    later = node.next
    while later.op != "output":
        if later.target is torch._C._set_grad_enabled and later.args[0]:
            return True
        later = later.next
    results = [tensor for each in later.all_input_nodes for tensor in _tensors(each)]
    return any(storage_of(tensor) in storages for tensor in results)


def _reads_history(node, made, found, storages):
    if node.target is torch.ops.aten.detach.default:
        return False
    if not any(_is_continuous(tensor) for each in made for tensor in _tensors(each)):
        return False
    return any(
        source in found or any(storage_of(each) in storages for each in _tensors(source))
        for source in node.all_input_nodes
    )


def _is_continuous(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(value):
    if isinstance(value, fx.Node):
        value = value.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]
