# Of seed 7001113, on the road "core":
#   differed: inputs that overlap, of a graph that leaves another grad mode
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randn(a, b, generator=torch.manual_seed(0), dtype=torch.float64)
    x0 = x0.transpose(-1, -2)
    x1 = torch.randint(-5, 6, [a, b], generator=torch.manual_seed(1), dtype=torch.int64)
    x2 = torch.randint(-5, 6, [1, b], generator=torch.manual_seed(2), dtype=torch.int64)
    x3 = torch.randn(b, 1, generator=torch.manual_seed(3), dtype=torch.float64)
    x3 = x3.transpose(-1, -2)
    x4 = x0.view_as(x0)
    return [x0, x1, x2, x3, x4], []


def program(x0, x1, x2, x3, x4):
    v5 = x0.mean(1, keepdim=True)
    v6 = torch.cat([x4, x0])
    v7 = torch.maximum(x4, x4)
    v8 = x4.expand(2, *x4.shape)
    v9 = v6.transpose_(1, 0)
    v10 = v8.contiguous()
    with torch.set_grad_enabled(True):
        v11 = torch.sin(x2)
    v12 = v10 - v10
    v13 = x1.amax(0, keepdim=False)
    v14 = v9.masked_fill_(v6 > 0, 2)
    v15 = v6.unbind(0)[1]
    v16 = x4.fill_(1)
    v17 = torch.where(v5 > 0, v5, v12)
    v18 = v9 * 1
    torch.set_grad_enabled(False)
    v19 = v5 * 1
    v20 = v13.add_(v13)
    torch._foreach_zero_([v5, v9])
    v21 = v5
    v22 = v13 + v21
    v23 = v5 * v17
    v24 = v9 < v15
    torch.set_grad_enabled(False)
    v25 = v22 * 1
    torch._foreach_zero_([v13, v18])
    v26 = v13
    v27 = v19.contiguous()
    v28 = x4.add_(x4)
    return [x1, v22, v20, v9]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
