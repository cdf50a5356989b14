"""Models in 8 bits beside their peers: Inductor's (torchao, freezing), OpenVINO's and ONNX
Runtime's (one QDQ model for both), and Tandem's own f32, frozen. Each model is a process in which
the contenders take turns: once as torch.compile calls them, once called directly, as serving
runtimes are (Tandem by tandem.aot_compile, Inductor by torch's skip_guard_eval_unsafe).
Prints a table of docs/quantization.md. Needs transformers, onnx.

`quantized.py [NAME ...]`      models, or parts of their names
`quantized.py --busy [NAME ...]`  processor time of one thread: rough, on a machine that is busy
`quantized.py --worker NAME`   one of them; a JSON line
BENCH_ISA=avx2 holds to AVX2 whom it can hold, which ONNX Runtime is not: it is no peer then. Where
no instruction sums products of bytes, activations have seven bits (`reduce_range`), as torchao and
ONNX Runtime ask for: with eight their products may saturate."""

import copy
import json
import subprocess
import sys
import tempfile
import warnings

import measure
import model_cases
import serving
import torch

ROUNDS = 15
MODELS = ("resnet50, 2", "own mobilenet_v2, 4", "bert-base, 1x128", "vit-base, 1")
# The first of a model's result: what the contenders are compared by.
OWN, OWN_F32 = "tandem, 8 bits", "tandem, f32"
AHEAD = ", ahead"  # behind these: called directly


def converted(model, example):
    """By torchao, as its own tutorial for x86 does it: static, u8 activations, i8 weights."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    seven_bits = not measure.multiplies_bytes()
    quantizer.set_global(
        x86.get_default_x86_inductor_quantization_config(reduce_range=seven_bits)
    )
    exported = torch.export.export(copy.deepcopy(model), (example,), strict=False).module()
    prepared = prepare_pt2e(exported, quantizer)
    prepared(example)
    return convert_pt2e(prepared)


def qdq_file(model, example, folder):
    """An ONNX model of QDQ nodes, calibrated on the same example."""
    import onnxruntime.quantization as quantization

    made = f"{folder}/qdq.onnx"
    plain = serving.onnx_file(model, example, folder, external_data=False)
    name = "value"

    class Once(quantization.CalibrationDataReader):
        rest = [{name: example.numpy()}]

        def get_next(self):
            return self.rest.pop() if self.rest else None

    quantization.quantize_static(
        plain, made, Once(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
        reduce_range=not measure.multiplies_bytes(),
    )
    return made


def called(function, example):
    def step():
        with torch.no_grad():
            return function(example)

    return step


def tandem_of(model):
    import tandem

    return torch.compile(model, backend=tandem.backend, options={"freeze": True})


def ahead(model, example):
    """Without Dynamo in a call."""
    import tandem

    return tandem.aot_compile(model, (example,), options={"freeze": True})


def inductor_of(model, example):
    """As an option of the call, freezing comes too late for its patterns of quantized operators; as
    a setting it changes what Dynamo hands to others, so it is one for this compilation alone."""
    import torch._inductor.config as config

    compiled = torch.compile(model)
    with config.patch(freezing=True):
        compiled(example)
    return compiled


def integer_products():
    import tandem

    return sum(not why for _, why in tandem.report()["graphs"][-1]["quantized products"])


def contenders(model, example, folder):
    quantized = converted(model, example)
    return {
        "eager, f32": lambda: called(model, example),
        "eager, 8 bits": lambda: called(quantized, example),
        OWN: lambda: called(tandem_of(quantized), example),
        OWN + AHEAD: lambda: called(ahead(quantized, example), example),
        OWN_F32 + AHEAD: lambda: called(ahead(model, example), example),
        OWN_F32: lambda: called(tandem_of(model), example),
        "inductor": lambda: called(inductor_of(quantized, example), example),
        "onnx runtime": lambda: serving.onnx_runtime(qdq_file(model, example, folder), example),
        "openvino": lambda: serving.openvino(f"{folder}/qdq.onnx", example),
    }  # fmt: skip


def distance(value, expected):
    """Of the norm of what is expected."""
    return ((value - expected).norm() / expected.norm()).item()


def run_worker(name):
    warnings.simplefilter("ignore")
    if "--busy" in sys.argv:
        measure.use_processor_time()
    measure.pin()
    torch.set_num_threads(measure.THREADS)
    model, inputs = model_cases.make(name)
    example = next(iter(inputs.values()))
    if hasattr(model, "pooler"):
        model.pooler = None  # nobody reads it, and torchao's quantizer fails on what is not read
    model = serving.Plain(model.eval())
    steps, values, failures, products = {}, {}, {}, 0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for contender, make in contenders(model, example, folder).items():
            try:
                step = make()
                values[contender] = step().clone()
            except Exception as error:  # a peer that does not take the model is a miss, and said
                failures[contender] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
                continue
            if contender == OWN:
                products = integer_products()
            if not contender.startswith("eager"):
                steps[contender] = step
        times = measure.alternate(steps, ROUNDS, slot_ms=1.0)
        # A serving runtime asks nothing of a call; torch.compile does of all that a module holds.
        torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
        unguarded = measure.as_json(measure.alternate(steps, ROUNDS, slot_ms=1.0))
    result = measure.as_json(times) | {
        "unguarded": unguarded,
        "failures": failures, "products": products, "run": measure.run(),
        "of eager, 8 bits": distance(values[OWN], values["eager, 8 bits"]),
        "of f32": {name: distance(value, values["eager, f32"]) for name, value in values.items()},
    }  # fmt: skip
    print(json.dumps(result))


def cell(found, name):
    if name not in found["ms"]:
        return found["failures"].get(name, "-")
    low, high = found["quartiles"][name]
    return f"{found['ms'][name]:.2f} ({low:.2f}–{high:.2f})"


def row(name, found):
    peers = ["inductor", "onnx runtime", "openvino"]
    own = found["ms"][OWN]
    held = [peer for peer in peers if not (measure.ISA and peer == "onnx runtime")]
    best = min(found["ms"][peer] for peer in held if peer in found["ms"])
    cells = [cell(found, who) for who in (OWN_F32, OWN, *peers)]
    ratios = [f"{found['ms'][OWN_F32] / own:.2f}", f"{best / own:.2f}"]
    errors = [f"{found['of eager, 8 bits']:.1e}"]
    return f"| {name} | " + " | ".join([*cells, *ratios, str(found["products"]), *errors]) + " |"


def main():
    parts = [word for word in sys.argv[1:] if word != "--busy"]
    names = [n for n in MODELS if not parts or any(part in n for part in parts)]
    busy = sys.argv[1:2] if "--busy" in sys.argv else []
    if busy:
        measure.use_processor_time()  # the environment says how many threads
    print("| ms | tandem, f32, frozen | tandem, 8 bits | inductor | onnx runtime | openvino "
          "| of f32 | x best peer | products | from eager's q/dq |\n|" + "---|" * 10, flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            env = measure.environment(TORCHINDUCTOR_CACHE_DIR=folder)
            done = subprocess.run(
                [sys.executable, __file__, "--worker", name, *busy],
                env=env, check=False, capture_output=True, text=True,
            )  # fmt: skip
        if done.returncode != 0:
            print(f"| {name} | {done.stderr.strip().splitlines()[-1][:200]} |", flush=True)
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(row(name, found), flush=True)
        direct = found | found["unguarded"]
        for kind in ("ms", "quartiles"):
            times = direct[kind]
            direct[kind] = times | {name: times[name + AHEAD] for name in (OWN, OWN_F32)}
        print(row(f"{name}, called directly", direct), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        run_worker(sys.argv[2])
    else:
        main()
