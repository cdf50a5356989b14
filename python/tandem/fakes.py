"""What the nodes and fake tensors of a trace say: memory, layout, element type, the user's line."""

import operator

import torch
from torch import fx

from tandem._tandem import Unsupported

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def is_tensor(node):
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def storage_of(value):
    return value.untyped_storage()._cdata if value.layout is torch.strided else None


def changes_shape(target):
    """In place: `t_`, `squeeze_`. What it gives is a view of the memory, not a new value of it."""
    return torch.Tag.inplace_view in getattr(target, "tags", ())


def adds_in_front(value, view):
    """The view has dimensions of one element in front, and then those of the value."""
    more = view.dim() - value.dim()
    ones = [1] * more + list(value.shape)
    behind = list(view.stride())[max(more, 0) :]
    return more >= 0 and list(view.shape) == ones and behind == list(value.stride())


def is_in_place(target):
    if not isinstance(target, torch._ops.OpOverload) or changes_shape(target):
        return False
    returns = target._schema.returns
    return bool(returns) and returns[0].alias_info is not None and returns[0].alias_info.is_write


def handed_on(node):
    """The node whose tensor operators in place, or with `out=`, handed on."""
    while node.op == "call_function" and is_in_place(node.target):
        node = written_arguments(node)[0]
    return node


def view_made(node):
    """The node that made this tensor, where it is a view of another one; else None."""
    while node.op == "call_function" and (changes_shape(node.target) or is_in_place(node.target)):
        node = node.args[0] if changes_shape(node.target) else written_arguments(node)[0]
    maker = node.args[0] if node.target is operator.getitem else node
    storage = storage_of(node.meta["val"])
    sources = [each for each in maker.all_input_nodes if is_tensor(each)]
    is_view = any(storage_of(each.meta["val"]) == storage for each in sources)
    return node if node.op == "call_function" and is_view else None


def written_arguments(node):
    """The nodes that an operator's schema says it writes: its first arguments, or `out=`."""
    parameters = node.target._schema.arguments
    given = dict(zip([each.name for each in parameters], node.args, strict=False)) | node.kwargs
    names = [each.name for each in parameters if each.alias_info and each.alias_info.is_write]
    values = [given[name] for name in names if name in given]
    return [each for value in values for each in (value if is_list(value) else [value])]


def is_list(value):
    return isinstance(value, (list, tuple))


def written_by(node):
    """The nodes to whose memory an operator in place gives values that autograd sees: one, or a
    list (`_foreach_add_`), or `out=`, or all that one without results writes.
    What is written beside results (running statistics) has no history."""
    if is_in_place(node.target):
        return written_arguments(node)
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.returns:
        return []
    return written_arguments(node)


def gives_its_operand(node):
    """Its result is the very tensor that it was given, as far as the operator decides that by what
    the tensor is: asked by calling it again."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.args:
        return False
    if not is_tensor(node) or not is_tensor(node.args[0]) or node.target._schema.is_mutable:
        return False
    if storage_of(node.meta["val"]) != storage_of(node.args[0].meta["val"]):
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    return node.target(*args, **kwargs) is args[0]


def dtype_text(value):
    if value.layout is not torch.strided:
        raise Unsupported(f"a tensor of layout {value.layout}")
    if value.device.type != "cpu":
        raise Unsupported(f"a tensor on the device {value.device}: Tandem compiles for the CPU")
    return dtype_name(value.dtype)


def dtype_name(dtype):
    if dtype not in DTYPES:
        raise Unsupported(f"the element type {dtype}")
    return DTYPES[dtype]


def is_row_major(value):
    if not any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in value.shape):
        return value.is_contiguous()
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if hint_of(size) != 1 and hint_of(stride) != expected:
            return False
        expected *= hint_of(size)
    return True


def has_own_stride_of_one(value):
    """A dimension of size 1 whose stride is not that of row-major order, as channels of an image
    that lies channels-last have."""
    sizes, strides = value.shape, value.stride()
    for i in range(len(sizes) - 1):
        if isinstance(sizes[i], int) and sizes[i] == 1:
            expected = sizes[i + 1] * strides[i + 1]
            if str(strides[i]) != str(expected):
                return True
    return len(sizes) > 0 and isinstance(sizes[-1], int) and sizes[-1] == 1 and strides[-1] != 1


def input_below(node):
    """The placeholder that it was made from by views and writes, or None. Other inputs share its
    memory in this call, and need not in the next one."""
    while node is not None and node.op != "placeholder":
        maker = node.args[0] if node.target is operator.getitem else node
        storage = storage_of(node.meta["val"])
        sources = [each for each in maker.all_input_nodes if is_tensor(each)]
        node = next((each for each in sources if storage_of(each.meta["val"]) == storage), None)
    return node


def hints_of(environment):
    """Present values of the symbols that arguments tell. Older torch has them by another name."""
    if hasattr(environment, "backed_var_to_val"):
        return environment.backed_var_to_val
    return environment.var_to_val


def hint_of(value):
    """A number to compare by. Symbols that only data tell count as any number of theirs does."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    if value.node.has_hint():
        return value.node.hint
    known = hints_of(value.node.shape_env)
    unknown = sorted(value.node.expr.free_symbols, key=str)
    return int(
        value.node.expr.xreplace(
            {symbol: known.get(symbol, 4099 + number) for number, symbol in enumerate(unknown)}
        )
    )


def place_of(node):
    """ "model.py:41" of the user's line."""
    trace = node.meta.get("stack_trace") or ""
    place = ""
    for line in trace.split("\n"):
        line = line.strip()
        if line.startswith('File "') and '", line ' in line:
            file, rest = line[6:].split('", line ', 1)
            place = f"{file.rsplit('/', 1)[-1]}:{rest.split(',')[0]}"
    return place


def plain_text(text):
    """What a quoted string of ours can hold."""
    return "".join(each if each.isprintable() and each not in '"\\' else " " for each in text)


def place_text(node):
    place = place_of(node)
    return f" ({place})" if place else ""
