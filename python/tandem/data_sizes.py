"""The lines of the encoder for what only the running program knows: numbers that it reads, sizes
that they are, what is asserted of these; and for effects, which wait for each other as for a size.
"""

import sympy
import torch

from tandem._tandem import Unsupported
from tandem.cutting import RELATIONS, relation_of
from tandem.fakes import is_tensor, plain_text
from tandem.host import HostEffect
from tandem.ranges import bounds_of
from tandem.sizes import symbol_name

# In their order, each once, forward alone.
EFFECTS = {torch.ops.higher_order.print, torch.ops.aten._print.default}


class DataSizeLines:
    """`_made`: symbols that nodes of the graph make."""

    def _number(self, node, name, value):
        """One that the program reads while it runs; an integer is a symbol."""
        is_symbol = not isinstance(value, torch.SymFloat)
        number = self._made_number(node, value) if is_symbol else f"v{len(self._lines)}"
        self._names[node] = number
        dtype = "i64" if is_symbol else "f64"
        self._add_line([f"%{number}: {dtype}"], f"{name}({self._argument(node.args[0])})", node)

    def _made_number(self, node, value):
        """The symbol's name; a number that a check says is its range."""
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            return self._sizes.text(value)
        (symbol,) = node.meta["unbacked_bindings"]
        self._bounds.append(sympy.Eq(symbol, int(value), evaluate=False))
        return self._sizes.print(symbol)

    def _asserts_relation(self, node):
        """Between sizes that only data tell: no guard of Dynamo's holds it. What they are compared
        with alone is their range."""
        relation = relation_of(node)
        if relation is None or not self._made & relation.free_symbols:
            return False
        if self._size_text(relation.lhs) == self._size_text(relation.rhs):
            return True  # one symbol, and all nodes that make it compare it
        if bounds_of(relation) is not None:
            self._bounds.append(relation)  # the node that makes the symbol compares it
            return True
        if self.is_body:
            raise Unsupported(f"[{node.target}] in the body of a custom function or loop")
        text = plain_text(node.args[1] if len(node.args) > 1 else str(relation))
        left, right = (self._size_text(side) for side in (relation.lhs, relation.rhs))
        at = len(self._lines)
        self._add_line([f"%v{at}"], f"aten.full([], {left}, dtype=i64)", node)
        compare = f"aten.{RELATIONS[type(relation).__name__]}.Scalar(%v{at}, {right})"
        self._add_line([f"%v{at + 1}"], compare, node)
        self._asserts.append(f"v{at + 2}")
        self._add_line([f"%v{at + 2}"], f'tandem.assert_true(%v{at + 1}, "{text}")', node)
        return True

    def _size_text(self, expr):
        return self._sizes.print(expr.xreplace(self._sizes.replacements))

    def _is_made(self, value):
        """A number of which only the program knows the value."""
        return isinstance(value, torch.SymInt) and bool(self._made & value.node.expr.free_symbols)

    def _has_made_size(self, node):
        """Or one that it makes, and a check says what it is."""
        read = [each.meta["val"] for each in node.all_input_nodes if is_tensor(each)]
        reads_mask = any(tensor.dtype == torch.bool for tensor in read)
        if node.meta.get("unbacked_bindings") or reads_mask:
            return True
        value = node.meta["val"]
        values = value if isinstance(value, (list, tuple)) else [value]
        return any(self._is_made(size) for each in values for size in each.shape)

    def _made_sizes(self):
        """Where results have the sizes that the program makes."""
        made = {symbol_name(symbol): [] for symbol in self._made}
        for number, node in enumerate(self._given):
            for dim, size in enumerate(node.meta["val"].shape if node is not None else ()):
                if isinstance(size, torch.SymInt) and size.node.expr in self._made:
                    made[symbol_name(size.node.expr)].append((number, dim))
        return made

    def _effect(self, node):
        """Reads values without a history, so it has no gradient, which would run it again."""
        if self.is_body:
            raise Unsupported(f"[{node.target}] in the body of a custom function or loop")
        host = HostEffect(node, self._sizes)
        self._ops[host.name] = self._ops.get(host.name, 0) + 1
        tensors = []
        for tensor in host.tensors:
            tensors.append(f"%v{len(self._lines)}")
            self._add_line(tensors[-1:], f"aten.detach({self._argument(tensor)})", node)
        tensors += [f"%{self._last_effect}"] if self._last_effect else []
        self._last_effect = f"v{len(self._lines)}"
        token = torch.empty((), dtype=torch.int64)
        self._host_line(node, host, tensors, [(self._last_effect, token)])
