"""The behaviours that quantized models are held to, by number, and which of them do not hold yet.

Numbers are those of the list that the project was planned with: 1 to 62 are what users of
X86InductorQuantizer and torchao may expect, H1 to H10 graphs that a careless matcher gets wrong.
"""

import pytest

BEHAVIOURS = {
    "1": "convolutions in a row, one of them grouped",
    "2": "the same under bf16 autocast",
    "3": "the same in 8-bit floats",
    "4": "convolution and relu",
    "5": "convolution and relu6",
    "6": "convolution and hardtanh; bf16",
    "7": "convolution and hardswish; bf16",
    "8": "convolution and silu; bf16",
    "9": "a sum of two convolutions, three spellings",
    "10": "the same and relu",
    "11": "both under bf16 autocast",
    "12": "a convolution and an input of the graph, both orders",
    "13": "an addend that is broadcast",
    "14": "hardswish and hardsigmoid are no residuals",
    "15": "an addend that is read again",
    "16": "convolutions, cat, convolution",
    "17": "one quantized value, several readers",
    "18": "conv1d and relu",
    "19": "trained: convolution and batch norm",
    "20": "trained: and relu",
    "21": "trained: and relu6",
    "22": "trained: and hardtanh",
    "23": "trained: and silu",
    "24": "trained: and hardswish",
    "25": "trained: a sum of two",
    "26": "trained: a sum of two and relu",
    "27": "trained: a batch norm in front",
    "28": "linear layers, with and without bias",
    "29": "the same under bf16 autocast",
    "30": "linear layers of three dimensions",
    "31": "the same under bf16 autocast",
    "32": "linear layers of a permuted input",
    "33": "the same under bf16 autocast",
    "34": "linear layers, ranges of each call",
    "35": "the same, trained",
    "36": "the same, three dimensions",
    "37": "linear and relu",
    "38": "linear and gelu, both formulas",
    "39": "linear and gelu under bf16 autocast",
    "40": "sums of linear layers, four spellings, static and dynamic",
    "41": "one quantized value, several linear readers",
    "42": "the same, three dimensions",
    "43": "the same under bf16 autocast",
    "44": "the same, ranges of each call",
    "45": "a linear layer times a tensor",
    "46": "linear layers with weights of 16-bit floats",
    "47": "the same and relu",
    "48": "convolution, relu, max_pool2d, all arguments",
    "49": "cat of convolutions",
    "50": "pooling and flatten",
    "51": "attention, its two products quantized or not",
    "52": "a batch that varies",
    "53": "embedding bags of bytes",
    "54": "a cat that is dequantized and quantized again",
    "55": "products of integers scaled by hand, as smooth quantization writes them",
    "56": "rows quantized each with a scale of its own",
    "57": "weights of 8 bits alone, bf16 activations",
    "58": "weights of 4 bits; three of one activation are one step",
    "59": "what a recipe makes of cat",
    "60": "what a recipe makes of mul",
    "61": "a small residual network, every product",
    "62": "graphs without quantization keep their numbers",
    "H1": "alpha of an addition",
    "H2": "a pool between two scales",
    "H3": "cat and reshape between other dtypes and ranges",
    "H4": "bounds narrower than the dtype",
    "H5": "transposed convolution, other axes, zero points and dtypes of weights",
    "H6": "hardtanh of bounds that cross",
    "H7": "leaky_relu and tanh behind a linear layer; products of two activations",
    "H8": "scales that are nearly the same",
    "H9": "16-bit floats that are not bf16",
    "H10": "an addend that must keep its value",
}

# By number and part: a behaviour may hold in part.
MISSING = {
    ("58", "one step"): "products of one activation are a step each",
}


def behaviour(number, part=""):
    """Marks the tests of a behaviour, or of a part of it; what does not hold yet must fail."""
    assert number in BEHAVIOURS, number
    reason = MISSING.get((number, part))
    return pytest.mark.xfail(reason is not None, strict=True, reason=reason or "")
