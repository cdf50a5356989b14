"""The lines of the encoder for nodes that Python runs (host.py)."""

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from tandem._tandem import Unsupported
from tandem.fakes import is_tensor, storage_of, written_by
from tandem.host import HostControl, HostDraw, HostEffect, HostOp, HostSizes
from tandem.numbers import is_number
from tandem.outside import has_generator

_TOKEN = 0  # an integer: what effects hand on


class HostLines:
    """`_last_effect`: name of what the last effect gives, for the next one."""

    def _outside(self, node, value):
        """What torch alone can run, whatever is said of missing operators."""
        if self.is_body:
            raise Unsupported(f"[{node.target}] in the body of a custom function or loop")
        if has_generator(node):
            return self._draw(node, value)
        self._check_own(node)
        if isinstance(value, torch.SymInt):
            host = HostOp(node, self._sizes)
            return self._sizes_ahead(node, host, self._host_tensors(host), [])
        self._host_op(node, value)

    @staticmethod
    def _check_own(node):
        """What is a view in eager has memory of its own here."""
        if all(result.alias_info is None for result in node.target._schema.returns):
            return
        own = {storage_of(each.meta["val"]) for each in node.all_input_nodes if is_tensor(each)}
        for other in node.graph.nodes:
            seen = other.all_input_nodes if other.op == "output" else written_by(other)
            if any(storage_of(each.meta["val"]) in own for each in seen if is_tensor(each)):
                raise Unsupported(
                    f"[{node.target}] is a view at a place that data tell, of what is written or "
                    "returned"
                )

    def _host_op(self, node, value):
        host = HostOp(node, self._sizes)
        tensors = self._host_tensors(host)
        host.histories = self._histories(node, host)
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        self._sizes_ahead(node, host, tensors, values)
        self._host_results(node, value, host, tensors, [])

    def _draw(self, node, value):
        """Has no gradient, which would draw again: it reads values without a history."""
        host = HostDraw(node, self._sizes)
        tensors = self._behind_effects(node, host)
        self._last_effect = f"v{len(self._lines)}_effect"
        self._host_results(node, value, host, tensors, [(self._last_effect, _TOKEN)])

    def _effect(self, node):
        if self.is_body:
            raise Unsupported(f"[{node.target}] in the body of a custom function or loop")
        host = HostEffect(node, self._sizes)
        self._ops[host.name] = self._ops.get(host.name, 0) + 1
        tensors = self._behind_effects(node, host)
        self._last_effect = f"v{len(self._lines)}"
        self._host_line(node, host, tensors, [(self._last_effect, _TOKEN)])

    def _behind_effects(self, node, host):
        tensors = []
        for tensor in self._host_tensors(host):
            tensors.append(f"%v{len(self._lines)}")
            self._add_line(tensors[-1:], f"aten.detach({tensor})", node)
        return tensors + ([f"%{self._last_effect}"] if self._last_effect else [])

    def _host_tensors(self, host):
        return [
            self.number(each) if is_number(each) else self._argument(each) for each in host.tensors
        ]

    def _host_results(self, node, value, host, tensors, more):
        if host.written:
            results = [f"v{len(self._lines)}_{i}" for i in range(len(host.written))]
            values = [arg.meta["val"] for arg in host.written]
        else:
            self._result_names(node, value)
            names = self._names[node]
            results = names if isinstance(names, list) else [names]
            values = value if isinstance(value, (list, tuple)) else [value]
        if any(each is None for each in values):
            raise Unsupported(f"[{node.target}] runs in torch, and one of its results is none")
        self._host_line(node, host, tensors, [*zip(results, values, strict=True), *more])
        written = []
        for result, arg in zip(results, host.written, strict=False):
            written.append(f"v{len(self._lines)}")
            call = f"aten.copy_(%{self._names[arg]}, %{result})"
            self._add_line(["%" + written[-1]], call, node)
        if written and isinstance(value, (list, tuple)):
            self._names[node] = [written[i] for i in host.returned()]
        elif written:
            self._names[node] = written[0]

    def _host_control(self, node, flags, kept, reason):
        if self._compile_body is None:
            raise Unsupported(f"[{node.target.kind}] in a body, and {reason}")
        node.target.compile(self._compile_body, flags)
        host = HostControl(node, self._sizes)
        host.histories = self._histories(node, host)
        tensors = self._host_tensors(host)
        if host.seed:
            tensors.append(f"%v{len(self._lines)}")
            self._add_line(tensors[-1:], f"aten.randint.low(0, {2**62}, [], dtype=i64)", node)
        self._sizes_ahead(node, host, tensors, [value for _, value in kept])
        self._host_line(node, host, tensors, kept)

    def _histories(self, node, host):
        history = self._nodes_with_history()
        has = node in history and not self._no_grad
        return [tensor in history for tensor in host.tensors] if has else []

    def _sizes_ahead(self, node, host, tensors, values):
        """What is a number among the results, and no size of others, is read as a number."""
        numbers = {each.node.expr for each in values if isinstance(each, torch.SymInt)}
        numbers -= free_symbols([each for each in values if isinstance(each, torch.Tensor)])
        made = node.meta.get("unbacked_bindings") or {}
        paths = {symbol: path for symbol, path in made.items() if symbol not in numbers}
        if not paths:
            return
        names = [f"v{len(self._lines)}_size{i}" for i in range(len(paths))]
        results = [(name, _TOKEN) for name in names]
        self._host_line(node, HostSizes(host, list(paths.values())), tensors, results)
        for symbol, name in zip(paths, names, strict=True):
            self._read_symbol(symbol.xreplace(self._sizes.replacements), "%" + name)

    def _host_line(self, node, host, tensors, results):
        """A tandem::host node: its number among the functions, its tensors and run-time sizes."""
        number = 3 * len(self._host)
        self._host.append(host)
        tensors, sizes = ", ".join(tensors), ", ".join(host.sizes)
        call = f'tandem.host([{tensors}], [{sizes}], {number}, "{host.name}")'
        typed = [f"%{result}: {self._type_text(value)}" for result, value in results]
        self._add_line(typed, call, node)
