# Of seed 8500359, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(c, generator=torch.manual_seed(0))
    x1 = torch.randn(a, b, generator=torch.manual_seed(1))
    x2 = x0.view_as(x0)
    return [x0, x1, x2], []


def program(x0, x1, x2):
    v3 = x0.mean(0, keepdim=True)
    v4 = x0.reshape(-1)
    v5 = x1.split(1, -1)[0]
    v6 = torch.where(v4 > 0, v4, v4)
    v7 = torch.exp(x2.clamp(max=3))
    v8 = v6.expand(2, *v6.shape)
    v9 = v8.softmax(1)
    v8[0] = 0
    v10 = v8
    v11 = v9.transpose_(1, 0)
    return [v3, v3, v11]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
