"""The lines of the encoder for what only the running program knows: numbers that it reads, sizes
that they are, what is asserted of these; and for effects, which wait for each other as for a size.
"""

import sympy
import torch

from tandem._tandem import Unsupported
from tandem.fakes import is_list, is_tensor, plain_text, storage_of, view_made
from tandem.numbers import is_number, reads
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

    def _give_sizes_of_views(self):
        """Results of their own, behind the caller's: sizes that the program makes, where the caller
        gets a view that has them, and no result of the program's own shows them alone."""
        made = {symbol_name(symbol) for symbol in self._made}
        given = [node for node in self._given if node is not None] if made else []
        own = [node.meta["val"] for node in given if not view_made(node)]
        shown = {self._sizes.text(size) for each in own for size in each.shape}
        read = {name for node in given for name in self._read_by_views(node)}
        for name in sorted(read & (made - shown)):
            self._size_results[name] = len(self._returned)
            self._returned.append(self.new("aten.full", "[]", name, "dtype=i64"))
            self._given.append(None)

    def _read_by_views(self, node):
        """Names in the numbers that told this view, and those that it is a view of, where to be."""
        storage, found, waiting = storage_of(node.meta["val"]), {}, [node]
        while waiting:
            view = waiting.pop()
            sources = [each for each in view.all_input_nodes if _is_in(each, storage)]
            if view in found or not sources:
                continue
            found[view] = None
            waiting += sources
            for number in filter(is_number, view.all_input_nodes):
                if isinstance(number.meta["val"], torch.SymInt):
                    expr = number.meta["val"].node.expr.xreplace(self._sizes.replacements)
                    yield from map(symbol_name, expr.free_symbols)

    def _made_sizes(self):
        """Where results have the sizes that the program makes: at a dimension, or by themselves."""
        made = {symbol_name(symbol): [] for symbol in self._made}
        for name, number in self._size_results.items():
            made[name].append((number, None))
        for number, node in enumerate(self._given):
            for dim, size in enumerate(node.meta["val"].shape if node is not None else ()):
                if self._is_made(size) and self._sizes.text(size) in made:
                    made[self._sizes.text(size)].append((number, dim))
        return made


def _is_in(node, storage):
    """One of its tensors at least."""
    value = node.meta.get("val")
    values = value if is_list(value) else [value]
    return any(isinstance(each, torch.Tensor) and storage_of(each) == storage for each in values)
