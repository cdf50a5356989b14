"""`sparse=True`: the gradient of a table is the rows that were read and where they stand."""

import pytest
import torch
import torch.nn.functional as F

import tandem
from compiled import compile_with

INDICES = torch.tensor([[1, 4, 1], [0, 2, 4]])
FLAT = torch.tensor([1, 4, 1, 0, 2, 4])
OFFSETS = torch.tensor([0, 2, 2, 5])


def tables(count=1):
    generator = torch.Generator().manual_seed(5)
    made = [torch.randn(6, 3, generator=generator) for _ in range(count)]
    return [each.requires_grad_() for each in made]


def same(ours, eager):
    assert (ours is None) == (eager is None)
    if eager is None:
        return
    assert ours.layout == eager.layout
    assert ours.shape == eager.shape
    torch.testing.assert_close(ours.to_dense(), eager.to_dense())
    if eager.layout is torch.sparse_coo:
        assert ours.is_coalesced() == eager.is_coalesced()
        assert ours._nnz() == eager._nnz()
        order = [each._indices().flatten().sort().values for each in (ours, eager)]
        torch.testing.assert_close(*order)


PROGRAMS = {
    "lookup": lambda w, i, f, o: F.embedding(i, w, sparse=True).sin(),
    "a padding row": lambda w, i, f, o: F.embedding(i, w, padding_idx=4, sparse=True).sin(),
    "twice": lambda w, i, f, o: (
        F.embedding(i, w, sparse=True).sum(0) * F.embedding(f, w, sparse=True).sum()
    ),
    "beside a dense use": lambda w, i, f, o: F.embedding(i, w, sparse=True).sum() * w.cos().sum(),
    "sums of bags": lambda w, i, f, o: F.embedding_bag(f, w, o, sparse=True, mode="sum").sin(),
    "means of bags": lambda w, i, f, o: F.embedding_bag(f, w, o, sparse=True, mode="mean").sin(),
    "bags of rows": lambda w, i, f, o: F.embedding_bag(i, w, sparse=True, mode="sum").sin(),
    "weighted bags": lambda w, i, f, o: F.embedding_bag(
        f, w, o, sparse=True, mode="sum", per_sample_weights=f.float().sin()
    ),
    "the last offset is the end": lambda w, i, f, o: F.embedding_bag(
        f, w, torch.cat([o, o.new_tensor([6])]), sparse=True, mode="sum", include_last_offset=True
    ),
    "dense": lambda w, i, f, o: F.embedding(i, w).sin(),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    f = PROGRAMS[program]
    ours, eager = (
        torch.autograd.grad(call(w, INDICES, FLAT, OFFSETS).sum(), w)[0]
        for call, (w,) in ((compile_with(f), tables()), (f, tables()))
    )
    same(ours, eager)


def test_sizes_that_change():
    f = PROGRAMS["lookup"]
    compiled = compile_with(f, dynamic=True)
    (w,) = tables()
    for n in (2, 5, 3):
        i = torch.arange(2 * n).reshape(2, n) % 6
        out = compiled(w, i, FLAT, OFFSETS)
        torch.testing.assert_close(out, f(w, i, FLAT, OFFSETS))
        (ours,) = torch.autograd.grad(out.sum(), w)
        same(ours, torch.autograd.grad(f(w, i, FLAT, OFFSETS).sum(), w)[0])


def test_gradients_add_up_over_calls_and_train():
    def trained(call):
        torch.manual_seed(0)
        model = torch.nn.Embedding(6, 3, sparse=True)
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        run = call(model)
        for _ in range(3):
            optimizer.zero_grad()
            run(INDICES).square().sum().backward()
            run(INDICES + 1 - INDICES.clamp_min(4) // 4).sin().sum().backward()
            assert model.weight.grad.is_sparse
            optimizer.step()
        return model.weight.detach()

    torch.testing.assert_close(trained(compile_with), trained(lambda model: model))
    assert tandem.report()["calls in torch"] == 0


def test_two_tables():
    def f(a, b, i):
        return F.embedding(i, a, sparse=True) * F.embedding(i, b, sparse=True).cos()

    ours, eager = (
        torch.autograd.grad(call(*made, INDICES).sum(), made)
        for call, made in ((compile_with(f), tables(2)), (f, tables(2)))
    )
    for pair in zip(ours, eager, strict=True):
        same(*pair)


def test_indices_that_the_graph_makes_have_a_dense_gradient():
    """docs/aot.md, T95."""
    f = lambda w, i: F.embedding(i + 1, w, sparse=True).sin()  # noqa: E731
    indices = INDICES.clamp_max(3)
    ours, eager = (
        torch.autograd.grad(call(w, indices).sum(), w)[0]
        for call, (w,) in ((compile_with(f), tables()), (f, tables()))
    )
    assert ours.layout is torch.strided
    torch.testing.assert_close(ours, eager.to_dense())


def test_indices_written_before_backward_are_noticed():
    compiled = compile_with(PROGRAMS["lookup"])
    (w,) = tables()
    indices = INDICES.clone()
    out = compiled(w, indices, FLAT, OFFSETS).sum()
    indices.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_the_graph_retained():
    compiled = compile_with(PROGRAMS["lookup"])
    (w,) = tables()
    out = compiled(w, INDICES, FLAT, OFFSETS).sum()
    first = torch.autograd.grad(out, w, retain_graph=True)[0]
    same(first, torch.autograd.grad(out, w)[0])
