"""Other forms of the operator sweep's samples (opdb.py).

    strided      tensors lie transposed, with gaps or behind an offset
    dynamic      sizes are symbols, as with torch.compile(dynamic=True)
    in_place     the entry's in-place variant, on a copy where there is a gradient
    out          with `out=` tensors that the graph makes, full of something else
    errors       samples that eager refuses: Tandem must, too
"""

import torch
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

FORMS = ("strided", "dynamic", "in_place", "out", "errors")


def in_place_of(entry):
    def run(first, *args, **kwargs):
        first = first.clone() if first.requires_grad else first
        return entry.inplace_variant(first, *args, **kwargs)

    return run


def takes(entry, form):
    """It has that form."""
    kinds = {"in_place": entry.inplace_variant, "out": entry.supports_out}
    return bool(kinds.get(form, True))


def with_out(entry):
    """Without gradients, which these forms refuse."""

    @torch.no_grad()
    def run(first, *args, **kwargs):
        made = entry.op(first, *args, **kwargs)
        if isinstance(made, torch.Tensor):
            out = torch.full_like(made, 3)
            entry.op(first, *args, **kwargs, out=out)
            return out
        outs = [torch.full_like(each, 3) for each in made]
        entry.op(first, *args, **kwargs, out=tuple(outs))
        return outs

    return run


def strided(value, number):
    """The same elements in another layout; samples take turns. Overlapping ones stay."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    if value.dim() == 0 or not value.numel() or 0 in value.stride():
        return value
    shape = list(value.shape)
    if number % 3 == 0 and value.dim() > 1:  # the last two turned
        other = value.new_empty([*shape[:-2], shape[-1], shape[-2]]).transpose(-1, -2)
    elif number % 3 == 1:  # every second element, from the second on
        other = value.new_empty([*shape[:-1], 2 * shape[-1] + 1])[..., 1::2]
    else:  # the first dimension is the innermost one, rows have gaps
        other = value.new_empty([*shape[1:], shape[0] + 3])[..., 2:-1].movedim(-1, 0)
    with torch.no_grad():
        other.copy_(value)
    return other.detach().requires_grad_(value.requires_grad)


def symbolic(inputs):
    """Fakes with symbols for sizes, equal ones for equal sizes."""
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    fakes = []
    for number, value in enumerate(inputs):
        context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * value.dim())
        source = LocalSource(f"x{number}")
        fakes.append(mode.from_tensor(value, symbolic_context=context, source=source))
    return fakes
