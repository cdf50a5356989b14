"""An ATen graph of torch as text of ours, and what crosses its border.

The text is what `TANDEM_DUMP` prints and `tandem opt` reads. It returns all tensors that the graph
returns; the compiler says which of them are inputs, or views of the tensors that are there after
the call (replay.py).
"""

import operator

import torch
from torch import fx

from tandem._tandem import Unsupported, UserError, ops
from tandem.autocast import autocast_dtype
from tandem.capture import Captured
from tandem.complex_numbers import ComplexLines, form_of_tensors, has_complex_number
from tandem.control_flow import Control
from tandem.data_sizes import EFFECTS, DataSizeLines
from tandem.encoded import Encoded, Result
from tandem.fakes import (
    adds_in_front,
    changes_shape,
    dtype_name,
    dtype_text,
    handed_on,
    has_own_stride_of_one,
    input_below,
    is_row_major,
    is_tensor,
    place_of,
    place_text,
    view_made,
)
from tandem.gradients import GRADIENT
from tandem.higher_order import CUSTOM_GRADIENT
from tandem.hints import Hints
from tandem.history import may_show_history, nodes_with_history
from tandem.host_lines import HostLines
from tandem.loops import ControlLines
from tandem.numbers import NUMBERS, READS_OF_NUMBERS, NumberLines, is_number, kind_of
from tandem.outside import equal_sizes, is_in_program, is_outside, tells_size
from tandem.ranges import divided_symbols, ranges_text
from tandem.sizes import (
    ASSERTS_ON_DATA,
    CHECKS_OF_SIZES,
    QUESTIONS_OF_SIZES,
    Sizes,
    symbol_name,
    symbol_readers,
)
from tandem.sparse_rows import SparseRowLines

SET = torch.ops.aten.set_.source_Tensor
# torch bounds how many it selects by the elements of self, which may be fewer than the mask's.
_SELECT = torch.ops.aten.masked_select.default
_WITH_STATISTICS = (
    torch.ops.aten.native_layer_norm.default,
    torch.ops.aten.native_group_norm.default,
)


class _ReadsBroken(Exception):
    """What is wrong has been said where it began."""


class Encoder(ComplexLines, ControlLines, DataSizeLines, HostLines, NumberLines, SparseRowLines):
    """Writes one graph."""

    def __init__(
        self,
        captured,
        known,
        use_host,
        compile_body=None,
        freeze=False,
        replacements=None,
    ):
        self.name = "g"
        self.is_body = False  # hands out values in their order, and no tensors
        self.gives_none = True
        self.knows_autocast = True  # by nodes; else by marks
        self._module = captured.graph_module
        self._fakes = captured.fakes
        self._requires_grad = list(captured.requires_grad)
        self._weights = captured.weights if freeze else ()
        self._zeros = captured.zeros
        self._no_grad = captured.no_grad
        self._divided = {} if captured.bodies.graphs else divided_symbols(self._fakes)
        self._sizes = Sizes({old: part * n for part, (old, n) in self._divided.items()})
        self._names = {}
        self._lines = []
        self._inputs = []
        self._arguments = []
        self._problems = []
        self._lifted = list(captured.lifted)
        self._examples = len(captured.fakes) - len(captured.lifted)
        self._known = known  # names of operators
        self._use_host = use_host
        self._host = []
        self._places = {}  # of placeholders among the inputs
        self._broken = set()  # nodes that are in the problems, or read one that is
        self._autocasts = [captured.autocast]
        self._starts_no_grad = captured.no_grad
        self._compile_body = compile_body
        self._users = captured.users
        self._with_history = None
        self._bodies = captured.bodies
        self._more_graphs = []
        self._ops = {}
        self._written = {}  # Control -> names of its bodies
        self._controls = {}  # kind -> count, of those that are nodes of the program
        self._readers = []  # functions of the inputs, whose values follow those
        self._in_tensors = {}  # placeholders of floats that come in a tensor
        self._tensors = {}  # of numbers: the names of their tensors
        self._scalars = {}  # of numbers: the names of what an operator takes
        self._origins = {}  # symbols of ours -> what they stand for
        self.carried = 0  # of a body: integers up to here come in tensors
        self._at = None  # the node that lines are written for
        nodes = captured.graph_module.graph.nodes
        self._made = {u for node in nodes for u in node.meta.get("unbacked_bindings") or ()}
        self._endless = {
            u
            for node in nodes
            if node.target is _SELECT
            for u in node.meta.get("unbacked_bindings") or ()
        }
        self._sizes.replacements.update({**(replacements or {}), **equal_sizes(nodes)})
        self.hints = Hints(self._fakes, self._divided, self._text_of_size)
        self._last_effect = None  # name of what it gives
        self._bounds = []  # relations of one such symbol and a number
        self._size_results = {}  # of such symbols by name: numbers of results
        self._sparse = []  # SparseRows
        self._complex_names = set()
        self._watched = set()  # names of inputs that custom functions saved by save_for_backward
        self._offsets = {}  # number of an input -> the place in its storage that the text assumes

    def encode(self):
        self._add_divided_symbols()
        for node in self._module.graph.nodes:
            self._at = node
            try:
                getattr(self, "_" + node.op)(node)
            except _ReadsBroken:
                self._broken.add(node)
            except UserError as error:
                self._broken.add(node)
                self._problems.append(f"{error}{place_text(node)}")
        if self._problems:
            raise Unsupported("\n".join(dict.fromkeys(self._problems)))
        held = self._examples + len(self._lifted)
        numbers = [held - 1 - number if number < 0 else number for number in self._arguments]
        names = [text[1 : text.index(":")] for text in self._inputs]
        symbols = {symbol_name(each): read for each, read in symbol_readers(self._fakes).items()}
        readers = symbols, self._host, self._readers, self._offsets
        flags = [number >= 0 and self._requires_grad[number] for number in self._arguments]
        readers = readers[0], self._made_sizes(), *readers[1:]
        border = self._examples, numbers, names, self._ops, self._lifted, *readers, flags
        rest = self._controls, self._sparse, self._watched, self._complex_names
        return Encoded(self._text(), self._results, *border, *rest, self.hints)

    def _text_of_size(self, expr):
        return Sizes().print(expr.xreplace(self._sizes.replacements))

    def _text(self):
        symbols = self._sizes.symbols.values()
        known = self._divided, self._fakes, self._bounds, self._origins, self._endless
        ranges = ranges_text(symbols, *known) if symbols else ""
        where = f" where {ranges}" if ranges else ""
        results = ", ".join(self._returned)
        body = "\n".join("  " + line for line in self._lines)
        graph = f"graph @{self.name}({', '.join(self._inputs)}){where} {{\n{body}\n"
        return "\n".join([graph + f"  return {results}\n}}\n", *self._more_graphs])

    # --- inputs

    def _add_divided_symbols(self):
        """A size that is a multiple of 4 is 4 times an input, which is computed before a call."""
        for part, (symbol, divisor) in self._divided.items():
            read = symbol_readers(self._fakes)[symbol]
            self._add_reader(lambda i, read=read, by=divisor: read(i) // by)
            self._sizes.print(part)
            self._inputs.append(f"%{part}: i64")

    def _placeholder(self, node):
        number = len(self._places)
        self._places[node] = number
        value = node.meta["val"] if "val" in node.meta else self._fakes[number]
        if not self.is_body and is_number_in_tensor(node, value):
            self._in_tensors[node] = number
        else:
            self._add_input(node, value, number)

    def _add_input(self, node, value, number):
        name = f"a{number}"
        if isinstance(value, torch.Tensor):
            self._names[node] = name
            if value.is_complex():
                self._complex_names.add(name)
            grad = " {input grad}" if self._requires_grad[number] else ""
            if number in self._weights:
                zeros = " zeros" if number in self._zeros else ""
                grad = f' {{param "{name}"{zeros}}}'
            self._inputs.append(f"%{name}: {self._type_text(value)}{grad}")
        elif self.is_body and self._comes_in_tensor(value, number):
            self._inputs.append(f"%{name}: {kind_of(value)}[]")
            self._tensors[node] = self.new("aten.detach", "%" + name)
            if isinstance(value, torch.SymInt):
                self._read_symbol(value.node.expr, self._tensors[node])
        elif isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            name = symbol_name(value.node.expr)
            self._names[node] = name
            given = f"%{name}: i64" in self._inputs or value.node.expr in self._sizes.replacements
            if given or self.is_body:
                return  # two inputs that a guard makes equal; or others stand for it
            self._sizes.text(value)
            self._inputs.append(f"%{name}: i64")
        elif isinstance(value, (torch.SymFloat, float)) and not self.is_body:
            name = f"f{number}"
            self._scalars[node] = name
            self.hints.add_float(name, value)
            self._inputs.append(f"%{name}: f64")
        else:
            self._names[node] = name
            return
        self._arguments.append(number)

    def _comes_in_tensor(self, value, number):
        """Of a body. Other integers are expressions of sizes, which it knows."""
        if isinstance(value, torch.SymInt):
            return number < self.carried
        return isinstance(value, (torch.SymFloat, torch.SymBool))

    def _type_text(self, value, says_strides=False):
        if isinstance(value, NUMBERS):
            return f"{kind_of(value)}[]"
        dtype = dtype_text(value)
        sizes = [self._sizes.text(size) for size in value.shape]
        text = f"{dtype}[{', '.join(sizes)}]"
        if value.dim() > 0 and (says_strides or not is_row_major(value)):
            strides = [self._sizes.text(stride) for stride in value.stride()]
            text += "{" + ", ".join(strides) + "}"
        return text

    def _get_attr(self, node):
        value = getattr(self._module, node.target)
        if isinstance(value, torch.Generator):
            return  # HostDraw has it
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"the graph attribute {node.target} is a {type(value).__name__}")
        number = self._examples + len(self._lifted)
        self._requires_grad.append(False)
        self._lifted.append(value)
        self._add_input(node, value, number)

    # --- nodes

    def _call_function(self, node):
        target = node.target
        if target is torch._C._set_grad_enabled:
            self._no_grad = not node.args[0]
        elif target is torch.amp.autocast_mode._enter_autocast:
            self._autocasts.append(autocast_dtype(*node.args, **node.kwargs))
        elif target is torch.amp.autocast_mode._exit_autocast:
            self._autocasts.pop()
        elif target is operator.getitem:
            if node.args[0] in self._broken:
                raise _ReadsBroken
            self._names[node] = self._names[node.args[0]][node.args[1]]
            if is_number(node):
                self._number_of(node)
        elif target in EFFECTS:
            self._effect(node)
        elif isinstance(target, torch._ops.OpOverload):
            self._op(node)
        elif isinstance(target, Control):
            self._control(node)
        elif is_number(node):
            self._note_number(node)
        else:
            raise Unsupported(f"[{target}] is no ATen operator")

    def _op(self, node):
        target = node.target
        name = str(target).removesuffix(".default")
        self._ops[name] = self._ops.get(name, 0) + 1
        value = node.meta.get("val")
        if name == "aten._assert_scalar":
            return self._assert_number(node)
        if name in CHECKS_OF_SIZES or name in QUESTIONS_OF_SIZES:
            return
        if is_outside(node):
            return self._outside(node, value)
        if isinstance(value, NUMBERS):
            if target in READS_OF_NUMBERS and is_in_program(node):
                return self._item(node, name, value)
            raise Unsupported(f"[{name}] gives a number")
        if target is SET:
            return self._set(node, name, value)
        if changes_shape(target):
            return self._change_shape(node, self._view_form(node, name), value)
        if name in ASSERTS_ON_DATA:
            self._assert(node)
        elif target is CUSTOM_GRADIENT:
            self._custom_gradient(node)
        elif target is GRADIENT:
            self._gradient(node)
        elif self._is_sparse_lookup(node):
            self._sparse_lookup(node, name, value)
        elif name in self._known:
            self._line(node, name, value)
        elif self._use_host:
            self._host_op(node, value)
        else:
            raise Unsupported(f"[{name}] is not an operator that Tandem has")

    def _view_form(self, node, name):
        """Trace and text are in terms of values: the tensor's name goes over to the view."""
        space, operator_name, *overload = name.split(".")
        view = ".".join([space, operator_name.removesuffix("_"), *overload])
        view = view if view in self._known else view + ".int"
        if view not in self._known:
            raise Unsupported(f"[{name}] changes the size of its argument's memory")
        self._check_reshaped(node.args[0], name)
        return view

    def _change_shape(self, node, view, value):
        """Under no_grad a tensor keeps its history. Of a view autograd knows the new shape, as of
        any. Else it knows the sizes from before, and sums a gradient to them: right where ones
        come in front, an error or the gradient of something else where not."""
        own, history, before = node.args[0], self._nodes_with_history(), self._no_grad
        if before and own in history and may_show_history(node):
            if view_made(own) not in history and not adds_in_front(own.meta["val"], value):
                raise Unsupported(f"[{node.target}] under no_grad changes what autograd knows")
            self._no_grad = False
        self._line(node, view, value)
        self._no_grad = before

    def _check_reshaped(self, node, name):
        root = self._root_input(node)
        if root is not None and (self._users is None or root in self._users):
            raise Unsupported(f"[{name}] changes the shape of an input")

    def _set(self, node, name, value):
        """The tensor's name goes over to an alias of the other one, whose history it does not get.
        What was a view of it stays one of its old memory."""
        own, other = node.args
        self._check_reshaped(own, name)
        history = self._nodes_with_history()
        if own in history or (other in history and not self._no_grad):
            raise Unsupported(f"[{name}] with a history")
        call = f"aten.detach({self._argument(other)})"
        self._add_line(self._result_names(node, value), call, node)

    def _line(self, node, name, value):
        if has_complex_number(node):
            if self._fills(node, name, value):
                return
            name = form_of_tensors(name)
        arguments = self._positional(node, name, value)
        arguments += [
            f"{key}={self._argument(arg)}"
            for key, arg in node.kwargs.items()
            if key not in ("device", "layout", "pin_memory", "non_blocking")
        ]
        results = self._result_names(node, value)
        self._add_line(results, f"{name}({', '.join(arguments)})", node)

    def _positional(self, node, name, value):
        """A number for a tensor is an operand without dimensions, unless the operator has a form
        for it (`mul.Scalar`) beside a tensor, which the compiler finds."""
        arguments = [self._argument(arg) for arg in self._from_base(node)]
        form = ".".join([*name.split(".")[:2], "Scalar"])
        has_form = form in self._known and "out" not in node.kwargs
        if has_form and any(is_tensor(arg) for arg in node.args):
            return arguments
        tensors = self._tensors.values()
        for i, (arg, parameter) in enumerate(zip(node.args, node.target._schema.arguments)):
            if str(parameter.type) != "Tensor" or is_tensor(arg) or arguments[i] in tensors:
                continue
            call = f"aten.full([], {arguments[i]}, dtype={dtype_name(value.dtype)})"
            arguments[i] = f"%v{len(self._lines)}"
            self._add_line([arguments[i]], call, node)
        return arguments

    def _from_base(self, node):
        """Arguments with an offset in a storage (as_strided) counted from where the input begins
        that lies there; calls that bring one from another place run in torch."""
        arguments = list(node.args)
        for i, (arg, parameter) in enumerate(zip(arguments, node.target._schema.arguments)):
            if parameter.name != "storage_offset" or arg is None:
                continue
            number = self._places.get(input_below(arguments[0]))
            if number is None:
                continue
            begin = self._fakes[number].storage_offset()
            if isinstance(begin, torch.SymInt):
                raise Unsupported(f"[{node.target}] of an input whose storage offset varies")
            self._offsets[number] = begin
            arguments[i] = (arg.meta["val"] if isinstance(arg, fx.Node) else arg) - begin
        return arguments

    def _add_line(self, results, call, node):
        words = ["no_grad"] if self._no_grad else []
        words += self._region_words(node)
        autocast = self._autocast(node)
        words += [f"autocast {autocast}"] if autocast else []
        attributes = f" {{{', '.join(words)}}}" if words else ""
        left = ", ".join(results) + " = " if results else ""
        place = place_of(node)
        where = f' loc("{place}")' if place else ""
        self._lines.append(f"{left}{call}{attributes}{where}")

    def _autocast(self, node):
        if self.knows_autocast:
            return self._autocasts[-1]
        return node.meta.get("custom", {}).get("tandem_autocast")

    # --- checkpoint regions and custom functions

    def _region_words(self, node):
        marks = node.meta.get("custom", {})
        number = marks.get("tandem_region", 0)
        region = self._bodies.regions[number - 1] if number else None
        words = [f"region {number}", region.word(node)] if region else []
        return words + ([f"memory_budget {share_of(marks)}"] if "memory_budget" in marks else [])

    def _custom_gradient(self, node):
        outputs, inputs, saved, kept, number = node.args
        body, fakes, watched = self._bodies.backward[number]
        roots = [self._root_input(saved[i]) for i in watched]
        self._watched.update(f"a{root}" for root in roots if root is not None)
        name = f"{self.name}_body{number}"
        captured = Captured(body, fakes, [False] * len(fakes), [], "pre", self._bodies)
        captured.no_grad = True
        if self._bodies.behind_autograd:
            captured.autocast = None
        self._more_graphs.append(self._inner(captured, name).encode().text)
        lists = ", ".join(self._argument(values) for values in (outputs, inputs, saved))
        results = self._result_names(node, node.meta["val"])
        self._add_line(results, f'tandem.custom_gradient({lists}, {list(kept)}, "{name}")', node)

    def _assert(self, node):
        value, text = (*node.args, "expected a value other than 0")[:2]
        self._asserted(node, self._argument(value), text)

    def _gradient(self, node):
        lists = ", ".join(self._argument(values) for values in node.args)
        results = self._result_names(node, node.meta["val"])
        self._add_line(results, f"tandem.gradient({lists})", node)

    # --- nodes that Python runs

    def _nodes_with_history(self):
        if self._with_history is None:
            flags = self._requires_grad[: len(self._module.graph.find_nodes(op="placeholder"))]
            self._with_history = nodes_with_history(self._module.graph, flags, self._starts_no_grad)
        return self._with_history

    def _result_names(self, node, value):
        base = f"v{len(self._lines)}"
        if isinstance(value, (list, tuple)):
            if any(isinstance(each, (list, tuple)) for each in value):
                raise Unsupported(f"[{node.target}] gives a list among its results")
            names = [f"{base}_{i}" for i in range(len(value))]
            self._names[node] = names
            if node.target in _WITH_STATISTICS:  # of fakes they have the input's type, always
                return [self._typed(node, names[0], value[0]), *["%" + name for name in names[1:]]]
            return [self._typed(node, *pair) for pair in zip(names, value, strict=True)]
        self._names[node] = base
        return [self._typed(node, base, value)] if value is not None else []

    def _typed(self, node, name, value):
        """With its type where it is not row-major: views depend on strides. And where it need not
        be, as an operand is not: some operators keep the strides of an operand; and where an
        as_strided asks for them."""
        if isinstance(value, torch.Tensor):
            dtype_text(value)  # other layouts than strided have no strides to ask for
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return "%" + name
        operands = [each.meta["val"] for each in node.all_input_nodes if is_tensor(each)]
        has_made_size = tells_size(node) and self._has_made_size(node)
        says_strides = (
            not all(map(is_row_major, (value, *operands)))
            or (not has_made_size and has_own_stride_of_one(value))
            or _is_read_by_places(node)
        )
        if not says_strides and not has_made_size:  # of a made one torch knows equals of one mask
            return "%" + name
        return f"%{name}: {self._type_text(value, says_strides)}"

    def _argument(self, value):
        if isinstance(value, fx.Node):
            if value in self._broken:
                raise _ReadsBroken
            if is_number(value):
                return self._number_argument(value)
            return "%" + self._names[value]
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self._argument(item) for item in value) + "]"
        if isinstance(value, torch.device):
            if value.type != "cpu":
                raise Unsupported(f"the device {value}: Tandem compiles for the CPU")
            return '"cpu"'
        if value is None or isinstance(value, torch.layout) or value is torch.preserve_format:
            return "none"
        if isinstance(value, torch.memory_format):
            return f'"{str(value).removeprefix("torch.")}"'
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else str(value)
        if isinstance(value, (int, torch.SymInt)):
            return self._sizes.text(value)
        if isinstance(value, complex):
            return self._complex_number(value)
        raise Unsupported(f"an argument of type {type(value).__name__}")

    # --- results

    def _output(self, node):
        if self._broken:
            raise _ReadsBroken
        outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        self._returned = []
        if self.is_body:
            kept = [out for out in outputs if self.gives_none or out is not None]
            self._results, self._given = [], []
            self._returned = [self._operand(out) for out in kept]
            return
        self._given = []  # nodes, by number of the result
        self._gives_tensors = any(map(is_tensor, outputs))
        self._results = [self._result(out) for out in outputs]
        self._give_sizes_of_views()

    def _result(self, out):
        if not isinstance(out, fx.Node):
            return Result("constant", value=out)
        if not is_tensor(out):
            value = out.meta["val"]
            is_size = kind_of(value) == "i64" and not self._is_made(value)
            if is_size and self._gives_tensors:  # no program is without a result
                return Result("size", value=self._sizes.text(value))
            self._returned.append(self.number(out))
            self._given.append(None)
            return Result("number", number=len(self._returned) - 1)
        self._returned.append("%" + self._names[out])
        self._given.append(out)
        return Result("tensor", number=len(self._returned) - 1)

    def _root_input(self, node):
        """Number of the input that an in-place op handed on."""
        node = handed_on(node)
        if node.op != "placeholder":
            return None
        return int(self._names[node][1:])


def is_number_in_tensor(node, value):
    is_scalar = isinstance(value, torch.Tensor) and value.dim() == 0
    reads = all(user.target in READS_OF_NUMBERS for user in node.users)
    return is_scalar and value.dtype == torch.float64 and bool(node.users) and reads


def share_of(marks):
    """Of a region that torch.fx.traceback.annotate gives a memory budget of its own."""
    share = marks["memory_budget"]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(f"[memory_budget] a region's is a number from 0 to 1, not {share!r}")
    return float(share)


def _is_read_by_places(node):
    """By as_strided, which counts in a storage."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is not None and any(p.name == "storage_offset" for p in schema.arguments):
            return True
        if user.target is operator.getitem and _is_read_by_places(user):
            return True
    return False


def known_operators():
    """Names of the operators that the compiler has, derived forms included."""
    return {name for op in ops() for name in (op.name, *op.variants)}


_KNOWN = frozenset(known_operators())


def encode(captured, use_host=False, compile_body=None, freeze=False):
    """`use_host`: operators that Tandem does not have become host nodes; else Unsupported names
    them all. `compile_body`: as Control.compile takes it. `freeze`: weights are marked."""
    return Encoder(captured, _KNOWN, use_host, compile_body, freeze).encode()
