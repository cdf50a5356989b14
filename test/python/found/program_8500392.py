# Of seed 8500392, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(b, a + 2, generator=torch.manual_seed(0))
    x0 = x0[..., 1:-1]
    leaf1 = torch.randn(a, b, a + 2, generator=torch.manual_seed(1))
    x1 = leaf1.requires_grad_().clone()[..., 1:-1]
    return [x0, x1], [leaf1]


def program(x0, x1):
    v2 = x0.masked_fill(x0 > 0.5, 1.5)
    v3 = x1.add_(x1)
    v4 = x1.detach()
    v5 = v4.mul_(x0)
    v6 = torch.exp(v5.clamp(max=3))
    return [v6, v5]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
