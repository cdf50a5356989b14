# Of seed 1000006, on the road "core":
#   was refused: a write of one number to some rows of an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, generator=torch.manual_seed(1))
    return [x0], []


def program(x0):
    v1 = x0.expand(2, *x0.shape)
    v2 = v1.index_fill_(0, torch.arange(0 + 1), 1)
    return [v2, x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
