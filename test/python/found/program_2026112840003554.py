# Of seed 2026112840003554, on the road "any_size":
#   gradient: other last digits than eager's where terms of a sum cancel
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(a, b, a, generator=torch.manual_seed(0))
    x0 = leaf0.requires_grad_().clone()
    x1 = torch.randn(b, a, generator=torch.manual_seed(1))
    x1 = x1.transpose(-1, -2)
    x2 = x0.transpose(0, -1)
    return [x0, x1, x2], [leaf0]


def program(x0, x1, x2):
    v3 = x0 @ x1
    return [v3]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "any_size").text or "equal")
