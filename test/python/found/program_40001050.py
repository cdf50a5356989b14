# Of seed 40001050, on the road "core":
#   was refused: as_strided of a tensor with gaps
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a + 2, generator=torch.manual_seed(1))
    x0 = x0[..., 1:-1]
    return [x0], []


def program(x0):
    v1 = x0.as_strided((2, 3), (1, 4))
    v2 = v1.mul_(v1)
    return [x0, v1]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
