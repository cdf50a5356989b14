"""Milliseconds of an AdamW step: eager's loop and foreach forms, and both compiled; medians of
alternating calls. `chrt -f 50 python bench/optimizers.py [bert | tiny | 150] [calls]`."""

import statistics
import sys
import time
import warnings

import torch
from tandem.dynamo import backend

warnings.filterwarnings("ignore")


def bert():
    layer = [(768, 768), (768,)] * 4 + [(768,)] * 4 + [(3072, 768), (3072,), (768, 3072), (768,)]
    return [(30522, 768), (512, 768), (2, 768), (768,), (768,), *layer * 12, (768, 768), (768,)]


SHAPES = {
    "bert": bert,
    "tiny": lambda: [(16, 4), (16,)] * 100,
    "150": lambda: [(256, 256), (256,)] * 75,
}


def step_of(shapes, foreach, compiled):
    parameters = [torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 0.01
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, foreach=foreach)
    return torch.compile(optimizer.step, backend=backend) if compiled else optimizer.step


def main(kind="bert", calls="20"):
    shapes = SHAPES[kind]()
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    print(f"{kind}: {len(shapes)} tensors, {elements / 1e6:.2f} M elements")
    cases = {
        f"{'compiled' if compiled else 'eager'} {'foreach' if foreach else 'loop'}": (
            step_of(shapes, foreach, compiled)
        )
        for compiled in (False, True)
        for foreach in (False, True)
    }
    for name, step in cases.items():
        start = time.perf_counter()
        step()
        step()
        print(f"  first two calls of {name}: {time.perf_counter() - start:.2f} s")
    times = {name: [] for name in cases}
    for _ in range(int(calls)):
        for name, step in cases.items():
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    for name, values in times.items():
        print(f"  {name}: {statistics.median(values):.3f} ms (least {min(values):.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
