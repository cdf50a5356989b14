"""The graphs that `schedule` is given for the models of the project, into a folder.

    python test/replay/capture.py FOLDER

Full-size models of the benchmark (f32, bf16) and all small ones of `make models` (static, dynamic),
inference (frozen and not) and training, one process a model; the demo. A file a graph, with its
setup; equal graphs once.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "; before schedule\n", "; end\n"
SECONDS = 600


def models():
    """Names, by where they come from."""
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "test/models")]
    import model_cases
    from sweep import all_entries

    full = model_cases.CASES | model_cases.MORE_CASES
    return [f"full:{name}" for name in full] + [f"small:{name}" for name in all_entries()]


def model_of(name):
    kind, name = name.split(":", 1)
    if kind == "full":
        import model_cases

        return model_cases.make(name)
    from sweep import all_entries

    entry = all_entries()[name]
    return entry.model(), entry.arguments()


def compile_all(name):
    import torch

    model, inputs = model_of(name)
    compile_model(model, inputs, dynamic=False)
    if name.startswith("small:"):
        compile_model(model, inputs, dynamic=True)
        return
    halves = {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}
    compile_model(model.to(torch.bfloat16), halves, dynamic=False)


def compile_model(model, inputs, dynamic):
    """Inference, plain and frozen, and a training step; backward is compiled when it runs."""
    import tandem
    import torch
    from torch.utils import _pytree as pytree

    def compiled(**options):
        torch._dynamo.reset()
        return torch.compile(model, backend=tandem.backend, dynamic=dynamic, options=options)

    model.eval()
    with torch.no_grad():
        compiled()(**inputs)
        compiled(freeze=True)(**inputs)
    model.train()
    results = pytree.tree_leaves(compiled()(**inputs))
    leaves = [x for x in results if torch.is_tensor(x) and x.requires_grad]
    sum(leaf.float().square().mean() for leaf in leaves).backward()


def keep(name, text, folder, seen):
    parts = [part.split(END)[0] for part in text.split(BEGIN)[1:]]
    for graph in parts:
        digest = hashlib.sha256(graph.encode()).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        stem = name.replace(":", "-").replace("/", "-").replace(" ", "").replace(",", "-")
        (folder / f"{stem}.{digest[:8]}.tir").write_text(graph)
    return len(parts)


def run(command, **more):
    environment = dict(os.environ, TANDEM_DUMP="before:schedule", TANDEM_CACHE_DIR="", **more)
    try:
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True,
                              timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        text = (late.stderr or b"").decode()
        return subprocess.CompletedProcess(command, 1, "", text)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    seen = set()
    commands = {name: [sys.executable, __file__, "--model", name] for name in models()}
    commands["demo"] = ["build/bin/demo", "--steps", "1", "--batch", "4"]
    for name, command in commands.items():
        done = run(command)
        count = keep(name, done.stderr, folder, seen)
        failed = f", ended with {done.returncode}" if done.returncode else ""
        print(f"{name}: {count} graphs{failed}", flush=True)
    print(f"{len(seen)} different graphs in {folder}")


if __name__ == "__main__":
    if sys.argv[1] == "--model":
        models()
        compile_all(sys.argv[2])
    else:
        main()
