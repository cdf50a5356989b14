"""Every model type of transformers, at a size that runs in a second: what its configuration gives
by default, with the numbers below instead of its own where it has them, and inputs that its forward
takes. What eager does not run so is left out, and said: nobody fitted its configuration by hand.

    python test/models/sweep.py --types [TYPE ...]
"""

import inspect

import cases
import torch
from entry import Entry
from transformers import CONFIG_MAPPING, AutoModel, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

WORDS = 99
IMAGE, PATCH = 32, 8
SMALL = {
    32: "hidden_size d_model dim embed_dim n_embd emb_dim embedding_size projection_dim "
    "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size "
    "word_embed_proj_dim",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
    "num_encoder_layers num_decoder_layers num_key_value_heads num_experts_per_tok moe_topk "
    "type_vocab_size",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
    "decoder_attention_heads num_experts num_local_experts n_routed_experts time_step_rank",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_d_state state_size "
    "mamba_n_heads mamba_d_head attention_window",
    16: "q_lora_rank kv_lora_rank num_mel_bins sliding_window",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size",
    128: "max_position_embeddings n_positions n_ctx",
    1: "n_group topk_group n_shared_experts first_k_dense_replace",
    WORDS: "vocab_size",
    IMAGE: "image_size",
    PATCH: "patch_size",
}
NUMBERS = {name: number for number, names in SMALL.items() for name in names.split()}
# Lists, an entry a stage or a layer.
LISTS = {
    "hidden_sizes": lambda old: [16 * (i + 1) for i in range(len(old))],
    "depths": lambda old: [1] * len(old),
    "conv_dim": lambda old: [16] * len(old),
    "layer_types": lambda old: (2 * list(dict.fromkeys(old)))[: max(2, len(set(old)))],
    "mlp_layer_types": lambda old: [old[0], old[-1]],
}
MOST_PARAMETERS = 60e6
LENGTH, DECODER_LENGTH, SAMPLES, FRAMES = 16, 12, 4000, 64


def made_small(config):
    """In place, with the configurations inside."""
    for name, old in list(vars(config).items()):
        is_number = isinstance(old, int) and not isinstance(old, bool)
        if isinstance(old, PretrainedConfig):
            made_small(old)
        elif is_number and name in NUMBERS:
            setattr(config, name, NUMBERS[name])
        elif isinstance(old, (list, tuple)) and old and name in LISTS:
            setattr(config, name, LISTS[name](old))
        elif is_number and name.endswith("_token_id") and old >= WORDS:
            setattr(config, name, 1)
        elif name.endswith("layerdrop"):
            setattr(config, name, 0.0)  # else each step draws which layers it has
    if getattr(config, "layer_types", None):
        config.num_hidden_layers = len(config.layer_types)
    return config


def configuration(kind):
    config = made_small(CONFIG_MAPPING[kind]())
    config._attn_implementation = "eager"  # which all types have
    return config


def parameter_count(kind):
    """0 where a constructor reads its own numbers, which nothing has without memory."""
    try:
        with torch.device("meta"):
            model = AutoModel.from_config(configuration(kind))
    except (RuntimeError, NotImplementedError):
        return 0
    return sum(parameter.numel() for parameter in model.parameters())


def built(kind):
    count = parameter_count(kind)
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    return AutoModel.from_config(configuration(kind)).float()


def inputs_of(kind, batch):
    config = configuration(kind)
    model = MODEL_MAPPING[type(config)]
    model = model[0] if isinstance(model, tuple) else model
    names = inspect.signature(model.forward).parameters
    channels = getattr(config, "num_channels", 3)
    makers = {
        "input_ids": lambda: torch.randint(3, WORDS - 9, (batch, LENGTH)),
        "pixel_values": lambda: torch.randn(batch, channels, IMAGE, IMAGE),
        "input_values": lambda: torch.randn(batch, SAMPLES),
        "input_features": lambda: torch.randn(batch, getattr(config, "num_mel_bins", 16), FRAMES),
    }
    main = model.main_input_name if model.main_input_name in makers else "input_ids"
    if main not in names:
        main = next((name for name in makers if name in names), main)
    found = {main: makers[main]()}
    if "decoder_input_ids" in names:
        found["decoder_input_ids"] = torch.randint(3, WORDS - 9, (batch, DECODER_LENGTH))
    if "use_cache" in names:
        found["use_cache"] = False
    return found


def entry_of(kind):
    return Entry(
        name=kind,
        build=lambda dropout: built(kind),
        inputs=lambda batch, size: inputs_of(kind, batch),
        sizes=((2, LENGTH),),
    )


ENTRIES = [entry_of(kind) for kind in MODEL_MAPPING_NAMES]
RUNS = {"infer static": cases.inference, "train static": cases.training}


def run_case(entry, case):
    """A row; "left out" where eager does not run it so, in f64 as well, the truth."""
    try:
        cases.truth_of(RUNS[case], entry, entry.model(), entry.arguments())
    except Exception as error:  # noqa: BLE001: of another's code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return dict(model=entry.name, case=case, status="left out", reason=reason)
    return cases.run_case(entry, case)
