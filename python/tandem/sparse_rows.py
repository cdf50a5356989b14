"""Gradients of weights that are rows: `embedding(..., sparse=True)` and bags of them.

Eager gives the rows that were read, and where they stand in the weight, as a sparse tensor. A
program has no such tensors. It reads the rows outside of history, and its custom gradient says that
they are those of an input of their own, a place for their gradient (zeros that take no memory). The
indices are an input of the graph, so the sparse gradient is made here of two tensors that are
there. Where a lookup is written otherwise, its gradient is dense."""

import dataclasses

import torch

_LOOKUP = torch.ops.aten.embedding.default
_BAGS = (torch.ops.aten.embedding_bag.default, torch.ops.aten.embedding_bag.padding_idx)
_RESHAPES = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)


@dataclasses.dataclass
class SparseRows:
    """Of one lookup; names of arguments of the program."""

    weight: str
    indices: str
    rows: str  # the place of their gradient
    padding: int  # rows of this index have none; -1: no such index

    def arguments(self):
        return self.weight, self.indices, self.rows


class SparseRowLines:
    """The part of the encoder that writes such lookups."""

    def _is_sparse_lookup(self, node):
        if node.target is not _LOOKUP and node.target not in _BAGS:
            return False
        given = _arguments(node)
        weight, indices = map(self._places.get, (given["weight"], _viewed(given["indices"])))
        if not given["sparse"] or given["scale_grad_by_freq"] or None in (weight, indices):
            return False
        if max(weight, indices) >= self._examples:  # a tensor that the graph holds itself
            return False
        if node.target in _BAGS and not _is_plain_bag(given):
            return False
        is_recorded = not self._no_grad and node in self._nodes_with_history()
        return is_recorded and self._requires_grad[weight] and not self.is_body

    def _sparse_lookup(self, node, name, value):
        given = _arguments(node)
        weight, indices = given["weight"], given["indices"]
        rows = self._rows_input(weight, indices)
        padding = given["padding_idx"] if node.target is _LOOKUP else -1
        number = len(self._lines)
        call = f"aten.embedding({self._argument(weight)}, {self._argument(indices)})"
        before, self._no_grad = self._no_grad, True
        self._add_line([f"%v{number}"], call, node)
        self._no_grad = before
        body = f"{self.name}_{rows}"
        kind = self._rows_type(weight, indices)
        self._more_graphs.append(f"graph @{body}(%g: {kind}) {{\n  return %g\n}}\n")
        call = f'tandem.custom_gradient([%v{number}], [%{rows}], [], [0], "{body}")'
        self._add_line([f"%v{number + 1}"], call, node)
        if node.target in _BAGS:
            self._bag(node, value, given, f"%v{number + 1}")
        else:
            self._names[node] = f"v{number + 1}"
        names = self._names[weight], self._names[_viewed(indices)], rows
        self._sparse.append(SparseRows(*names, int(padding)))

    def _rows_type(self, weight, indices):
        sizes = [*indices.meta["val"].shape, weight.meta["val"].shape[1]]
        dtype = self._type_text(weight.meta["val"]).partition("[")[0]
        return f"{dtype}[{', '.join(map(self._sizes.text, sizes))}]"

    def _rows_input(self, weight, indices):
        """Name of a new input."""
        name = f"rows{len(self._readers)}"
        strides = ", ".join(["0"] * (indices.meta["val"].dim() + 1))
        kind = self._rows_type(weight, indices)
        self._inputs.append(f"%{name}: {kind}{{{strides}}} {{input grad}}")
        numbers = self._places[weight], self._places[_viewed(indices)]
        self._add_reader(_place_reader(*numbers, is_flat=indices.meta["val"].dim() == 1))
        return name

    def _bag(self, node, value, given, rows):
        """The same of rows that are there, each once and in order."""
        count = self._sizes.text(given["indices"].meta["val"].shape[0])
        order = f"%v{len(self._lines)}"
        self._add_line([order], f"aten.arange({count}, dtype=i64)", node)
        per_sample = given["per_sample_weights"]
        arguments = [rows, order, self._argument(given["offsets"]), "false", str(given["mode"])]
        arguments += ["false", self._argument(per_sample)]
        arguments.append(self._argument(given["include_last_offset"]))
        results = self._result_names(node, value)
        self._add_line(results, f"aten.embedding_bag({', '.join(arguments)})", node)


def _arguments(node):
    """By name, defaults filled in."""
    schema = node.target._schema.arguments
    given = {each.name: each.default_value for each in schema if each.has_default_value()}
    given |= zip((each.name for each in schema), node.args)
    return given | dict(node.kwargs)


def _is_plain_bag(given):
    padding = given.get("padding_idx")
    is_flat = given["indices"].meta["val"].dim() == 1
    return is_flat and given["mode"] in (0, 1) and padding in (None, -1)


def _viewed(indices):
    """What they are all of, in one dimension."""
    is_flat = indices.meta["val"].dim() == 1
    while is_flat and indices.target in _RESHAPES:
        indices = indices.args[0]
    return indices


def _place_reader(weight, indices, is_flat):
    def read(inputs):
        table = inputs[weight]
        places = inputs[indices]
        sizes = (places.numel(),) if is_flat else places.shape
        return table.detach().new_zeros(()).expand(*sizes, table.shape[1])

    return read


def add_sparse(gradients, rows, shape, indices, padding):
    """`gradients`: of the weight so far, or None; as autograd adds them up."""
    if rows is None:  # nothing leads there
        return gradients
    rows = rows.reshape(-1, shape[1])
    indices = indices.reshape(-1)
    if padding >= 0:
        kept = indices != padding
        rows, indices = rows[kept], indices[kept]
    places = indices.reshape(1, -1).long()
    if gradients is not None and gradients.is_sparse:
        places = torch.cat([gradients._indices(), places], 1)
        rows = torch.cat([gradients._values(), rows])
        gradients = None
    made = torch.sparse_coo_tensor(places, rows, shape, check_invariants=False)
    return made if gradients is None else gradients + made
