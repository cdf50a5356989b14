"""A failed check of Tandem's own is an exception, and the user's work goes on in torch."""

import pytest
import torch

import tandem
from compiled import compile_with
from tandem import dynamo


@pytest.fixture(name="broken")
def fixture_broken(monkeypatch):
    """A compiler that fails a check."""

    def fail(*_, **__):
        raise tandem.InternalError("cse.cc:1: check failed: true\nThis is a bug of Tandem")

    monkeypatch.setattr(dynamo._tandem, "compile_function", fail)


def test_the_graph_runs_in_torch(broken):
    compiled = compile_with(lambda x: x.sin(), on_unsupported="eager")
    x = torch.randn(4)
    with pytest.warns(UserWarning, match="bug of Tandem"):
        torch.testing.assert_close(compiled(x), x.sin())
    (graph,) = tandem.report()["graphs"]
    assert "check failed" in graph["eager"] and graph["fallbacks"] == {"whole graph": 1}


def test_it_is_raised_where_nothing_may_run_in_torch(broken):
    with pytest.raises(Exception, match="check failed") as caught:
        compile_with(lambda x: x.sin())(torch.randn(4))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), tandem.InternalError)


def test_it_is_no_error_of_the_user():
    assert issubclass(tandem.InternalError, RuntimeError)
    assert not issubclass(tandem.InternalError, tandem.UserError)
