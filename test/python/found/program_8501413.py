# Of seed 8501413, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a, generator=torch.manual_seed(0))
    leaf1 = torch.randn(a, a, b, generator=torch.manual_seed(1))
    x1 = leaf1.requires_grad_().clone().transpose(-1, -2)
    return [x0, x1], [leaf1]


def program(x0, x1):
    v2 = x0.expand(2, *x0.shape)
    v3 = v2.fill_(0.0)
    v4 = torch.where(v3 > 0, v3, v3)
    v5 = v3.detach()
    v6 = torch.sin(x0)
    return [x0, x0]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
