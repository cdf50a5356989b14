"""Full-size models with random weights, and inputs for one step. Dropout is off: contenders draw
different numbers. Needs transformers."""

import functools
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "test", "models"))

import convnets  # noqa: E402

LENGTH = 128


def _library():
    """transformers, when a model is made: the names below are read without it too."""
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers


def _tokens(vocabulary):
    return {"input_ids": torch.randint(0, vocabulary, (1, LENGTH))}


def _images(count):
    return {"pixel_values": torch.randn(count, 3, 224, 224)}


def _bert():
    transformers = _library()
    config = transformers.BertConfig(attention_probs_dropout_prob=0, hidden_dropout_prob=0)
    return transformers.BertModel(config), _tokens(config.vocab_size)


def _gpt2():
    transformers = _library()
    config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False)
    return transformers.GPT2LMHeadModel(config), _tokens(config.vocab_size)


def _vit():
    transformers = _library()
    config = transformers.ViTConfig(attention_probs_dropout_prob=0, hidden_dropout_prob=0)
    return transformers.ViTModel(config), _images(1)


def _llama():
    transformers = _library()
    config = transformers.LlamaConfig(
        hidden_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        intermediate_size=2816,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), _tokens(config.vocab_size)


def _resnet50():
    transformers = _library()
    return transformers.ResNetForImageClassification(transformers.ResNetConfig()), _images(2)


def _mobilenet_v2():
    transformers = _library()
    config = transformers.MobileNetV2Config(classifier_dropout_prob=0)
    return transformers.MobileNetV2ForImageClassification(config), _images(4)


def _convnet(build, count=4, **options):
    """Of test/models/convnets.py: padding is an argument of the convolutions. transformers'
    MobileNet pads by an operator of its own."""
    return convnets.Classified(build(**options)), _images(count)


# What `make bench` measures; more would not fit into its time.
CASES = {
    "bert-base, 1x128": _bert,
    "gpt2, 1x128": _gpt2,
    "vit-base, 1": _vit,
    "llama, 8 layers, 1x128": _llama,
    "resnet50, 2": _resnet50,
    "mobilenet_v2, 4": _mobilenet_v2,
    "own mobilenet_v2, 4": functools.partial(_convnet, convnets.mobilenet_v2),
}

# Measured by name: `bench/models.py --models NAME`.
MORE_CASES = {
    "own mobilenet_v2 that pads apart, 4": functools.partial(
        _convnet, convnets.mobilenet_v2, pads_apart=True
    ),
    "own mobilenet_v3 large, 4": functools.partial(_convnet, convnets.mobilenet_v3),
    "own efficientnet_b0, 4": functools.partial(_convnet, convnets.efficientnet),
    "own regnet_y_400mf, 4": functools.partial(_convnet, convnets.regnet_y),
    "own densenet121, 2": functools.partial(_convnet, convnets.densenet, 2),
    "own shufflenet_v2, 4": functools.partial(_convnet, convnets.shufflenet_v2),
}


def make(name):
    """(model, inputs by name), the same in every process."""
    torch.manual_seed(0)
    model, inputs = (CASES | MORE_CASES)[name]()
    return model, inputs


def has_dynamic_size(name):
    """torch.compile takes a size of 1 for a number: an image alone, as names end, has no other to
    leave open."""
    return not name.endswith(", 1")


def mark_dynamic(inputs):
    """Leaves open how many tokens a text has, or how many images there are."""
    for tensor in inputs.values():
        torch._dynamo.mark_dynamic(tensor, 1 if tensor.dim() == 2 else 0)


def first_tensor(output):
    """What a step reads of a model's output."""
    if isinstance(output, torch.Tensor):
        return output
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return next(value for value in values if isinstance(value, torch.Tensor))
