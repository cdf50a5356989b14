"""Full-size models that `models.py` does not have, beside PyTorch eager: inference and a training
step in f32, contenders in turn, and whether results agree. Each model is a process.

`sweep_models.py [NAME ...]` prints a line for each; ends with 1 where one differs or fails.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import measure
import verdicts

ROUNDS = 5
SHAKES = 4
LIMIT_S = 900
# Options that models read at each call.
RATES = ("dropout", "dropout_prob", "dropout_rate", "layerdrop", "mask_time_prob",
         "mask_feature_prob", "drop_path_rate")  # fmt: skip


def tokens(vocabulary, length=128):
    import torch

    return torch.randint(0, vocabulary, (1, length))


def text(kind, **options):
    def build():
        import transformers as hf

        config = getattr(hf, f"{kind}Config")(**options)
        return getattr(hf, f"{kind}Model")(config), {"input_ids": tokens(config.vocab_size)}

    return build


def translating(kind, **options):
    """An encoder of tokens and a decoder."""

    def build():
        model, inputs = text(kind, **options)()
        return model, inputs | {"decoder_input_ids": tokens(model.config.vocab_size, 64)}

    return build


def image(kind, count=1, **options):
    def build():
        import torch
        import transformers as hf

        model = getattr(hf, f"{kind}Model")(getattr(hf, f"{kind}Config")(**options))
        return model, {"pixel_values": torch.randn(count, 3, 224, 224)}

    return build


def wav2vec2():
    import torch
    import transformers as hf

    return hf.Wav2Vec2Model(hf.Wav2Vec2Config()), {"input_values": torch.randn(1, 16000)}


def whisper():
    import torch
    import transformers as hf

    model = hf.WhisperModel(hf.WhisperConfig())
    decoder = {"decoder_input_ids": tokens(model.config.vocab_size, 32)}
    return model, {"input_features": torch.randn(1, 80, 3000)} | decoder


CASES = {
    "albert": text("Albert", hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "deberta_v2": text("DebertaV2", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                       intermediate_size=3072, vocab_size=50000),  # fmt: skip
    "distilbert": text("DistilBert"),
    "electra": text("Electra"),
    "mamba": text("Mamba", use_cache=False),
    "opt": text("OPT", use_cache=False),
    "roberta": text("Roberta"),
    "bart": translating("Bart", use_cache=False),
    "t5": translating("T5", use_cache=False),
    "convnext": image("ConvNext"),
    "deit": image("DeiT"),
    "efficientnet": image("EfficientNet", 2, width_coefficient=1.0, depth_coefficient=1.0,
                          hidden_dim=1280, image_size=224),  # fmt: skip
    "levit": image("Levit", 2),
    "regnet": image("RegNet", 2),
    "swin": image("Swin"),
    "wav2vec2": wav2vec2,
    "whisper": whisper,
}


# --- the process of a model


def made(name):
    import torch

    torch.manual_seed(0)
    model, inputs = CASES[name]()
    for module in model.modules():  # contenders draw different numbers
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for option, value in vars(model.config).items():
        if isinstance(value, int | float) and option.endswith(RATES):
            setattr(model.config, option, type(value)(0))
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "test" / "models"))
    from entry import spread

    spread(model)  # what vanishes in a deep network is equal to anything
    return model, inputs


def steps(model, inputs, is_training):
    import torch
    from model_cases import first_tensor
    from model_worker import tandem_of

    def inference(compiled):
        def step():
            with torch.no_grad():
                return first_tensor(compiled(**inputs))

        return step

    def training(compiled):
        def step():
            model.zero_grad(set_to_none=True)
            loss = first_tensor(compiled(**inputs)).square().mean()
            loss.backward()
            gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
            return torch.stack([loss.detach(), torch.stack(gradients).norm()])

        return step

    call = training if is_training else inference
    model.train(is_training)
    return {"eager": call(model), "tandem": call(tandem_of(model))}


def measured(name, is_training):
    import torch
    from model_worker import difference

    torch._dynamo.reset()
    model, inputs = made(name)
    functions = steps(model, inputs, is_training)
    values = {who: step() for who, step in functions.items()}
    times = measure.as_json(measure.alternate(functions, ROUNDS, slot_ms=1.0))
    if not values["eager"].abs().max() > 1e-6:
        raise ValueError("eager's result is nothing that could be compared")
    apart = {who: difference(value, values["eager"]) for who, value in values.items()}
    return times | {"differs": apart, "moved": moved(model, inputs, is_training, values)}


def moved(model, inputs, is_training, values):
    """How far eager's own result goes when weights move in the last place: the conditioning."""
    from entry import shaken
    from model_worker import difference

    copies = (shaken(model, seed) for seed in range(1, SHAKES + 1))
    results = (steps(copy, inputs, is_training)["eager"]() for copy in copies)
    return max(difference(result, values["eager"]) for result in results)


def serve(name):
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(measure.THREADS)
    found = {}
    for part in ("infer", "train"):
        try:
            found[part] = measured(name, part == "train")
        except Exception as error:  # noqa: BLE001: of a compiler; the sweep goes on
            said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            found[part] = {"failures": {"tandem": said}}
    print(json.dumps(found))


# --- the sweep


def run(name):
    with tempfile.TemporaryDirectory() as cache:
        env = measure.environment(TANDEM_CACHE_DIR=cache)
        command = [sys.executable, __file__, "--serve", name]
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"infer": {"error": f"more than {LIMIT_S} s"}}
    if done.returncode != 0:
        return {"infer": {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}}
    return json.loads(done.stdout.strip().splitlines()[-1])


def line(name, found):
    words = [f"{name:14}"]
    for part, result in found.items():
        if "ms" in result:
            eager, own = result["ms"]["eager"], result["ms"]["tandem"]
            words.append(f"{part} eager {eager:8.1f} Tandem {own:8.1f} ms, x {eager / own:5.2f}")
            words.append(f"apart {result['differs']['tandem']:.0e}, moved {result['moved']:.0e}")
    bad = [f"WRONG {what}: {why}" for what, why in verdicts.wrong({name: found})]
    return "  ".join([*words, *bad])


def main(names):
    if names[:1] == ["--serve"]:
        return serve(names[1])
    measure.pin()
    results = {}
    for name in names or CASES:
        results[name] = run(name)
        measure.progress(line(name, results[name]))
    found = verdicts.wrong(results)
    measure.progress(f"{len(results)} models, {len(found)} parts wrong or without a result")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
