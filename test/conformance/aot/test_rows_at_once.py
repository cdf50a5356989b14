"""Rows at once (`tandem::vmap`, nn::vmap in C++) beside eager, row after row and operator by
operator. rows_at_once.py sweeps over all of PyTorch's entries, which takes long."""

import pytest

import rows_at_once

# Each rule of ops/batch.h and of single operators; composites; what runs row by row.
NAMES = """
    add where clamp sum any prod amax argmax softmax cumsum cummax
    mm bmm addmm baddbmm matmul nn.functional.conv2d nn.functional.embedding
    nn.functional.layer_norm nn.functional.cross_entropy std
    nn.functional.max_pool2d nn.functional.avg_pool2d sort gather index_select scatter index_put
    cat split squeeze unsqueeze expand repeat roll flip tril diagonal select_scatter slice_scatter
    as_strided searchsorted
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_operator(name):
    assert rows_at_once.verdict(rows_at_once.entries()[name]) == "right"
