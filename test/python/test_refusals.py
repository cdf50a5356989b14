"""What eager refuses, the type rules refuse too, with a message that names the op."""

import re

import pytest
import torch

import samples as sample_language
import tandem
from op_check import short
from refusals import REFUSED
from tolerance import EAGER_REFUSES

CALLS = [(name, text) for name, texts in REFUSED.items() for text in texts]
# Differences by dtype that stay, by op, and why.
EAGER_LACKS = {
    "aten.gelu_backward": "mixed dtypes: a restriction of eager's library",
    "aten.convolution": "dilated convolutions of integers: eager has no kernel",
    "aten.avg_pool3d": "16-bit floats",
    "aten.special_erfcx": "16-bit floats",
    "aten.special_ndtri": "16-bit floats",
    "aten.special_log_ndtr": "16-bit floats",
    "aten.round.decimals": "integers, which are round",
    "aten.special_round": "integers, which are round",
    "aten.ldexp.Tensor": "exponents that are bool",
    "aten.mish_backward": "mixed dtypes",
    "aten.glu_backward": "mixed dtypes",
    "aten._prelu_kernel_backward": "mixed dtypes",
    "aten.avg_pool3d_backward": "16-bit floats",
    "aten.multi_margin_loss": "16-bit floats",
    "aten.multi_margin_loss_backward": "16-bit floats",
    "aten.multilabel_margin_loss": "16-bit floats",
    "aten.multilabel_margin_loss_forward": "16-bit floats",
    "aten.multilabel_margin_loss_backward": "16-bit floats",
    "aten._upsample_bilinear2d_aa": "16-bit floats",
    "aten._upsample_bilinear2d_aa.vec": "16-bit floats",
    "aten._upsample_bilinear2d_aa_backward": "16-bit floats",
    "aten._upsample_bicubic2d_aa": "16-bit floats",
    "aten._upsample_bicubic2d_aa.vec": "16-bit floats",
    "aten._upsample_bicubic2d_aa_backward": "16-bit floats",
}
# Ops that end the process in eager when they are given integers.
EAGER_CRASHES = {"aten.smooth_l1_loss_backward"}
WE_LACK = {
    "prims.fma": "bool",
    "aten.rrelu_with_noise_backward": "integers have no gradient here",
    "aten.rrelu_with_noise_functional": "noise of another dtype",
    "aten.mm": "products of bool without elements",
    "aten.mv": "products of bool without elements",
    "aten.bmm": "products of bool, and of mixed dtypes, without elements",
    "aten.l1_loss": "differences of integers that are not reduced",
    "aten.avg_pool2d_backward": "integers have no gradient here",
    "aten.native_dropout_backward": "integers have no gradient here",
    "aten.avg_pool3d_backward": "integers have no gradient here",
    "aten.mse_loss_backward": "integers have no gradient here, nor mixed dtypes",
    "aten.huber_loss_backward": "integers have no gradient here, nor mixed dtypes",
    "aten.soft_margin_loss_backward": "integers have no gradient here",
    "aten.affine_grid_generator_backward": "integers have no gradient here",
    "aten.affine_grid_generator": "grids of integers",
    "aten.poisson_nll_loss": "losses of integers",
    "aten.soft_margin_loss": "losses of integers",
    "aten.margin_ranking_loss": "losses of integers",
    "aten.hinge_embedding_loss": "losses of integers",
    "aten.cosine_embedding_loss": "losses of integers",
    "aten.triplet_margin_loss": "losses of integers",
    "aten.pairwise_distance": "distances of integers",
    "aten.rnn_relu.input": "integers",
    "aten.rnn_relu_cell": "integers",
    "aten.rnn_tanh_cell": "integers",
    "aten.fake_quantize_per_tensor_affine_cachemask_backward": "integers have no gradient here",
    "aten.fake_quantize_per_channel_affine_cachemask_backward": "integers have no gradient here",
    "quantized_decomposed.choose_qparams_per_token": "parameters of integers",
    "quantized_decomposed.choose_qparams_per_token_asymmetric": "parameters of integers",
    "quantized_decomposed._choose_qparams_per_token_asymmetric_impl": "parameters of integers",
    "torchao.choose_qparams_affine": "parameters of integers",
    "aten.lstm.input": "mixed dtypes, at which eager's library does not look",
    "aten.lstm_cell": "mixed dtypes of the state and the weights",
    "aten._native_multi_head_attention": "mixed dtypes of bias and input, as eager's kernel casts",
    "aten.conv3d.padding": "mixed dtypes of bias and input, as eager's library casts",
    "aten.upsample_bilinear2d": "u8, which eager interpolates in fixed point",
    "aten.upsample_bilinear2d.vec": "u8, which eager interpolates in fixed point",
    "aten.upsample_bicubic2d": "u8, which eager interpolates in fixed point",
    "aten.upsample_bicubic2d.vec": "u8, which eager interpolates in fixed point",
    "aten._upsample_bilinear2d_aa": "u8, which eager interpolates in fixed point",
    "aten._upsample_bilinear2d_aa.vec": "u8, which eager interpolates in fixed point",
    "aten._upsample_bicubic2d_aa": "u8, which eager interpolates in fixed point",
    "aten._upsample_bicubic2d_aa.vec": "u8, which eager interpolates in fixed point",
}


def arguments(sample):
    generator = torch.Generator().manual_seed(1)
    tensors = [spec.make(generator) for spec in sample.specs()]
    return tensors, *sample_language.eager_arguments(sample, tensors)


def eager_refuses(name, sample):
    _, positional, named = arguments(sample)
    try:
        sample_language.eager_op(name)(*positional, **named)
    except EAGER_REFUSES as error:
        return short(error)
    return None


def types_refuse(calls):
    """Error by number of the call, for calls as lines of one graph."""
    inputs, lines = [], []
    for name, sample in calls:
        names = [f"v{len(inputs) + i}" for i in range(len(sample.specs()))]
        inputs += [f"%{n}: {spec.type_text()}" for n, spec in zip(names, sample.specs())]
        lines.append("  " + sample_language.call_text(name, sample, names))
    text = f"graph @many({', '.join(inputs)}) {{\n" + "\n".join(lines)
    with pytest.raises(tandem.UserError) as caught:
        tandem.compile_text(text + "\n  aten.nope()\n  return\n}")
    refused = {}
    for problem in str(caught.value).split("\n"):
        line = re.search(r"\(line (\d+)\)$", problem)
        if line and not problem.endswith(f"0 are named {line[0]}"):
            refused[int(line[1]) - 2] = problem
    return refused


def run_refuses(name, sample):
    """The error of compiling the call alone and running it; None when there is none."""
    names = [f"a{i}" for i in range(len(sample.specs()))]
    inputs = ", ".join(f"%{n}: {s.type_text()}" for n, s in zip(names, sample.specs()))
    call = sample_language.call_text(name, sample, names)
    results = "%r0"
    for count in range(1, 4):
        try:
            executable = tandem.compile_text(
                f"graph @one({inputs}) {{\n  {results} = {call}\n  return {results}\n}}"
            )
            known = dict(zip(names, arguments(sample)[0]), seed=1)
            executable.run([known[n] for n in executable.inputs])
            return None
        except tandem.UserError as error:
            if "are named" not in str(error):
                return str(error)
            results += f", %r{count}"
    return None


@pytest.mark.parametrize("name, text", CALLS, ids=[f"{name}({text})" for name, text in CALLS])
def test_call_that_eager_refuses(name, text):
    sample = sample_language.parse_sample(text, "f32")
    assert eager_refuses(name, sample), "eager accepts it: no test"
    error = run_refuses(name, sample)
    assert error is not None
    assert re.match(r"\[(aten|tandem)::\w", error), error


def dtype_calls():
    """The first samples of every op, with all operands of one dtype, and one operand of another."""
    for op in tandem.ops():
        has_eager = not op.name.startswith(sample_language.WITHOUT_EAGER)
        if op.mutates or not has_eager or op.name in EAGER_CRASHES:
            continue
        for text in [t for t in op.samples[:2] if "$" in t and "special" not in t]:
            count = text.count("$")
            choices = [(dtype,) * count for dtype in sample_language.SETS["all"]]
            for i in range(count):
                for dtype in ["f64", "bf16", "i64", "i32", "bool"]:
                    choices.append(("f32",) * i + (dtype,) + ("f32",) * (count - i - 1))
            for dtypes in dict.fromkeys(choices):
                parts = [part for pair in zip(text.split("$"), [*dtypes, ""]) for part in pair]
                yield op.name, "".join(parts)


def test_dtypes_as_in_eager():
    parse = sample_language.parse_sample
    calls = [(name, text, parse(text, "f32")) for name, text in dtype_calls()]
    assert len(calls) > 3000
    refused = types_refuse([(name, sample) for name, _, sample in calls])
    wrong = []
    for number, (name, text, sample) in enumerate(calls):
        by_eager = eager_refuses(name, sample)
        ours = refused.get(number)
        if by_eager and not ours and name not in EAGER_LACKS and not run_refuses(name, sample):
            wrong.append(f"{name}({text}) passes; eager: {by_eager}")
        if ours and not by_eager and name not in WE_LACK:
            wrong.append(f"{name}({text}) is refused: {ours}")
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("-1, 3, 2", "before -1 must not be negative: what is cut of a circle is cut first"),
        ("3, -1, 2", "after -1 must not be negative"),
        ("-4, -4, 0", "more than the 5 elements of dimension 0 of self f32.5. are cut"),
    ],
)
def test_widths_of_a_pad(arguments, message):
    text = f"graph @f(%x: f32[5]) {{\n  %y = tandem.edge_pad(%x, 0, {arguments})\n  return %y\n}}"
    with pytest.raises(tandem.UserError, match=message):
        tandem.compile_text(text)
