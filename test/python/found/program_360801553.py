# Of seed 360801553, on the road "core":
#   was refused: a write to an expansion without elements
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(a, b, generator=torch.manual_seed(0), dtype=torch.float64)
    x1 = x0[1:]
    x2 = x1[1:]
    return [x0, x1, x2], []


def program(x0, x1, x2):
    v3 = x1.expand_as(x2)
    kept = x2.clone()
    x2.copy_(v3)
    v3.copy_(kept)
    v4 = x2
    return [x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
