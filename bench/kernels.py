"""Kernels beside the roof of the same run, PyTorch eager and Inductor.

Each case has a process of its own, in which all contenders take turns. Their results are
compared first. malloc keeps its blocks, so that eager and Inductor write outputs into pages
that are there, as Tandem's allocator does: what is compared is kernels, not page faults.
Inductor counts twice: called as users call it, and its generated code alone.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys

import measure

SIZES = [1, 16, 64]
FIELDS = ["roof", "eager", "inductor", "inductor_kernel", "tandem"]
# Relative to the largest element; sums of 64 MiB differ by their order.
TOLERANCE = 1e-4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 MiB and 1 MiB, fewer rounds")
    parser.add_argument("--case", action="append", help="only this case (repeatable)")
    parser.add_argument("--mib", type=int, action="append", help="sizes, instead of 1, 16 and 64")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-inductor", action="store_true", help="faster, while tuning")
    parser.add_argument(
        "--busy", action="store_true", help="one thread, processor time: on a machine that is busy"
    )
    parser.add_argument("--out", default="build/bench/kernels.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.mib = options.mib or ([1, 64] if options.quick else SIZES)
    options.rounds = options.rounds or (7 if options.quick else 15)
    if options.busy:
        measure.use_processor_time()
    return options


def main():
    options = arguments()
    if options.worker:
        return work(options)
    from kernel_cases import CASES

    measure.pin()
    results = []
    measure.progress(
        f"{'kernel':20} {'MiB':>4} "
        + " ".join(f"{name[:9]:>9}" for name in FIELDS)
        + "  of roof  x eager  x inductor"
    )
    for case in CASES:
        if not options.case or case.name in options.case:
            results += measure_apart(case.name, options)
    measure.save(options.out, results)
    return 0


def measure_apart(name, options):
    """Results of one case, measured in a process of its own: lines of JSON."""
    command = [sys.executable, __file__, "--worker", name, "--rounds", str(options.rounds)]
    for size in options.mib:
        command += ["--mib", str(size)]
    command += ["--no-inductor"] * options.no_inductor + ["--busy"] * options.busy
    # Without mmap, malloc serves every size from one heap that is never given back.
    env = measure.environment(
        MALLOC_MMAP_MAX_="0",
        MALLOC_TRIM_THRESHOLD_=str(1 << 40),
        MALLOC_TOP_PAD_=str(1 << 28),
        TORCHINDUCTOR_CACHE_DIR=os.path.abspath("build/bench/inductor"),
    )
    results = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("{"):
                results.append(json.loads(line))
                measure.progress(row(results[-1]))
    if process.returncode != 0:
        results.append({"kernel": name, "error": f"the process ended with {process.returncode}"})
        measure.progress(row(results[-1]))
    return results


def row(result):
    if "error" in result:
        return f"{result['kernel']:20} {result.get('mib', ''):>4} FAILED: {result['error']}"
    times = " ".join(f"{result[name]:9.3f}" if result.get(name) else f"{'-':>9}" for name in FIELDS)
    ratio = f"{result['x_inductor']:8.2f}" if "x_inductor" in result else "       -"
    name = f"{result['kernel']:20} {result['mib']:>4}"
    return f"{name} {times}  {result['of_roof']:7.2f} {result['x_eager']:8.2f}    {ratio}"


def work(options):
    import torch
    from kernel_cases import CASES

    torch.set_num_threads(measure.THREADS)
    case = next(case for case in CASES if case.name == options.worker)
    for size in options.mib:
        torch.manual_seed(size)
        with torch.no_grad():
            result = measure_case(case, size, options)
        print(json.dumps(result), flush=True)
    return 0


def measure_case(case, mib, options):
    result = {"kernel": case.name, "mib": mib}
    inputs = case.inputs(mib << 18)
    contenders = {"eager": case.eager}
    try:
        contenders["tandem"] = tandem_function(case, inputs)
    except Exception as error:  # what Tandem cannot do yet is a result, too
        return result | {"error": f"Tandem: {error}"}
    if not options.no_inductor:
        contenders |= inductor_functions(case, inputs)
    expected = outcome(case, case.eager, inputs)[0]
    for name, function in list(contenders.items()):
        difference = compare(outcome(case, function, inputs)[0], expected)
        if difference is not None and name == "inductor_kernel":
            del contenders[name]  # its arguments are in an order of its own
        elif difference is not None:
            return result | {"error": f"{name} differs from eager: {difference}"}
    bound = {
        name: bind(function, [t.clone() for t in inputs]) for name, function in contenders.items()
    }
    roofs, scale = roofs_of(case, inputs)
    times = measure.alternate(roofs | bound, options.rounds)
    roof = scaled(min((times.pop(name) for name in roofs), key=lambda t: t.median), scale)
    found = measure.as_json({"roof": roof} | times)
    medians, best = found["ms"], found["best_ms"]
    said = {"quartiles": found["quartiles"], "best": best | ratios(best)}
    return result | medians | ratios(medians) | said


def ratios(times):
    found = {
        "of_roof": times["roof"] / times["tandem"],
        "x_eager": times["eager"] / times["tandem"],
    }
    inductor = [times[name] for name in ("inductor", "inductor_kernel") if name in times]
    if inductor:
        found |= {
            "x_inductor": min(inductor) / times["tandem"],
            "inductor_of_roof": times["roof"] / min(inductor),
        }
    return found


def bind(function, inputs):
    return lambda: function(*inputs)


def roofs_of(case, inputs):
    """Streams that read the large inputs and write the large results, and how many times their
    bytes the kernel has to move."""
    import roof

    results, traffic = outcome(case, case.eager, inputs)
    reads = [t.clone() for t in largest(inputs)]
    writes = reads[: case.mutates] or [t.clone() for t in largest(results)]
    moved = sum(t.nbytes // roof.LINE_BYTES * roof.LINE_BYTES for t in [*reads, *writes])
    return roof.streams(reads, writes), traffic / moved


def largest(tensors):
    most = max(t.nbytes for t in tensors)
    return [t for t in tensors if t.nbytes == most]


def scaled(times, scale):
    values = {name: scale * value for name, value in dataclasses.asdict(times).items()}
    return measure.Spread(**values)


def tandem_function(case, inputs):
    import tandem

    tandem.set_threads(measure.THREADS)
    executable = tandem.compile_text(case.text(inputs))
    return lambda *tensors: executable.run(tensors)


def inductor_functions(case, inputs):
    """The compiled function, and the generated code without Dynamo's guards around it."""
    import torch
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    compiled = torch.compile(case.formula or case.eager, dynamic=False)
    _, code = run_and_get_code(compiled, *[t.clone() for t in inputs])
    functions = {"inductor": compiled}
    if len(code) == 1:
        call = PyCodeCache.load(code[0]).call
        functions["inductor_kernel"] = lambda *tensors: call(list(tensors))
    return functions


def outcome(case, function, inputs):
    """Results, or the updated inputs, on a copy of the inputs; and the bytes that had to move."""
    import torch

    tensors = [t.clone() for t in inputs]
    try:
        results = function(*tensors)
    except AssertionError as error:  # generated code checks the sizes of its arguments
        return str(error), 0
    results = [results] if isinstance(results, torch.Tensor) else list(results or [])
    return (tensors[: case.mutates] if case.mutates else results), case.traffic(tensors, results)


def compare(actual, expected):
    """None when equal, else what differs."""
    if isinstance(actual, str):
        return actual
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for number, (a, e) in enumerate(zip(actual, expected)):
        if a.shape != e.shape:
            return f"result {number}: shape {list(a.shape)} instead of {list(e.shape)}"
        error = (a - e).abs().max().item() / max(1e-30, e.abs().max().item())
        if not error <= TOLERANCE:
            return f"result {number}: relative error {error:.2g}"
    return None


if __name__ == "__main__":
    sys.exit(main())
