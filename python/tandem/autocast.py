"""What autocast does at a place: the 16-bit type of the region, or None."""

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tandem.fakes import DTYPES, dtype_name


def ambient_autocast():
    """Of the region that this is called in."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    return dtype_name(torch.get_autocast_dtype("cpu"))


# All that they compute is products, which eager casts where it has come to them: fakes take another
# way, and so would this.
CAST_WHOLE = {"lstm", "affine_grid", "affine_grid_generator"}


def lowered(arguments):
    """As a region casts them: all tensors of floats, but those of 64 bits, also in lists."""
    half = torch.get_autocast_dtype("cpu")

    def lower(x):
        is_cast = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(half) if is_cast and x.dtype is not torch.float64 else x

    return pytree.tree_map(lower, arguments)


def autocast_dtype(device_type, dtype=None, enabled=True, cache_enabled=None):
    """Of a region, as torch.amp.autocast takes its arguments."""
    del cache_enabled
    if device_type != "cpu" or not enabled:
        return None
    return dtype_name(dtype or torch.get_autocast_dtype("cpu"))


# What torch makes of others, which it casts: these have no line in its table.
OVER_OTHERS = tuple(
    getattr(torch.ops.aten, name).default
    for name in ("einsum", "tensordot", "linalg_multi_dot", "chain_matmul", "inner",
                 "linalg_matmul", "matrix_power", "linalg_matrix_power", "nll_loss_nd")
)  # fmt: skip
# And these, of the modes that read the operand's edge: by a trace, widths that only data tell have
# no number.
PADS = (torch.ops.aten.pad.default, torch.ops.aten._pad_enum.default)


def open_composites(graph, ambient):
    """In autocast regions, what these are made of stands in their place. `ambient`: the type of the
    region that the graph is in."""
    dtypes = [ambient]
    for node in list(graph.nodes):
        if node.target is torch.amp.autocast_mode._enter_autocast:
            dtypes.append(autocast_dtype(*node.args, **node.kwargs))
        elif node.target is torch.amp.autocast_mode._exit_autocast:
            dtypes.pop()
        elif node.target in OVER_OTHERS and dtypes[-1] is not None:
            _open(graph, node, dtypes[-1])
        elif node.target in PADS and dtypes[-1] is not None:
            _pad_in_full(graph, node)


def _pad_in_full(graph, node):
    padded, operand = node.meta["val"], node.args[0]
    if padded.dtype == operand.meta["val"].dtype:
        return  # of another mode, or f32
    with graph.inserting_before(node):
        full = graph.call_function(torch.ops.aten._to_copy.default, (operand,),
                                   {"dtype": padded.dtype})  # fmt: skip
    full.meta["val"] = operand.meta["val"].to(padded.dtype)
    full.meta["stack_trace"] = node.meta.get("stack_trace")
    node.replace_input_with(operand, full)


def _open(graph, node, dtype):
    inputs = node.all_input_nodes

    def parts(*values):
        given = dict(zip(inputs, values, strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), given.get)
        return node.target(*args, **kwargs)

    fakes = [each.meta["val"] for each in inputs]
    half = next(torch_type for torch_type, name in DTYPES.items() if name == dtype)
    with torch.no_grad(), torch.autocast("cpu", dtype=half), detect_fake_mode(fakes):
        body = make_fx(parts, tracing_mode="real")(*fakes)  # behind autocast: casts are nodes
    body.graph.eliminate_dead_code()  # questions of sizes
    known = dict(zip(body.graph.find_nodes(op="placeholder"), inputs, strict=True))
    with graph.inserting_before(node):
        result = graph.graph_copy(body.graph, known)
    for made in known.values():
        made.meta.setdefault("stack_trace", node.meta.get("stack_trace"))
    node.replace_all_uses_with(result)
    graph.erase_node(node)
