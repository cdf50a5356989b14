"""scikit-learn's handwritten digits as a file that the examples read without Python:
build/data/digits.npz with images f32[1797, 1, 8, 8] in [0, 1], labels i64[1797], and the indices
train i64[1438] and test i64[359] of a split that keeps the share of every digit. The data set comes
with the package; nothing is fetched. The same package and seed give the same bytes."""

import argparse
import os
import pathlib

import numpy
from sklearn.datasets import load_digits

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST_SHARE = 0.2


def split(labels, seed):
    """Indices in random order: (train, test)."""
    random = numpy.random.default_rng(seed)
    train, test = [], []
    for digit in numpy.unique(labels):
        indices = random.permutation(numpy.flatnonzero(labels == digit))
        count = round(len(indices) * TEST_SHARE)
        test.append(indices[:count])
        train.append(indices[count:])
    return random.permutation(numpy.concatenate(train)), random.permutation(numpy.concatenate(test))


def arrays(seed):
    digits = load_digits()
    train, test = split(digits.target, seed)
    return {
        "images": (digits.images[:, None] / 16).astype(numpy.float32),
        "labels": digits.target.astype(numpy.int64),
        "train": train.astype(numpy.int64),
        "test": test.astype(numpy.int64),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "path", nargs="?", type=pathlib.Path, default=ROOT / "build" / "data" / "digits.npz"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    partial = arguments.path.with_suffix(".part.npz")
    numpy.savez(partial, **arrays(arguments.seed))
    os.replace(partial, arguments.path)


if __name__ == "__main__":
    main()
