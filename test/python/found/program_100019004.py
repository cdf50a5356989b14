# Of seed 100019004, on the road "core":
#   RuntimeError one of the variables needed for gradient computation has been modified
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(1, b, generator=torch.manual_seed(1))
    x0 = leaf0.requires_grad_().clone()
    x1 = x0[1:]
    return [x0, x1], [leaf0]


def program(x0, x1):
    x1.transpose(0, -1).add_(1)
    v2 = x1
    v3 = torch.sin(x0)
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
