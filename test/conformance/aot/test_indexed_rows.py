"""Rows at once of operators that read and write at computed places, beside torch.vmap: each row has
places of its own, or all share them, or all share what is read."""

import itertools

import pytest
import torch
from torch import fx

import tandem
from rows_at_once import type_text
from tandem.capture import capture
from tandem.encode import encode

ROWS = 3
SEEDED = torch.Generator().manual_seed(0)  # the same cases in every run


def numbers(*sizes):
    return torch.randn(sizes, dtype=torch.float64, generator=SEEDED)


def places(below, *sizes):
    """Different ones in each row, some twice."""
    return torch.randint(0, below, sizes, generator=SEEDED)


def distinct(below, rows, count):
    return torch.stack([torch.randperm(below, generator=SEEDED)[:count] for _ in range(rows)])


# Operands with rows; the first is what is read or written, the others follow.
CASES = {
    "index": (lambda x, i: x[i], numbers(ROWS, 4, 5), places(4, ROWS, 6)),
    "index of two dimensions": (lambda x, i: x[i], numbers(ROWS, 4, 5), places(4, ROWS, 2, 3)),
    "index by one number": (
        lambda x, i: torch.ops.aten.index(x, [i]),
        numbers(ROWS, 4, 5),
        places(4, ROWS),
    ),
    "index from the end": (lambda x, i: x[i], numbers(ROWS, 4), places(4, ROWS, 6) - 4),
    "index behind": (lambda x, i: x[:, i], numbers(ROWS, 4, 5, 2), places(5, ROWS, 3)),
    "two indices": (
        lambda x, i, j: x[i, j],
        numbers(ROWS, 4, 5, 2),
        places(4, ROWS, 3, 1),
        places(5, ROWS, 2),
    ),
    "two indices behind": (
        lambda x, i, j: x[:, i, j],
        numbers(ROWS, 2, 4, 5, 3),
        places(4, ROWS, 3),
        places(5, ROWS, 1),
    ),
    "indices apart": (
        lambda x, i, j: x[i, :, j],
        numbers(ROWS, 4, 5, 6),
        places(4, ROWS, 3),
        places(6, ROWS, 2, 3),
    ),
    "index_put": (
        lambda x, i, v: x.index_put((i,), v),
        numbers(ROWS, 4, 5),
        distinct(4, ROWS, 2),
        numbers(ROWS, 2, 5),
    ),
    "index_put that adds": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        numbers(ROWS, 4, 5),
        places(4, ROWS, 7),
        numbers(ROWS, 5),
    ),
    "index_put behind": (
        lambda x, i, v: torch.ops.aten.index_put(x, (None, i), v, True),
        numbers(ROWS, 2, 4, 3),
        places(4, ROWS, 5),
        numbers(ROWS, 2, 5, 3),
    ),
    "index_put apart": (
        lambda x, i, j, v: torch.ops.aten.index_put(x, (i, None, j), v, True),
        numbers(ROWS, 4, 2, 3),
        places(4, ROWS, 5),
        places(3, ROWS, 5),
        numbers(ROWS, 5, 2),
    ),
    "a mask writes": (
        lambda x, m, v: torch.ops.aten.index_put(x, (m,), v),
        numbers(ROWS, 4, 5),
        torch.rand(ROWS, 4, generator=SEEDED) > 0.5,
        numbers(ROWS),
    ),
    "index_select": (
        lambda x, i: x.index_select(1, i),
        numbers(ROWS, 4, 5, 2),
        places(5, ROWS, 7),
    ),
    "index_add": (
        lambda x, i, v: x.index_add(0, i, v, alpha=2),
        numbers(ROWS, 4, 5),
        places(4, ROWS, 7),
        numbers(ROWS, 7, 5),
    ),
    "index_copy": (
        lambda x, i, v: x.index_copy(1, i, v),
        numbers(ROWS, 4, 5),
        distinct(5, ROWS, 2),
        numbers(ROWS, 4, 2),
    ),
    "index_fill": (
        lambda x, i: x.index_fill(1, i, 7),
        numbers(ROWS, 4, 5),
        places(5, ROWS, 2),
    ),
    "gather": (lambda x, i: x.gather(1, i), numbers(ROWS, 4, 5), places(5, ROWS, 3, 7)),
    "scatter": (
        lambda x, i, v: x.scatter(0, i, v),
        numbers(ROWS, 6),
        distinct(6, ROWS, 4),
        numbers(ROWS, 4),
    ),
    "scatter of a part": (
        lambda x, i, v: x.scatter(0, i, v),
        numbers(ROWS, 6),
        distinct(6, ROWS, 4),
        numbers(ROWS, 5),
    ),
    "scatter_add": (
        lambda x, i, v: x.scatter_add(1, i, v),
        numbers(ROWS, 4, 5),
        places(5, ROWS, 4, 8),
        numbers(ROWS, 4, 8),
    ),
    "scatter_reduce": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
        numbers(ROWS, 6),
        places(6, ROWS, 9),
        numbers(ROWS, 9),
    ),
    "take": (lambda x, i: x.take(i), numbers(ROWS, 4, 5), places(20, ROWS, 3)),
    "take_along_dim": (
        lambda x, i: x.take_along_dim(i, 0),
        numbers(ROWS, 4, 5),
        places(4, ROWS, 3, 5),
    ),
    "embedding": (
        lambda x, i: torch.nn.functional.embedding(i, x),
        numbers(ROWS, 9, 4),
        places(9, ROWS, 2, 3),
    ),
}


def in_dims(count):
    """All ways of having rows, at least one operand with them."""
    return [each for each in itertools.product([0, None], repeat=count) if 0 in each]


def in_torch(function, dims, values):
    try:
        return torch.vmap(function, in_dims=dims)(*values)
    except RuntimeError as error:  # masks have no rows there
        if "dynamic shape" not in str(error):
            raise
    rows = [[v if d is None else v[r] for v, d in zip(values, dims)] for r in range(ROWS)]
    return torch.stack([function(*row) for row in rows])


def of_row(values, dims):
    return [v if dim is not None else v[1] for v, dim in zip(values, dims, strict=True)]


def text_of(function, values, dims, result):
    rows = [v[0] if dim is not None else v for v, dim in zip(values, dims, strict=True)]
    graph = fx.Graph()
    holders = tuple(graph.placeholder(f"x{i}") for i in range(len(rows)))
    graph.output(graph.call_function(function, holders))
    encoded = encode(capture(fx.GraphModule(torch.nn.Module(), graph), rows))
    names, order = encoded.names, encoded.arguments
    inputs = ", ".join(
        f"%{n}: {type_text(values[at])}" + (" {input grad}" if values[at].requires_grad else "")
        for n, at in zip(names, order, strict=True)
    )
    numbered = [-1 if dims[at] is None else dims[at] for at in order]
    operands = ", ".join(f"%{name}" for name in names)
    body = encoded.text.replace(encoded.text.split("(")[0], "graph @body", 1)
    main = (
        f"graph @main({inputs}) {{\n  %r: {type_text(result)} = "
        f'tandem.vmap([{operands}], {numbered}, "body")\n  return %r\n}}\n\n'
    )
    return main + body, names, order


@pytest.mark.parametrize("name", CASES)
def test_as_torch_does(name):
    function, *values = CASES[name]
    for dims in in_dims(len(values)):
        given = of_row(values, dims)
        expected = in_torch(function, dims, given)
        text, names, order = text_of(function, given, dims, expected)
        program = tandem.compile_text(text, "", interpret=True)
        named = {n: given[at] for n, at in zip(names, order, strict=True)}
        (got,) = program([named[each] for each in program.inputs])
        torch.testing.assert_close(got, expected, msg=lambda text: f"{dims}: {text}")


# Eager's own has the shape of the index (ScatterBackward0).
LEFT_OUT = ("scatter of a part",)


@pytest.mark.parametrize("name", [name for name in CASES if name not in LEFT_OUT])
def test_gradients(name):
    function, *values = CASES[name]
    for dims in in_dims(len(values)):
        given = [
            v.clone().requires_grad_() if v.is_floating_point() else v for v in of_row(values, dims)
        ]
        result = in_torch(function, dims, given)
        tangent = numbers(*result.shape)
        floats = [v for v in given if v.is_floating_point()]
        expected = torch.autograd.grad(result, floats, tangent)
        text, names, order = text_of(function, given, dims, result)
        program = tandem.compile_text(text, "tangents", interpret=True)
        named = {n: given[at].detach() for n, at in zip(names, order, strict=True)}
        named["tangent0"] = tangent
        got = program([named[each] for each in program.inputs])[1:]
        read = [each for each in got if each is not None]
        by_name = [given[at] for at in order if given[at].is_floating_point()]
        wanted = [expected[[each is v for v in floats].index(True)] for each in by_name]
        for one, other in zip(read, wanted, strict=True):
            torch.testing.assert_close(one, other, msg=lambda text: f"{dims}: {text}")
