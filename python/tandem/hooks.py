"""`y.register_hook(f)` on what a graph computes: Dynamo hands over a node that gives `y` again.

In eager the hook belongs to the tensor: it sees the sum of what all uses of `y` give, also of those
before the call, and of several hooks the first one goes first. In a trace a hook is an identity
whose gradient is `f`, so it must stand where `y` is made, before all uses:

    y = made; y2 = hook2(y); y1 = hook1(y2); uses of y1
"""

from torch import fx

from tandem._tandem import Unsupported


def is_hook(node):
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "register_hook"


def hooks_where_tensors_are_made(module):
    """The module with its hooks moved; itself where it has none."""
    if not any(is_hook(node) for node in module.graph.nodes):
        return module
    graph = fx.Graph()
    output = graph.graph_copy(module.graph, {}, return_output_node=True)
    _copy_output(graph, module.graph, output)
    for node in [node for node in graph.nodes if is_hook(node)]:
        _move(node)
    return fx.GraphModule(module, graph)


def _copy_output(graph, original, output):
    (old,) = original.find_nodes(op="output")
    value = output[0] if isinstance(output, tuple) else output
    graph.output(value).meta = dict(old.meta)


def _move(node):
    tensor = node.args[0]
    while is_hook(tensor):
        tensor = tensor.args[0]
    bodies = [each for each in node.all_input_nodes if each.op == "get_attr"]
    latest = max([tensor, *(each for each in node.all_input_nodes[1:] if each not in bodies)])
    node.replace_all_uses_with(node.args[0])
    users = [user for user in tensor.users if user is not node]
    if any(user < latest or user is latest for user in users):
        raise Unsupported("a hook reads what is computed after its tensor is read")
    for each in (node, *bodies):
        latest.append(each)
    node.args = (tensor, *node.args[1:])
    tensor.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
