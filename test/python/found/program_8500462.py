# Of seed 8500462, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    leaf0 = torch.randn(a, b, generator=torch.manual_seed(0))
    x0 = leaf0.requires_grad_().clone()
    x1 = torch.randn(a, b, a, generator=torch.manual_seed(1))
    return [x0, x1], [leaf0]


def program(x0, x1):
    v2 = x0 * 1
    v3 = x1.unbind(0)[0]
    v4 = v3.detach()
    v5 = v3.unbind(0)[0]
    v6 = v2.reshape(-1)
    v7 = v4.fill_(1.5)
    v8 = v7.masked_fill(v7 > 0.5, 1.5)
    v9 = x0.detach()
    return [v8, x1, v7]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
