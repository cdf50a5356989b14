# Of seed 500373, on the road "core":
#   was refused: a tensor without elements that shares its version with one that is written
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(b, 1, generator=torch.manual_seed(0))
    x0 = leaf0.requires_grad_().clone().transpose(-1, -2)
    x1 = x0[1:]
    return [x0, x1], [leaf0]


def program(x0, x1):
    mask = x0 > 0.1
    x0[mask] = x0[mask] * 2
    v2 = x0
    v3 = x1.prod(1, keepdim=False)
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
