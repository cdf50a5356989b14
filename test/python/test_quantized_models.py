"""Models converted by torchao: every convolution and linear layer that it quantizes is a product of
integers without a library call, and results are as near to the exact graph as eager is.
test/models/quantized.py has more of them, and those of transformers."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))

import quantized  # noqa: E402
from converted import NEAR  # noqa: E402

# Torchao needs a quarter of a minute and more to convert one that was trained.
CASES = [(name, way) for name in quantized.OWN for way in ("static", "dynamic")]
CASES.append(("mobilenet_v3", "trained"))
# Transposed convolutions are none of X86InductorQuantizer's.
LEFT = {"unet": 2}


@pytest.mark.parametrize(("name", "way"), CASES)
def test_every_layer_is_of_integers(name, way):
    row = quantized.judge(name, way)
    assert row.floats == []
    assert row.quantized == row.layers - LEFT.get(name, 0) > 0
    assert row.integers == row.quantized
    assert row.ours <= max(row.eager, NEAR)
