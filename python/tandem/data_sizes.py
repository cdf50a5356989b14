"""The lines of the encoder for what only the running program knows: numbers that it reads, sizes
that they are, what is asserted of these; and for effects, which wait for each other as for a size.
"""

import sympy
import torch

from tandem._tandem import Unsupported
from tandem.fakes import is_tensor, plain_text
from tandem.numbers import reads
from tandem.ranges import bounds_of
from tandem.sizes import symbol_name

# In their order, each once, forward alone.
EFFECTS = {torch.ops.higher_order.print, torch.ops.aten._print.default}


class DataSizeLines:
    """`_made`: symbols that nodes of the graph make."""

    def _integer(self, node, name, value):
        """A symbol, which the program gives its value."""
        is_symbol = isinstance(value, torch.SymInt) and value.node.expr.is_Symbol
        if not is_symbol and not node.meta.get("unbacked_bindings"):
            return  # torch knew it
        number = self._made_number(node, value)
        self._add_line([f"%{number}: i64"], f"{name}({self._argument(node.args[0])})", node)

    def _made_number(self, node, value):
        """The symbol's name; a number that a check says is its range."""
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            self._made.add(value.node.expr)
            self._origins[value.node.expr] = value.node.expr
            return self._sizes.text(value)
        (symbol,) = node.meta["unbacked_bindings"]
        self._bounds.append(sympy.Eq(symbol, int(value), evaluate=False))
        return self._sizes.print(symbol)

    def _assert_number(self, node):
        """Where only data tell it: no guard of Dynamo's holds it. What one size that the program
        makes is compared with is its range."""
        condition = node.args[0]
        value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
        made = isinstance(value, torch.SymBool) and self._made & value.node.expr.free_symbols
        relation = self._relation(value) if made and not reads(condition, "bool") else None
        if relation is not None and relation.lhs == relation.rhs:
            return  # one symbol, and all nodes that make it compare it
        if relation is not None and bounds_of(relation) is not None:
            self._bounds.append(relation)  # the node that makes the symbol compares it
        elif made or reads(condition, "bool", "f64"):
            text = node.args[1] if len(node.args) > 1 else "expected a true value"
            self._asserted(node, self.number(condition), text)

    def _relation(self, value):
        """Of sizes, by the symbols that the text has."""
        relation = value.node.expr
        if not isinstance(relation, sympy.core.relational.Relational):
            return None
        sides = [side.xreplace(self._sizes.replacements) for side in relation.args]
        return relation.func(*sides, evaluate=False)

    def _asserted(self, node, tensor, text):
        call = f'tandem.assert_true({tensor}, "{plain_text(text)}")'
        self._add_line([f"%v{len(self._lines)}"], call, node)

    def _is_made(self, value):
        """An integer of which only the program knows the value."""
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
                if self._is_made(size) and self._sizes.text(size) in made:
                    made[self._sizes.text(size)].append((number, dim))
        return made
