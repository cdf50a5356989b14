"""Whether a process grows: training steps of one compiled model, and compilations of ever new
graphs. `python memory_growth.py [STEPS [COMPILES [BACKEND]]]` prints what is held after each tenth
of the work: resident memory, bytes that Tandem counts as in use, objects of Python. The last line
is JSON, which test_process reads. BACKEND "eager" shows what Dynamo itself keeps."""

import gc
import json
import os
import sys

import torch

import tandem
from tandem import reports

PAGE = os.sysconf("SC_PAGE_SIZE")


def held():
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * PAGE
    objects = len(gc.get_objects())
    live = tandem.memory_use()["live_bytes"]
    return {"resident": resident, "live": live, "objects": objects}


def measured(what, count, work):
    """What is held after the first tenth (caches are warm) and at the end."""
    rows = []
    for part in range(10):
        for number in range(part * count // 10, (part + 1) * count // 10):
            work(number)
        rows.append(held())
        print(
            f"{what} {(part + 1) * count // 10}: resident {rows[-1]['resident'] / 2**20:.1f} MiB, "
            f"in use {rows[-1]['live']} bytes, {rows[-1]['objects']} objects",
            flush=True,
        )
    return [rows[0], rows[-1]]


def compiled(function, backend):
    if backend == "eager":
        return torch.compile(function, backend="eager")
    return torch.compile(function, backend=tandem.backend, options={"on_unsupported": "error"})


def training(backend):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.Adam(model.parameters())
    call = compiled(model, backend)
    x, y = torch.randn(16, 32), torch.randint(8, (16,))

    def step(_):
        torch.nn.functional.cross_entropy(call(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def recompiling(backend):
    x = torch.randn(8, 16, requires_grad=True)

    def compile_another(number):
        torch._dynamo.reset()
        factor = number + 0.5
        call = compiled(lambda x: (torch.softmax(x * factor, 1) * x).sum(), backend)
        call(x).backward()
        x.grad = None

    return compile_another


def main(steps=10_000, compiles=1_000, backend="tandem"):
    reports.GRAPHS = min(reports.GRAPHS, max(int(compiles) // 20, 1))  # full at the first tenth
    result = {
        "training": measured("step", int(steps), training(backend)),
        "compiling": measured("compilation", int(compiles), recompiling(backend)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
