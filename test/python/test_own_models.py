"""The own definitions of test/models (U-Net, DCGAN, DLRM, recurrent networks, MLP-Mixer, diffusion
U-Net; convolution networks), judged as `make models` does. That runs more models, and five steps of
an optimizer."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))

import convnets  # noqa: E402
import own  # noqa: E402
from cases import run_case  # noqa: E402

MODELS = {entry.name: entry for entry in own.ENTRIES + convnets.ENTRIES}
WITH_DROPOUT = [name for name, entry in MODELS.items() if entry.has_dropout]


def is_equal(name, case):
    row = run_case(MODELS[name], case)
    assert row["status"] == "equal", row["reason"]
    assert row["graphs"] == len(MODELS[name].phases) or case.startswith("infer")


@pytest.mark.parametrize("name", MODELS)
def test_inference(name):
    is_equal(name, "infer static")


@pytest.mark.parametrize("name", MODELS)
def test_training_with_dynamic_sizes(name):
    is_equal(name, "train dynamic")


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_gradients_under_own_masks(name):
    is_equal(name, "dropout")
