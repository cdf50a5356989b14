# Of seed 2026112820013042, on the road "core":
#   an unfolded view without elements had other strides (2, 1) instead of (1, 1)
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randint(-5, 6, [1, b], generator=torch.manual_seed(0), dtype=torch.int32)
    x1 = x0[1:]
    return [x0, x1], []


def program(x0, x1):
    v2 = x1.clone()
    v3 = v2.unfold(-1, 2, 1)
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
