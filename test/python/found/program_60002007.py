# Of seed 60002007, on the road "core":
#   was refused: a write of one number through expand_as
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a, generator=torch.manual_seed(1), dtype=torch.float64)
    x1 = torch.randn(a, generator=torch.manual_seed(2), dtype=torch.float64)
    return [x0, x1], []


def program(x0, x1):
    v2 = x1.expand_as(x0)
    torch._foreach_zero_([v2, v2])
    v3 = v2
    return [x0, x1]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
