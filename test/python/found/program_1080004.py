# Of seed 1080004, on the road "core":
#   was refused: a shape that changes under no_grad
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(a, b, generator=torch.manual_seed(0), dtype=torch.float64)
    x0 = x0.transpose(-1, -2)
    leaf1 = torch.randn(b, 1, generator=torch.manual_seed(1), dtype=torch.float64)
    x1 = leaf1.requires_grad_().clone().transpose(-1, -2)
    leaf2 = torch.randn(1, b, generator=torch.manual_seed(2), dtype=torch.float64)
    x2 = leaf2.requires_grad_().clone()
    x3 = x0[:1]
    return [x0, x1, x2, x3], [leaf1, leaf2]


def program(x0, x1, x2, x3):
    v4 = x1 > 0
    with torch.set_grad_enabled(False):
        v5 = x2[0]
    with torch.set_grad_enabled(False):
        v6 = x1[0]
    v7 = v6.masked_fill(v6 > 0.5, 1.5)
    v8 = x1.reshape(-1)
    x2[..., :1] = v7[..., :1]
    v9 = x2
    torch.set_grad_enabled(False)
    v10 = x0 * 1
    v11 = v5 > 0
    v12 = v6.to(torch.float64) * 0.5
    v13 = x0 * x3
    v14 = x0.clamp_(-2, 2)
    v15 = v11.split(1, -1)[0]
    v16 = v15.amax(0, keepdim=True)
    v17 = v8.unsqueeze_(1)
    v18 = v13.flatten(0, 1)
    v19 = v10.sum()
    v20 = x0.flatten(0, 1)
    v21 = v8.unsqueeze(0)
    v22 = x3 - v13
    return [v15, v17, v19, x1]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
