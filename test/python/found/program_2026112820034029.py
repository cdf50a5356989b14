# Of seed 2026112820034029, on the road "core":
#   an expanded view without elements had strides (3, 1) instead of (0, 1)
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = (torch.rand([1, b], generator=torch.manual_seed(2)) > 0.5)
    x1 = x0[1:]
    return [x0, x1], []


def program(x0, x1):
    v2 = x1 + x1
    v3 = v2.expand(2, *v2.shape)
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
