"""Composites of PyTorch that give an operand, or a view of it, without saying so in their schema:
what is written to the result is written to the operand, as in eager."""

import pytest
import torch
import torch.nn.functional as F

from compiled import compile_with

VIEWS = {
    "atleast_1d": torch.atleast_1d,
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": torch.atleast_3d,
    "atleast_1d of a list": lambda x: torch.atleast_1d([x])[0],
    "atleast_2d of a list": lambda x: torch.atleast_2d([x * 1, x])[1],
    "atleast_3d of several": lambda x: torch.atleast_3d(x, x * 1)[0],
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x * 1)[0],
    "cartesian_prod": torch.cartesian_prod,
    "einsum": lambda x: torch.einsum("i->i", x),
    "einsum of a matrix": lambda x: torch.einsum("ij->ji", x.view(2, 2)),
    "einsum of a diagonal": lambda x: torch.einsum("ii->i", x.view(2, 2)),
    "meshgrid": lambda x: torch.meshgrid(x, indexing="ij")[0],
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(1, 1, 2, 2), 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x.view(1, 2, 1, 2), 1),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, False),
    "dropout2d": lambda x: F.dropout2d(x.view(1, 1, 2, 2), 0.5, False),
    "chain_matmul": lambda x: torch.chain_matmul(x.view(2, 2)),
    "type_as": lambda x: x.type_as(x),
    "positive": torch.positive,
    "real": torch.real,
    "resolve_conj": torch.resolve_conj,
    "ravel": torch.ravel,
    "unflatten": lambda x: x.unflatten(0, (2, 2)),
    "tensor_split": lambda x: torch.tensor_split(x, 3)[0],
    "broadcast_to": lambda x: torch.broadcast_to(x, x.shape),
    "expand_as": lambda x: x.expand_as(x),
}
COPIES = {
    "pad": lambda x: F.pad(x, (0, 0)),
    "block_diag": torch.block_diag,
    "repeat": lambda x: x.repeat(1),
    "tile": lambda x: torch.tile(x, (1,)),
    "roll": lambda x: torch.roll(x, 0),
    "flip": lambda x: torch.flip(x, ()),
    "view_copy": lambda x: torch.view_copy(x, (4,)),
    "dropout of all": lambda x: F.dropout(x, 1.0, True),
    "einsum that sums": lambda x: torch.einsum("ij->i", x.view(2, 2)),
    "einsum of two": lambda x: torch.einsum("i,i->i", x, x),
    "atleast_2d of a sum": lambda x: torch.atleast_2d(x + 1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
@pytest.mark.filterwarnings("ignore:torch.chain_matmul:UserWarning")
def test_what_is_written_to_the_result(name, dynamic):
    shown = (VIEWS | COPIES)[name]

    def function(x):
        y = shown(x)
        y.add_(1)
        return x * 2, y, shown(x)

    ours, eager = torch.arange(4.0), torch.arange(4.0)
    actual, expected = compile_with(function, dynamic=dynamic)(ours), function(eager)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    for a, e in zip(actual, expected, strict=True):
        assert steps(a) == steps(e)
        assert (storage(a) == storage(ours)) == (storage(e) == storage(eager))


def steps(tensor):
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1]


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.filterwarnings("ignore:torch.chain_matmul:UserWarning")
def test_gradients_through_what_is_shown(name):
    def function(x):
        x = x * 1
        VIEWS[name](x).mul_(3)
        return x.sin()

    ours, eager = (torch.arange(4.0, requires_grad=True) for _ in range(2))
    try:
        expected = function(eager)
    except RuntimeError:  # views of calls with several results
        with pytest.raises(RuntimeError):
            compile_with(function)(ours)
        return
    actual = compile_with(function)(ours)
    torch.testing.assert_close(actual, expected)
    for out in (actual, expected):
        out.sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


def test_a_dropout_of_nothing_before_a_vmap():
    """Which is traced behind dispatch: torch has taken the dropout apart there."""

    def function(x):
        F.dropout(x, 0.5, False).add_(1)
        return torch.vmap(lambda row: row[: row.shape[0] - 1] * 2)(x)

    ours, eager = torch.ones(3, 4), torch.ones(3, 4)
    actual, expected = compile_with(function)(ours), function(eager)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)
