# Of seed 360801047, on the road "core":
#   had no history: of zeros in eager
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(a, generator=torch.manual_seed(1), dtype=torch.float64)
    x0 = leaf0.requires_grad_().clone()
    return [x0], [leaf0]


def program(x0):
    v1 = x0.bernoulli_(1.0)
    v2 = torch.stack([v1, v1], -1)
    return [x0, x0, x0, v2]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
