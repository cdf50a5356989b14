"""Modes in a trace from behind autograd and autocast: it holds no node that changes one. Casts are
operators there already; regions without gradients are known from the marks that our interpreter
left on each node, and come back as nodes.
"""

import torch


def restore_modes(graph_module, owner):
    """`owner.no_grad` is the mode that the graph starts in; `owner.autocast` goes."""
    owner.autocast = None
    starts = grad = not owner.no_grad
    graph = graph_module.graph
    for node in list(graph.nodes):
        wanted = starts if node.op == "output" else _mark(node, grad)
        if wanted != grad:
            with graph.inserting_before(node):
                graph.call_function(torch._C._set_grad_enabled, (wanted,))
            grad = wanted
    graph_module.recompile()


def _mark(node, otherwise):
    if node.op != "call_function":
        return otherwise
    return node.meta.get("custom", {}).get("tandem_grad", otherwise)
