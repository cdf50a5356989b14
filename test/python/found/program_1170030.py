# Of seed 1170030, on the road "core":
#   ended in signal 11: a product that is overwritten
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(a, b, a, generator=torch.manual_seed(2), dtype=torch.float64)
    return [x0], []


def program(x0):
    v1 = torch.einsum('...i,...i->...', x0, x0)
    v2 = x0 @ v1
    v3 = v2.fill_(1)
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
