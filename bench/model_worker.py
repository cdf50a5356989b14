"""One model in one process: contenders take turns; one JSON line on standard output.

`model_worker.py steps NAME infer|frozen|train [DTYPE [dynamic]]`  milliseconds of a step of each
                                                   contender, and its operations and bytes
`model_worker.py cold NAME`                        Tandem's first training step, taken apart
`model_worker.py profile NAME`                     slowest instructions of frozen inference
`model_worker.py peak NAME CONTENDER`              MiB that a training step needs
"""

import ctypes
import gc
import json
import mmap
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings

import measure
import model_cases
import roof
import serving
import tandem
import torch

# A virtual machine's clock moves by a quarter within seconds: medians of 9 turns by a tenth.
ROUNDS = 21
RESERVE_BYTES = 3 << 29
STRICT = {"on_unsupported": "error"}


def tandem_of(model, **options):
    return torch.compile(model, backend=tandem.backend, options=STRICT | options)


def ahead(model, inputs):
    """What is called without Dynamo, as serving runtimes are."""
    with torch.no_grad():
        return tandem.aot_compile(model, kwargs=inputs, options=STRICT | {"freeze": True})


def inferring(inputs, compiled):
    def step():
        with torch.no_grad():
            return model_cases.first_tensor(compiled(**inputs))

    return step


def inference(model, inputs, _):
    """What may change its weights between calls."""
    model.eval()
    return {
        "eager": lambda: inferring(inputs, model),
        "inductor": lambda: inferring(inputs, torch.compile(model)),
        "tandem": lambda: inferring(inputs, tandem_of(model)),
    }


# Inductor where weights are constants; the fastest counts.
FREEZING = {
    "inductor, freezing": {"freezing": True},
    "inductor, freezing, max_autotune": {"freezing": True, "max_autotune": True},
    "inductor, freezing, cpp_wrapper": {"freezing": True, "cpp_wrapper": True},
}


def frozen(model, inputs, dtype):
    """What has its weights for good."""
    model.eval()
    folder = tempfile.TemporaryDirectory()

    def inductor(options):
        return lambda: inferring(inputs, torch.compile(model, options=options))

    steps = {
        "eager": lambda: inferring(inputs, model),
        **{name: inductor(options) for name, options in FREEZING.items()},
        "tandem, frozen": lambda: inferring(inputs, tandem_of(model, freeze=True)),
        "tandem, ahead": lambda: inferring(inputs, ahead(model, inputs)),
    }
    example = next(iter(inputs.values()))

    def served(make):
        return lambda: make(serving.onnx_file(model, example, folder.name), example)

    if dtype == torch.float32:
        if not measure.ISA:  # it cannot be held to one
            steps["onnx runtime"] = served(serving.onnx_runtime)
        steps["openvino"] = served(serving.openvino)
    return steps


def training(model, inputs, _):
    model.train()

    def call(compiled):
        def step():
            model.zero_grad(set_to_none=True)
            loss = model_cases.first_tensor(compiled(**inputs)).float().square().mean()
            loss.backward()
            return loss.detach()

        return step

    return {
        "eager": lambda: call(model),
        "inductor": lambda: call(torch.compile(model)),
        "tandem": lambda: call(tandem_of(model)),
    }


KINDS = {"infer": inference, "frozen": frozen, "train": training}


def cast(inputs, dtype):
    return {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in inputs.items()
    }


def difference(value, expected):
    scale = expected.float().abs().max().item() or 1.0
    return (value.float() - expected.float()).abs().max().item() / scale


def run_steps(name, kind, dtype="float32", sizes="known"):
    model, inputs = model_cases.make(name)
    dtype = getattr(torch, dtype)
    model, inputs = model.to(dtype), cast(inputs, dtype)
    if sizes == "dynamic":
        model_cases.mark_dynamic(inputs)
    steps, first, failures, values = {}, {}, {}, {}
    for contender, make in KINDS[kind](model, inputs, dtype).items():
        torch._dynamo.reset()
        start = time.perf_counter()
        try:
            step = make()
            values[contender] = step().clone()
        except Exception as error:  # a peer that does not take the model is left out
            failures[contender] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
            continue
        first[contender] = time.perf_counter() - start
        steps[contender] = step
    machine = roof.Roof(dtype)
    times = measure.alternate(steps | machine.contenders, ROUNDS, slot_ms=1.0)
    found = machine.found(times)
    return measure.as_json(times) | {
        "first_s": first,
        "failures": failures,
        "differs": {c: difference(v, values["eager"]) for c, v in values.items()},
        "roof": found | work_of(model, inputs, kind),
    }


def work_of(model, inputs, kind):
    """What no implementation can do without: floating-point operations of products and
    convolutions, and bytes of weights, read once. A training step: three times that, as each
    product has two gradients (torch's counter takes those of depthwise convolutions for dense
    ones), and weights are read again, their gradients written."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        operations = roof.operations(inferring(inputs, model))
    weights = sum(p.nbytes for p in model.parameters())
    times = 3 if kind == "train" else 1
    moved = times * weights + sum(t.nbytes for t in inputs.values())
    return {"operations": times * operations, "bytes": moved}


def run_cold(name):
    """A first training step, taken apart. `own_s`: of Tandem, that is its stages after the capture
    by torch, and what the first step, from the first call of compiled code on, takes more than the
    second one (primitives, packing, memory). Dynamo's part lies before and, with the guards that it
    builds, between the two."""
    model, inputs = model_cases.make(name)
    model.train()
    entered = []
    reserve = memory_of_the_machine()

    def backend(graph, examples):
        compiled = tandem.backend(graph, examples, options=STRICT)

        def call(*arguments):
            reserve.close()
            entered.append(time.perf_counter())
            return compiled(*arguments)

        return call

    compiled = torch.compile(model, backend=backend)

    def run():
        entered.clear()
        start = time.perf_counter()
        model.zero_grad(set_to_none=True)
        model_cases.first_tensor(compiled(**inputs)).square().mean().backward()
        end = time.perf_counter()
        return end - start, end - entered[0]

    first, first_run = run()
    second, second_run = run()
    stages = {}
    for graph in tandem.report()["graphs"]:
        for stage, value in graph["milliseconds"].items():
            stages[stage] = stages.get(stage, 0) + value
    own = sum(value for stage, value in stages.items() if stage != "capture") / 1e3
    return {
        "whole_s": first - second,
        "own_s": own + max(0, first_run - second_run),
        "stages_ms": stages | {"first run": 1e3 * (first_run - second_run)},
    }


def memory_of_the_machine():
    """A virtual machine may give free memory back to its host; the first touch of a huge page then
    takes some 5 ms instead of 0.1. What is touched here and freed just before the first call is the
    machine's own when that call asks for it."""
    reserve = mmap.mmap(-1, RESERVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    reserve.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, RESERVE_BYTES, mmap.PAGESIZE):
        reserve[at] = 1
    return reserve


def run_peak(name, contender):
    model, inputs = model_cases.make(name)
    makers = training(model, inputs, None)
    step = makers[contender]()
    for _ in range(3):
        step()
    model.zero_grad(set_to_none=True)
    gc.collect()
    tandem.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts here
    step()
    return {"peak_MiB": peak() - before}


def run_profile(name):
    """The slowest instructions of frozen inference, by the command's own profile."""
    model, inputs = model_cases.make(name)
    model.eval()
    with torch.no_grad():
        tandem_of(model, freeze=True)(**inputs)
    text = "".join(graph["text"] for graph in tandem.report()["graphs"][-1:])
    command = ["build/bin/tandem", "run", "--freeze", "--repeat", "20", "--profile", "8"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if re.match(r" +[0-9.]+% ", line)]
    return {"profile": [line.strip() for line in lines]}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def peak():
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(measure.THREADS)
    what, name, *rest = sys.argv[1:]
    if what == "steps":
        result = run_steps(name, *rest)
    elif what == "cold":
        result = run_cold(name)
    elif what == "profile":
        result = run_profile(name)
    else:
        result = run_peak(name, rest[0])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
