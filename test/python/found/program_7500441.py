# Of seed 7500441, on the road "core":
#   was refused: a detached alias with a history, or a write to an expanded tensor
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = (torch.rand([1, b], generator=torch.manual_seed(0)) > 0.5)
    x1 = torch.randn(1, b + 2, generator=torch.manual_seed(1), dtype=torch.float64)
    x1 = x1[..., 1:-1]
    return [x0, x1], []


def program(x0, x1):
    torch.set_grad_enabled(True)
    v2 = x1 * 1
    with torch.set_grad_enabled(False):
        v3 = torch.sin(v2)
    torch.set_grad_enabled(True)
    v4 = x1 * 1
    v5 = v2.clamp_(-2, 2)
    v6 = v2.reshape(-1)
    v7 = v2 * 1
    v6[..., :1] = v6[..., :1]
    v8 = v6
    v9 = v8.add_(1)
    v10 = torch.sin(v6)
    v11 = v8.sub_(v9)
    v12 = v3.fill_(1.5)
    v13 = x1[0]
    v14 = v3.expand(2, *v3.shape)
    v15 = v5.softmax(1)
    v16 = v15.relu_()
    torch._foreach_zero_([v10, v6])
    v17 = v10
    v18 = v13.fill_(0.0)
    v19 = v8.contiguous()
    v20 = v17[0]
    v21 = v14.masked_fill_(v13 > 0, 2)
    v22 = v13.sum(0, keepdim=True)
    v23 = x1.masked_fill_(v8 > 0, 2)
    v24 = v15.mean(1, keepdim=False)
    v25 = v24.clamp_(-2, 2)
    v26 = x1.flatten(0, 1)
    with torch.no_grad():
        v27 = v7.mul_(0.5)
    return [v8, v10, v11, v12, v26]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
