"""Every model type of transformers, at a size that runs in a second: what its configuration gives
by default, with the numbers below instead of its own where it has them, and inputs that its forward
takes. What eager does not run so is left out, and said: nobody fitted its configuration by hand.

    python test/models/sweep.py --types [TYPE ...]
"""

import contextlib
import functools
import inspect

import cases
import full
import judge
import torch
from entry import Entry, fresh
from transformers import CONFIG_MAPPING, AutoModel, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

WORDS = 99
IMAGE, PATCH = 64, 8
SMALL = (
    (
        32,
        "hidden_size d_model dim embed_dim n_embd emb_dim embedding_size projection_dim "
        "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size "
        "word_embed_proj_dim",
    ),
    (
        2,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers num_key_value_heads num_experts_per_tok moe_topk "
        "type_vocab_size",
    ),
    (
        4,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
        "decoder_attention_heads num_experts num_local_experts n_routed_experts time_step_rank",
    ),
    (
        8,
        "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim mamba_d_state state_size "
        "mamba_n_heads mamba_d_head attention_window rotary_dim",
    ),
    (16, "q_lora_rank kv_lora_rank num_mel_bins sliding_window"),
    (64, "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size"),
    (128, "max_position_embeddings n_positions n_ctx"),
    (1, "n_group topk_group n_shared_experts first_k_dense_replace"),
    (WORDS, "vocab_size"),
    (IMAGE, "image_size"),
    (PATCH, "patch_size"),
)
NUMBERS = {name: number for number, names in SMALL for name in names.split()}
# Lists, an entry a stage or a layer.
LISTS = {
    "hidden_sizes": lambda old: [16 * (i + 1) for i in range(len(old))],
    "depths": lambda old: [1] * len(old),
    "conv_dim": lambda old: [16] * len(old),
    "num_heads": lambda old: [2] * len(old),
    "layer_types": lambda old: (2 * list(dict.fromkeys(old)))[: max(2, len(set(old)))],
    "mlp_layer_types": lambda old: [old[0], old[-1]],
}
# Probabilities of what a step draws: the truth draws otherwise.
RANDOM = ("drop", "mask_time_prob", "jitter_noise")
SECTIONS = [2, 1, 1]  # of half a head, turned by each of three positions
MOST_PARAMETERS = 150e6
DECODER_LENGTH, SAMPLES, FRAMES = 12, 4000, 64
SIZES = ((2, 16), (3, 21))  # sequences or images, words


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def small_value(name, old):
    """What it is made in a small model; what it was, where nothing is known of it."""
    if isinstance(old, PretrainedConfig):
        return small(old)
    if is_number(old) and name in NUMBERS:
        return NUMBERS[name]
    if isinstance(old, (list, tuple)) and old and name in LISTS:
        return LISTS[name](old)
    if is_number(old) and name.endswith("_token_id") and old >= WORDS:
        return 1
    if isinstance(old, float) and any(word in name for word in RANDOM):
        return 0.0
    if name == "head_dim" and old is None:
        return NUMBERS["head_dim"]
    if name == "rope_parameters" and isinstance(old, dict) and "rope_theta" in old:
        return old | {"mrope_section": SECTIONS}
    return old


def changes_of(config):
    pairs = {name: (old, small_value(name, old)) for name, old in vars(config).items()}
    changes = {name: new for name, (old, new) in pairs.items() if new is not old and new != old}
    if "layer_types" in changes:
        changes["num_hidden_layers"] = len(changes["layer_types"])
    if hasattr(config, "kv_lora_rank"):  # keys are made for every head
        changes["num_key_value_heads"] = NUMBERS["num_attention_heads"]
    if hasattr(config, "expand") and hasattr(config, "num_heads"):  # of the wider rows
        changes["num_heads"] = config.expand * NUMBERS["hidden_size"] // NUMBERS["head_dim"]
    return changes


def small(config):
    """Made again, so that its constructor derives from the new numbers what it derives; in place,
    where it refuses them."""
    changes = changes_of(config)
    try:
        by_default = vars(type(config)())
        own = {name: x for name, x in vars(config).items() if x != by_default.get(name, x)}
        made = type(config)(**(own | changes))
    except Exception:  # noqa: BLE001: of another's code
        made = config
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def configuration(kind):
    config = small(CONFIG_MAPPING[kind]())
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


def words(batch, length):
    return torch.randint(3, WORDS - 9, (batch, length))


def makers_of(config, batch, length):
    mels = getattr(config, "num_mel_bins", 16)
    channels = getattr(config, "num_channels", 3)
    return {
        "input_ids": lambda: words(batch, length),
        "pixel_values": lambda: torch.randn(batch, channels, IMAGE, IMAGE),
        "input_values": lambda: torch.randn(batch, SAMPLES),
        "input_features": lambda: torch.randn(batch, mels, FRAMES),
        "bbox": lambda: torch.randint(0, 50, (batch, length, 4)).sort(-1).values,
    }


# What is tried beside the main input, or instead of it, until eager takes it.
OTHERS = (
    lambda make: {},
    lambda make: {"pixel_values": make["pixel_values"]()},
    lambda make: {"bbox": make["bbox"]()},
    lambda make: {"input_features": make["input_features"]()},
    lambda make: {"input_features": make["input_features"]().mT.contiguous()},
    lambda make: {"input_values": make["input_features"]().mT.contiguous()},
    lambda make: {"input_values": make["input_values"]()},
    lambda make: {"input_values": make["input_values"]()[:, None]},
)


def main_input(model, names, makers):
    if model.main_input_name in makers and model.main_input_name in names:
        return model.main_input_name
    return next((name for name in makers if name in names), "input_ids")


def inputs_of(kind, batch, length, others):
    config = configuration(kind)
    model = MODEL_MAPPING[type(config)]
    model = model[0] if isinstance(model, tuple) else model
    names = inspect.signature(model.forward).parameters
    makers = makers_of(config, batch, length)
    main = main_input(model, names, makers)
    found = {main: makers[main]()} | others(makers)
    if "decoder_input_ids" in names:
        found["decoder_input_ids"] = words(batch, DECODER_LENGTH)
    if "use_cache" in names:
        found["use_cache"] = False
    return found


@functools.cache
def fitting(kind):
    """The first of OTHERS that eager takes; without one, the first of all, which says why not."""
    model = built(kind).eval()
    for others in OTHERS:
        with contextlib.suppress(Exception), torch.no_grad():
            model(**inputs_of(kind, *SIZES[0], others))
            return others
    return OTHERS[0]


def entry_of(kind):
    return Entry(
        name=kind,
        build=lambda dropout: built(kind),
        inputs=lambda batch, length: inputs_of(kind, batch, length, fitting(kind)),
        sizes=SIZES,
    )


ENTRIES = [entry_of(kind) for kind in MODEL_MAPPING_NAMES]


def dynamic(entry, run):
    """As cases.dynamic, however often Dynamo compiles: many of these ask for sizes as numbers."""
    base = entry.model()
    model = fresh(base)
    compiled = cases.compile_model(model, dynamic=True)
    results = []
    for number in range(len(entry.sizes)):
        model.load_state_dict(base.state_dict())
        results.append(cases.detached(run(entry, model, entry.arguments(number), compiled)))
    report = cases.facts_of_report()
    pairs = enumerate(results)
    verdicts = [cases.verdict_of(entry, run, base, n, actual) for n, actual in pairs]
    return cases.worst_of(verdicts), report


def under_autocast(entry, run):
    base, arguments = entry.model(), entry.arguments()
    model = fresh(base)
    compiled = full.under_autocast(cases.compile_model(model))
    actual = cases.detached(run(entry, model, arguments, compiled))
    report = cases.facts_of_report()
    truth = cases.truth_of(run, entry, base, arguments)
    eager = cases.runs_of(run, entry, base, arguments, full.under_autocast)
    return judge.judge_by_runs(actual, eager, truth), report


WAYS = {"static": cases.static, "dynamic": dynamic, "autocast": under_autocast}
RUNS = {"infer": cases.inference, "train": cases.training}
CASES = {
    f"{name} {way}": functools.partial(lambda ask, run, entry: ask(entry, run), WAYS[way], run)
    for way in WAYS
    for name, run in RUNS.items()
}


def check_truth(run, entry, way):
    """Raises where eager does not run it so, in f64 as well; or draws something, as then its own
    runs are as far from each other as anything is from them; or rounding decides about sizes."""
    base, arguments = entry.model(), entry.arguments()
    first, second = (cases.truth_of(run, entry, base, arguments) for _ in range(2))
    eager = next(cases.runs_of(run, entry, base, arguments, way))
    for name, tensor in first.items():
        if (tensor is None) != (eager[name] is None):
            raise ValueError(f"{name} is there in f64 or in f32 only")
        if tensor is None:
            continue
        if tensor.shape != eager[name].shape:
            sizes = list(tensor.shape), list(eager[name].shape)
            raise ValueError("{} is {} in f64, {} else".format(name, *sizes))
        if tensor.numel() > 0 and not tensor.isfinite().any():
            raise ValueError(f"{name} has no number in it")
        if not torch.equal(tensor.isnan(), second[name].isnan()):
            raise ValueError(f"{name} is NaN in one of two runs of eager")
        if judge.error_of(tensor, second[name]) > 1e-9 * judge.largest(tensor):
            raise ValueError(f"{name} differs in two runs of eager")


def run_case(entry, case):
    """A row; "left out" where nothing could be said of it."""
    try:
        name, asked = case.split()
        way = full.under_autocast if asked == "autocast" else full.as_it_is
        check_truth(RUNS[name], entry, way)
    except Exception as error:  # noqa: BLE001: of another's code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return dict(model=entry.name, case=case, status="left out", reason=reason)
    return cases.run_case(entry, case, CASES)
