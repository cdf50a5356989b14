"""Language models from transformers configurations, with random weights."""

import torch
import transformers as hf
from entry import Entry
from transformers.integrations import moe

# Eager's grouped product has no f64; its stand-in in transformers, which the compiled f32 takes in
# any case, has.
moe._can_use_grouped_mm = lambda *_: False

VOCABULARY = 120
LENGTHS = ((2, 16), (3, 11), (5, 23))
# Torch's associative_scan halves the length again and again, and guards each parity; a Fourier
# transform's length is a number of the program.
ONE_LENGTH = ((2, 16), (3, 16), (5, 16))
SMALL = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)


def tokens(batch, length):
    return torch.randint(3, VOCABULARY, (batch, length))


def labels(batch, length):
    """Some places have none."""
    chosen = tokens(batch, length)
    chosen[:, ::5] = -100
    return chosen


def masked(batch, length):
    """The first sentence is shorter, and padded."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length - 3 :] = 0
    return dict(
        input_ids=tokens(batch, length), attention_mask=mask, labels=labels(batch, length)
    )


def causal(batch, length):
    return dict(input_ids=tokens(batch, length), labels=labels(batch, length))


def pairs_of_sentences(batch, length):
    """For an encoder and a decoder, of different lengths. All places have labels: what has none
    is padding in the decoder, whose embedding gets no gradient by definition."""
    return masked(batch, length) | dict(labels=tokens(batch, length - 4))


def model(kind, config):
    config.use_cache = False
    return kind(config)


def encoder(name, model_name, p_names=(), **options):
    """`p_names`: what the configuration calls its dropout probabilities."""
    return language_model(name, f"{model_name}ForMaskedLM", f"{model_name}Config", masked, p_names,
                          options)  # fmt: skip


def decoder(name, model_name, p_names=(), kind="ForCausalLM", sizes=LENGTHS, **options):
    return language_model(name, f"{model_name}{kind}", f"{model_name}Config", causal, p_names,
                          options, sizes)  # fmt: skip


def language_model(name, kind, config, inputs, p_names, options, sizes=LENGTHS, **facts):
    def build(dropout):
        chosen = getattr(hf, config)(**options, **dict.fromkeys(p_names, dropout))
        return model(getattr(hf, kind), chosen)

    return Entry(name, build, inputs, sizes, has_dropout=bool(p_names), **facts)


BERT_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
GROUPED = SMALL | dict(num_key_value_heads=2)
# Its padding is a word of ours otherwise, whose embedding has no gradient by definition.
FNET = {name: SMALL[name] for name in SMALL if name != "num_attention_heads"} | dict(pad_token_id=0)
SHORT = dict(vocab_size=VOCABULARY, d_model=32)
BART = SHORT | dict(
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
)

ENTRIES = [
    encoder("bert", "Bert", BERT_DROPOUTS, **SMALL),
    encoder("roberta", "Roberta", BERT_DROPOUTS, pad_token_id=1, **SMALL),
    encoder(
        "distilbert",
        "DistilBert",
        ("dropout", "attention_dropout"),
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=64,
    ),
    encoder("albert", "Albert", BERT_DROPOUTS, embedding_size=16, **SMALL),
    encoder("electra", "Electra", BERT_DROPOUTS, embedding_size=16, **SMALL),
    encoder(
        "deberta_v2",
        "DebertaV2",
        BERT_DROPOUTS,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        **SMALL,
    ),
    language_model(
        "fnet", "FNetForMaskedLM", "FNetConfig", causal, ("hidden_dropout_prob",), FNET, ONE_LENGTH
    ),
    decoder(
        "gpt2",
        "GPT2",
        ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        "LMHeadModel",
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
    ),
    decoder(
        "gpt_neo",
        "GPTNeo",
        ("resid_dropout", "embed_dropout", "attention_dropout"),
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        num_heads=4,
        max_position_embeddings=64,
        window_size=8,
    ),
    decoder(
        "opt",
        "OPT",
        ("dropout", "attention_dropout"),
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        layerdrop=0.0,
    ),
    decoder("llama", "Llama", ("attention_dropout",), **GROUPED),
    decoder("mistral", "Mistral", ("attention_dropout",), sliding_window=8, **GROUPED),
    decoder("qwen2", "Qwen2", ("attention_dropout",), **GROUPED),
    decoder("gemma", "Gemma", ("attention_dropout",), head_dim=8, **GROUPED),
    decoder(
        "mixtral", "Mixtral", ("attention_dropout",), num_local_experts=4,
        num_experts_per_tok=2, **GROUPED,
    ),
    decoder("phi", "Phi", ("resid_pdrop", "embd_pdrop", "attention_dropout"), **GROUPED),
    decoder(
        "mamba",
        "Mamba",
        sizes=ONE_LENGTH,
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=4,
        time_step_rank=4,
    ),
    language_model(
        "t5",
        "T5ForConditionalGeneration",
        "T5Config",
        pairs_of_sentences,
        ("dropout_rate",),
        SHORT | dict(d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
    ),
    language_model(
        "bart",
        "BartForConditionalGeneration",
        "BartConfig",
        pairs_of_sentences,
        ("dropout", "attention_dropout", "activation_dropout"),
        BART | dict(max_position_embeddings=64, encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    ),
    # Its windows overlap: as_strided of what is permuted. How many there are is a quotient of
    # tensors (torch.div of two sizes), at which Dynamo breaks where sizes are symbols: 24 graphs,
    # 31 after a second size, with any backend.
    language_model(
        "led",
        "LEDForConditionalGeneration",
        "LEDConfig",
        pairs_of_sentences,
        ("dropout", "attention_dropout", "activation_dropout"),
        BART
        | dict(
            attention_window=8,
            max_encoder_position_embeddings=64,
            max_decoder_position_embeddings=64,
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
        ),
        is_dynamic=False,
    ),
]
