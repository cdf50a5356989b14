"""Graphs that take lists of tensors. Compiled autograd hands its inputs over as one list, which it
empties at the call, so that activations can go as soon as they were read; a program takes tensors.
"""

import operator

from torch import fx


def has_lists(examples):
    return any(isinstance(example, list) for example in examples)


class FlatInputs:
    """`module` with an input for each element of its lists, and `examples` for it. What Dynamo
    knows of the sizes of an element is in its fake, which stands for it among the examples."""

    def __init__(self, module, examples):
        graph = fx.Graph()
        copies = {}
        self.examples = []
        places = module.graph.find_nodes(op="placeholder")
        for place, example in zip(places, examples, strict=True):
            if isinstance(example, list):
                copies[place] = self._add_elements(graph, place, example)
            else:
                copies[place] = graph.node_copy(place)
                self.examples.append(example)
        for node in module.graph.nodes:
            if node.op != "placeholder":
                copies[node] = _copy(graph, node, copies)
        self.module = fx.GraphModule(module, graph)
        self._lists = [isinstance(example, list) for example in examples]

    def _add_elements(self, graph, place, values):
        reads = {node.args[1]: node for node in place.users if node.target is operator.getitem}
        elements = []
        for i, value in enumerate(values):
            fake = reads[i].meta.get("example_value", value) if i in reads else value
            elements.append(graph.placeholder(f"{place.name}_{i}"))
            elements[-1].meta["example_value"] = fake
            self.examples.append(fake)
        return elements

    def callable(self, call):
        """With the lists of `module`; `call` takes the elements."""

        def run(*args):
            flat = []
            for is_list, value in zip(self._lists, args, strict=True):
                flat.extend(value if is_list else [value])
                if is_list:
                    value.clear()
            return call(*flat)

        return run


def _copy(graph, node, copies):
    """Of a node behind the placeholders; an element of a list is a placeholder."""
    if node.target is operator.getitem and isinstance(copies[node.args[0]], list):
        return copies[node.args[0]][node.args[1]]
    return graph.node_copy(node, lambda each: copies[each])
