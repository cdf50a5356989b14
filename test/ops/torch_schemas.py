"""Writes torch_schemas.txt: the schemas of PyTorch's operators, without those of other devices
and layouts that no file of ops/ names. table_test.cc compares the op table with it, without it.
Run it with the tests' Python where that test asks for it:
.venv/bin/python test/ops/torch_schemas.py"""

import pathlib
import re

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers quantized_decomposed)
import torchao.quantization.quant_primitives  # noqa: F401  (registers torchao)

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCES = FOLDER.parent.parent / "ops"


# Families of other devices, layouts and libraries, which the table has no use for.
OTHERS = (
    "cudnn",
    "miopen",
    "mkldnn",
    "fbgemm",
    "quantized",
    "sym_",
    "_foreach",
    "_fused",
    "_sparse",
    "_nested",
    "_cudnn",
    "_mkldnn",
    "_mps",
    "_test",
    "_assert",
    "_cufft",
    "_thnn",
    "_amp",
    "_coo",
    "_cslt",
    "_spdiags",
    "_transformer",
    "_flash",
    "_efficient",
    "_nnpack",
    "_segment",
    "_validate",
    "_use_cudnn",
    "_has",
    "_pack",
    "_pad_packed",
    "_linalg",
    "_mixed",
    "_jagged",
)


def words():
    found = set()
    for path in sorted(SOURCES.rglob("*.cc")):
        found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return found


def main():
    known = words()
    lines = set()
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        private = name.startswith(OTHERS)
        wanted = not private or name in known or name.removesuffix("_") in known
        overload = schema.overload_name  # of the many `x_out` those that the table names
        unnamed = overload.endswith("_out") and overload not in known
        wanted = wanted if namespace == "aten" else name in known
        ours = namespace in ("aten", "quantized_decomposed", "torchao")
        if ours and wanted and not unnamed and "Tensor" in str(schema):
            lines.add(str(schema))
    text = f"# PyTorch {torch.__version__}, by test/ops/torch_schemas.py\n"
    text += "".join(line + "\n" for line in sorted(lines))
    (FOLDER / "torch_schemas.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
