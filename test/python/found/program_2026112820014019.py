# Of seed 2026112820014019, on the road "core":
#   was refused: the rows picked of a transposed input, by as_strided
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = (torch.rand([a, b], generator=torch.manual_seed(0)) > 0.5)
    x0 = x0.transpose(-1, -2)
    return [x0], []


def program(x0):
    v1 = x0[torch.tensor([0, 0, 0])]
    v2 = v1.as_strided((2,), (1,))
    return [x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
