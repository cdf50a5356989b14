# Of seed 300070529, on the road "core":
#   was refused: as_strided of a view whose elements overlap
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(c, generator=torch.manual_seed(1))
    return [x0], []


def program(x0):
    v1 = x0.unfold(-1, 2, 1)
    v2 = v1.as_strided_((2, 3), (1, 1))
    return [x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
