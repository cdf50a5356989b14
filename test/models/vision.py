"""Image models, and models of images or sound and text, from transformers configurations."""

import torch
import transformers as hf
from entry import Entry
from text import BART, BERT_DROPOUTS, SMALL, VOCABULARY, model, tokens

SIDES = ((2, 32), (3, 48), (5, 40))
BATCHES = ((2, 32), (3, 32), (5, 32))
# Deep batch norms over few values amplify rounding until nothing can be compared. MobileNet's
# padding takes sides as plain numbers, so they are fixed.
DEEP_SIDES = ((4, 64), (3, 96), (5, 80))
DEEP_BATCHES = ((4, 64), (6, 64), (5, 64))


def images(batch, side):
    return dict(pixel_values=torch.randn(batch, 3, side, side), labels=torch.arange(batch) % 2)


def segments(batch, side):
    return dict(
        pixel_values=torch.randn(batch, 3, side, side),
        labels=torch.randint(0, 2, (batch, side, side)),
    )


def image_model(name, model_name, sizes, p_names=(), inputs=images, kind="", **options):
    kind = kind or f"{model_name}ForImageClassification"

    def build(dropout):
        config = getattr(hf, f"{model_name}Config")(
            **options,
            # Else the loss sets it at the first call, and Dynamo compiles again for the second.
            problem_type="single_label_classification",
            **dict.fromkeys(p_names, dropout),
        )
        return model(getattr(hf, kind), config)

    return Entry(name, build, inputs, sizes, has_dropout=bool(p_names))


VIT = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
)
STAGES = dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1])
PATHS = (*BERT_DROPOUTS, "drop_path_rate")

IMAGE_ENTRIES = [
    image_model("vit", "ViT", BATCHES, BERT_DROPOUTS, **VIT),
    image_model("deit", "DeiT", BATCHES, BERT_DROPOUTS, **VIT),
    image_model(
        "swin",
        "Swin",
        BATCHES,  # its windows and paddings of symbolic sides keep torch's tracing busy for minutes
        PATHS,
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    ),
    image_model("beit", "Beit", BATCHES, PATHS, **VIT),
    image_model(
        "convnext",
        "ConvNext",
        SIDES,
        ("drop_path_rate",),
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_stages=2,
        image_size=32,
    ),
    image_model("resnet", "ResNet", SIDES, layer_type="basic", **STAGES),
    image_model(
        "mobilenet_v1",
        "MobileNetV1",
        DEEP_BATCHES,
        ("classifier_dropout_prob",),
        depth_multiplier=0.25,
        min_depth=8,
        image_size=32,
    ),
    image_model(
        "mobilenet_v2",
        "MobileNetV2",
        DEEP_BATCHES,
        ("classifier_dropout_prob",),
        depth_multiplier=0.25,
        image_size=32,
    ),
    image_model(
        "efficientnet",
        "EfficientNet",
        DEEP_SIDES,
        ("dropout_rate", "drop_connect_rate"),
        width_coefficient=0.25,
        depth_coefficient=0.3,
        image_size=32,
        hidden_dim=320,
    ),
    image_model("regnet", "RegNet", SIDES, groups_width=8, **STAGES),
    image_model(
        "segformer",
        "Segformer",
        SIDES,
        (*PATHS, "classifier_dropout_prob"),
        segments,
        "SegformerForSemanticSegmentation",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
    ),
]


# --- two modalities


def clip(dropout):
    config = hf.CLIPConfig(
        text_config=SMALL | dict(attention_dropout=dropout),
        vision_config=VIT | dict(attention_dropout=dropout),
        projection_dim=16,
    )
    return model(hf.CLIPModel, config)


def captions(batch, length):
    return dict(
        input_ids=tokens(batch, length),
        pixel_values=torch.randn(batch, 3, 32, 32),
        return_loss=True,
    )


def whisper(dropout):
    config = hf.WhisperConfig(
        **BART | dict(vocab_size=VOCABULARY),
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), dropout),
    )
    return model(hf.WhisperForConditionalGeneration, config)


def speech(batch, length):
    """The length of the sound is fixed by the configuration, that of the text is not."""
    return dict(input_features=torch.randn(batch, 16, 64), labels=tokens(batch, length))


def wav2vec2(dropout):
    names = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout",
             "final_dropout")  # fmt: skip
    config = hf.Wav2Vec2Config(
        **SMALL | dict(vocab_size=32),
        conv_dim=[16, 16],
        conv_stride=[5, 2],
        conv_kernel=[10, 3],
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        classifier_proj_size=16,
        problem_type="single_label_classification",
        layerdrop=0.0,
        apply_spec_augment=False,
        **dict.fromkeys(names, dropout),
    )
    return model(hf.Wav2Vec2ForSequenceClassification, config)


def sound(batch, length):
    return dict(input_values=torch.randn(batch, length), labels=torch.arange(batch) % 2)


MIXED_ENTRIES = [
    Entry("clip", clip, captions, ((2, 16), (3, 11), (5, 23)), has_dropout=True),
    Entry("whisper", whisper, speech, ((2, 8), (3, 12), (5, 15)), has_dropout=True),
    Entry("wav2vec2", wav2vec2, sound, ((2, 400), (3, 330), (5, 510)), has_dropout=True),
]

ENTRIES = IMAGE_ENTRIES + MIXED_ENTRIES
