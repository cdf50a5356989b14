"""The steps of random programs (random_programs.py), as the lines of Python that they are.

In a text `{v}` is the result, `{x}` the operand, `{y}` a second one, `{p}` and `{q}` parameters. A
text without `{v}` is an expression. A name that ends in "_" writes to its operand."""

import dataclasses
import functools
from collections.abc import Callable

import torch


@dataclasses.dataclass
class Step:
    text: str
    applies: Callable = lambda x: True
    draws: Callable = lambda rng, x: ()  # parameters
    fits: Callable = None  # (x, y); None: one operand

    def lines(self, v, operands, parameters):
        names = dict(zip("xy", operands)) | dict(zip("pq", map(repr, parameters)))
        text = self.text.format(v=v, **names)
        return (text if "{v}" in self.text else f"{v} = {text}").split("\n")


def run(name, operands, parameters):
    return _function(name)(*operands, *parameters)


@functools.cache
def _function(name):
    step = STEPS_BY_NAME[name]
    count = step.text.count("{p}") > 0, step.text.count("{q}") > 0
    given = ["x", "y"][: 1 + (step.fits is not None)] + ["p", "q"][: sum(count)]
    text = step.text.format(v="v", **{each: each for each in given})
    lines = text.split("\n") if "{v}" in step.text else [f"v = {text}"]
    body = "\n".join("    " + line for line in [*lines, "return v"])
    space = {"torch": torch}
    exec(f"def step({', '.join(given)}):\n{body}", space)
    return space["step"]


# --- operands


def _any(x):
    return True


def _has_dims(x):
    return x.dim() > 0


def _is_matrix(x):
    return x.dim() > 1


def _may_grow(x):
    return x.dim() < 3


def _has_rows(x):
    return x.dim() > 0 and x.shape[0] > 0


def _is_full(x):
    return x.numel() > 0


def _is_float(x):
    return x.dtype.is_floating_point


def _is_no_bool(x):
    return x.dtype != torch.bool


def _columns(least):
    return lambda x: x.dim() > 0 and x.shape[-1] >= least


def _both(*tests):
    return lambda x: all(test(x) for test in tests)


def shares_memory(x, y):
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def writes(name):
    return name == "chosen_put" or (name.endswith("_") and name not in SHAPE_IN_PLACE)


def shows_places_twice(x):
    """As overlapping windows do. Of an expanded tensor eager refuses the writes that matter."""
    places = {0}
    count = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if stride != 0:
            places = {place + i * stride for place in places for i in range(size)}
            count *= size
    return len(places) < count


def _broadcasts(x, y):
    return _broadcast(x, y) is not None


def _broadcast(x, y):
    try:
        return torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        return None


def _may_write(x, y):
    """What a write reads is the very tensor or shares no memory: else eager's result depends on the
    order of its loop."""
    return (x is y or not shares_memory(x, y)) and _broadcast(x, y) == x.shape


def _are_apart(x, y):
    return not shares_memory(x, y) and _broadcast(x, y) == x.shape


def _may_swap(x, y):
    is_alike = x.shape == y.shape and x.dtype == y.dtype
    return is_alike and not shares_memory(x, y) and not shows_places_twice(y)


def _may_join(x, y):
    return x.dim() == y.dim() and x.shape[1:] == y.shape[1:]


def _are_factors(x, y):
    """Of a product of floats; a dimension without elements is for other steps."""
    if not (_is_float(x) and x.dtype == y.dtype and x.dim() and y.dim()):
        return False
    return _is_full(x) and _is_full(y) and x.shape[-1] == y.shape[max(0, y.dim() - 2)]


def _are_equal_sides(x, y):
    return _are_factors(x, y.transpose(-1, -2) if y.dim() > 1 else y) and y.dim() == 2


def _may_add_product(x, y):
    """x + y @ y.T"""
    fits = _are_equal_sides(y, y) and x.shape == (y.shape[0],) * 2 and x.dtype == y.dtype
    return fits and not shares_memory(x, y)


# --- parameters


def _dim(rng, x):
    return (rng.randrange(-x.dim(), x.dim()),)


def _dim_and_keep(rng, x):
    return (rng.randrange(x.dim()), rng.random() < 0.5)


def _new_dim(rng, x):
    return (rng.randrange(x.dim() + 1),)


def _row(rng, x):
    return (rng.randrange(x.shape[0]),)


def _column(rng, x):
    return (rng.randrange(x.shape[-1]),)


def _two_dims(rng, x):
    return tuple(rng.sample(range(x.dim()), 2))


def _order(rng, x):
    return (tuple(rng.sample(range(x.dim()), x.dim())),)


def _number(rng, x):
    return (rng.choice([0.0, 1.5]),)


def _strided(rng, x):
    """A transposition, a row, or every other element of what x shows."""
    sizes, strides = tuple(x.shape), x.stride()
    kind = rng.choice(["turned", "row", "other"])
    if kind == "turned":
        return sizes[::-1], strides[::-1]
    if kind == "row":
        return sizes[1:], strides[1:]
    return ((sizes[0] + 1) // 2, *sizes[1:]), (2 * strides[0], *strides[1:])


def _under(enabled, expression):
    return f"with torch.set_grad_enabled({enabled}):\n    {{v}} = {expression}"


# --- the steps

SHORT = {
    "add": Step("{x} + {y}", fits=_broadcasts),
    "mul": Step("{x} * {y}", fits=_broadcasts),
    "sub": Step("{x} - {y}", fits=_broadcasts),
    "maximum": Step("torch.maximum({x}, {y})", fits=_broadcasts),
    "where": Step("torch.where({x} > 0, {x}, {y})", fits=_broadcasts),
    "cat": Step("torch.cat([{x}, {y}])", _has_dims, fits=_may_join),
    "stack": Step("torch.stack([{x}, {y}], -1)", _may_grow, fits=lambda x, y: x.shape == y.shape),
    "add_": Step("{x}.add_({y})", fits=_may_write),
    "mul_": Step("{x}.mul_({y})", fits=_may_write),
    "copy_": Step("{x}.copy_({y})", fits=_may_write),
    "div_": Step("{x}.div_({y}.abs() + 1)", fits=_are_apart),
    "addcmul_": Step("{x}.addcmul_({y}, {y})", fits=_are_apart),
    "lerp_": Step("{x}.lerp_({y}, 0.25)", fits=_are_apart),
    "set_rows_": Step("{x}[:] = {y}\n{v} = {x}", _has_rows, fits=_are_apart),
    "add_reversed_": Step("{x}.add_({y}.flip(-1))", _has_dims,
                          fits=lambda x, y: y.dim() > 0 and _are_apart(x, y)),
    "relu_": Step("{x}.relu_()"),
    "neg_": Step("{x}.neg_()"),
    "tanh_": Step("{x}.tanh_()"),
    "fill_": Step("{x}.fill_({p})", draws=_number),
    "zero_row_": Step("{x}[{p}] = 0\n{v} = {x}", _has_rows, _row),
    "scale_column_": Step("{x}[..., {p}] *= 2\n{v} = {x}", _columns(1), _column),
    "fill_rows_": Step("{x}.index_fill_(0, torch.arange({p} + 1), 1)", _has_rows, _row),
    "add_rows_": Step("{x}.index_add_(0, torch.arange({p} + 1), {x}[: {p} + 1] * 2)",
                      _has_rows, _row),
    "tril_": Step("{x}.tril_()", _is_matrix),
    "view_add_": Step("{x}.transpose(0, -1).add_(1)\n{v} = {x}", _is_matrix),
    "diagonal_zero_": Step("{x}.diagonal(0, -2, -1).zero_()\n{v} = {x}", _is_matrix),
    "no_grad_mul_": Step("with torch.no_grad():\n    {v} = {x}.mul_(0.5)"),
    "sin": Step("torch.sin({x})"),
    "exp": Step("torch.exp({x}.clamp(max=3))"),
    "clone": Step("{x}.clone()"),
    "detach": Step("{x}.detach()"),
    "neg": Step("-{x}"),
    "identity": Step("{x} * 1"),
    "out": Step("torch.sin({x}.detach(), out=torch.empty_like({x}.detach()))", _is_float),
    # reductions
    "sum": Step("{x}.sum()"),
    "sum_dim": Step("{x}.sum({p}, keepdim={q})", _has_dims, _dim_and_keep),
    "mean_dim": Step("{x}.mean({p}, keepdim={q})", _has_dims, _dim_and_keep),
    "amax": Step("{x}.amax({p}, keepdim={q})", _both(_has_dims, _is_full), _dim_and_keep),
    "min": Step("{x}.min({p}, keepdim={q}).values", _both(_has_dims, _is_full), _dim_and_keep),
    "prod": Step("{x}.prod({p}, keepdim={q})", _has_dims, _dim_and_keep),
    "var": Step("{x}.var({p}, unbiased=False, keepdim={q})", _has_dims, _dim_and_keep),
    "logsumexp": Step("{x}.logsumexp({p}, keepdim={q})", _both(_has_dims, _is_float),
                      _dim_and_keep),
    "softmax": Step("{x}.softmax({p})", _both(_has_dims, _is_float), _dim),
    "cumsum": Step("{x}.cumsum({p})", _has_dims, _dim),
    "sort": Step("{x}.sort({p}).values", _has_dims, _dim),
    # products
    "matmul": Step("{x} @ {y}", fits=_are_factors),
    "linear": Step("torch.nn.functional.linear({x}, {y})", fits=_are_equal_sides),
    "outer": Step("torch.outer({x}, {y})", lambda x: x.dim() == 1, fits=lambda x, y: y.dim() == 1),
    "gram": Step("{x} @ {x}.transpose(-1, -2)", _both(_is_matrix, _is_float)),
    "einsum": Step("torch.einsum('...i,...i->...', {x}, {y})", _both(_has_dims, _is_float),
                   fits=lambda x, y: y.shape == x.shape and x.dtype == y.dtype),
    "addmm": Step("torch.addmm({x}, {y}, {y}.t(), beta=0.5)", fits=_may_add_product),
    "addmm_": Step("{x}.addmm_({y}, {y}.t(), alpha=0.5)", fits=_may_add_product),
    # views, and what may be one
    "transpose": Step("{x}.transpose({p}, {q})", _is_matrix, _two_dims),
    "permute": Step("{x}.permute({p})", _is_matrix, _order),
    "t": Step("{x}.t()", _may_grow),
    "select": Step("{x}[{p}]", _has_rows, _row),
    "slice": Step("{x}[..., {p}:]", _columns(2), _column),
    "narrow": Step("{x}.narrow(-1, {p}, 1)", _columns(1), _column),
    "step": Step("{x}[..., ::2]", _columns(3)),
    "expand": Step("{x}.expand(2, *{x}.shape)", _may_grow),
    "expand_as": Step("{x}.expand_as({y})", fits=lambda x, y: _broadcast(x, y) == y.shape),
    "unsqueeze": Step("{x}.unsqueeze({p})", _may_grow, _new_dim),
    "squeeze": Step("{x}.squeeze({p})", _has_dims, _dim),
    "squeeze_all": Step("{x}.squeeze()"),
    "reshape": Step("{x}.reshape(-1)"),
    "view": Step("{x}.view(-1)", lambda x: x.is_contiguous()),
    "contiguous": Step("{x}.contiguous()"),
    "flatten": Step("{x}.flatten(0, 1)", _is_matrix),
    "diagonal": Step("{x}.diagonal(0, -2, -1)", _is_matrix),
    "unfold": Step("{x}.unfold(-1, 2, 1)", _both(_columns(2), _may_grow)),
    "unbind": Step("{x}.unbind(0)[{p}]", _has_rows, _row),
    "split": Step("{x}.split(1, -1)[0]", _columns(2)),
    "chunk": Step("{x}.chunk(2, -1)[-1]", _columns(2)),
    "as_strided": Step("{x}.as_strided({p}, {q})", _both(_has_rows, _is_full), _strided),
    # elements at other places
    "masked_fill": Step("{x}.masked_fill({x} > 0.5, {p})", draws=_number),
    "flip": Step("{x}.flip({p})", _has_dims, _dim),
    "roll": Step("{x}.roll(1, {p})", _has_dims, _dim),
    "repeat": Step("{x}.repeat_interleave(2, -1)", _has_dims),
    "rows_by_index": Step("{x}[torch.tensor([0, {p}, 0])]", _has_rows, _row),
    "index_select": Step("{x}.index_select(-1, torch.tensor([{p}, 0]))", _columns(1), _column),
    # shapes in place
    "transpose_": Step("{x}.transpose_({p}, {q})", _is_matrix, _two_dims),
    "swapaxes_": Step("{x}.swapaxes_({p}, {q})", _is_matrix, _two_dims),
    "t_": Step("{x}.t_()", _may_grow),
    "squeeze_": Step("{x}.squeeze_({p})", _has_dims, _dim),
    "squeeze_all_": Step("{x}.squeeze_()"),
    "unsqueeze_": Step("{x}.unsqueeze_({p})", _may_grow, _new_dim),
    "as_strided_": Step("{x}.as_strided_({p}, {q})", _both(_has_rows, _is_full), _strided),
}  # fmt: skip
# Only of what the program made: Dynamo gives no graph that changes the shape of an input.
SHAPE_IN_PLACE = {"transpose_", "swapaxes_", "t_", "squeeze_", "squeeze_all_", "unsqueeze_"}
SHAPE_IN_PLACE |= {"as_strided_"}
# Of long programs.
LONG = {
    "zero_": Step("{x}.zero_()"),
    "one_": Step("{x}.fill_(1)"),
    # As a module resets a buffer: a value of its own, written to it.
    "reset_": Step("{x}.copy_(torch.zeros_like({x}))"),
    "swap_": Step("kept = {x}.clone()\n{x}.copy_({y})\n{y}.copy_(kept)\n{v} = {x}",
                  fits=_may_swap),
    "set_part_": Step("{x}[..., :1] = {y}[..., :1]\n{v} = {x}", _columns(2), fits=_may_write),
    "masked_fill_": Step("{x}.masked_fill_({y} > 0, 2)", fits=_may_write),
    "masked_scatter_": Step("{x}.masked_scatter_({x} > 0, {y})",
                            fits=lambda x, y: x.shape == y.shape and _are_apart(x, y)),
    "add_one_": Step("{x}.add_(1)"),
    "clamp_": Step("{x}.clamp_(-2, 2)", _is_no_bool),
    "sub_": Step("{x}.sub_({y})", _is_no_bool, fits=_may_write),
    "foreach_zero_": Step("torch._foreach_zero_([{x}, {y}])\n{v} = {x}",
                          fits=lambda x, y: not shows_places_twice(y)),
    "foreach_add_": Step("torch._foreach_add_([{x}], [{y}])\n{v} = {x}", _is_no_bool,
                         fits=_may_write),
    # Of a float eager forgets that it was written: the gradient goes through it as if it were not.
    "logical_not_": Step("{x}.logical_not_()", lambda x: not _is_float(x)),
    # views that no schema tells of
    "atleast_3d": Step("torch.atleast_3d({x})"),
    "broadcast_tensors": Step("torch.broadcast_tensors({x}, {y})[0]", fits=_broadcasts),
    "einsum_view": Step("torch.einsum('...ij->...ji', {x})", _both(_is_matrix, _is_float)),
    "no_dropout": Step("torch.nn.functional.dropout({x}, 0.5, False)", _is_float),
    "bernoulli_": Step("{x}.bernoulli_(1.0)"),
    "normal_": Step("{x}.normal_(2.0, 0.0)", _is_float),
    "data_zero_": Step("{x}.detach().zero_()\n{v} = {x}"),
    "less": Step("{x} < {y}", fits=_broadcasts),
    "argmax": Step("{x}.argmax({p}, keepdim={q})", _both(_has_dims, _is_full), _dim_and_keep),
    "any": Step("{x}.any({p}, keepdim={q})", _has_dims, _dim_and_keep),
    "to_int": Step("{x}.clamp(-1000, 1000).nan_to_num().to(torch.int64)"),
    "to_bool": Step("{x} > 0"),
    "to_float": Step("{x}.to(torch.float64) * 0.5"),
    "no_grad_sin": Step(_under(False, "torch.sin({x})")),
    "no_grad_view": Step(_under(False, "{x}[0]"), _has_rows),
    "enable_grad_sin": Step(_under(True, "torch.sin({x})")),
    "grad_off": Step("torch.set_grad_enabled(False)\n{v} = {x} * 1"),
    "grad_on": Step("torch.set_grad_enabled(True)\n{v} = {x} * 1"),
    "full": Step("torch.full_like({x}, 2)"),
}  # fmt: skip
# Only data tell their sizes.
MORE = {
    "chosen": Step("{x}[{x} > 0].sum()", _has_dims),
    "chosen_put": Step("mask = {x} > 0.1\n{x}[mask] = {x}[mask] * 2\n{v} = {x}", _has_dims),
    "nonzero": Step("{x}.detach().nonzero().sum() * 1.0", _has_dims),
    "item": Step("{x} * {x}.detach().sum().item()"),
    "rows": Step("{x}[{x}.detach().sum(-1) > 0].sum(0)", lambda x: x.dim() == 2),
}
STEPS_BY_NAME = SHORT | LONG | MORE
