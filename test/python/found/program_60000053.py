# Of seed 60000053, on the road "core":
#   was refused: as_strided of what strides are not written of
# Run it with PYTHONPATH=build/python:test/python.
import torch

STARTS_GRAD = True


def inputs(a=2, b=3, c=4):
    x0 = torch.randint(-5, 6, [a], generator=torch.manual_seed(0), dtype=torch.int32)
    return [x0], []


def program(x0):
    v1 = x0.unbind(0)[1]
    v2 = v1.as_strided_((1,), (2,))
    v3 = v2.min(0, keepdim=True).values
    v4 = v3.as_strided_((1,), (2,))
    return [x0, v4]


if __name__ == "__main__":
    from program_outcomes import first_difference
    from random_recipe import Written

    print(first_difference(Written(globals()), "core").text or "equal")
