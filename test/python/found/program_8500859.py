# Of seed 8500859, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a, generator=torch.manual_seed(0))
    x0 = x0.transpose(-1, -2)
    leaf1 = torch.randn(c, generator=torch.manual_seed(1))
    x1 = leaf1.requires_grad_().clone()
    return [x0, x1], [leaf1]


def program(x0, x1):
    v2 = x0.add_(x0)
    v3 = v2.expand(2, *v2.shape)
    v3[1] = 0
    v4 = v3
    return [v4]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
