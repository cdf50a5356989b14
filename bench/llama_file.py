"""The decoder of llama.py as a GGUF file, for llama.cpp: weights of 8 or 4 bits in blocks of 32
(Q8_0, Q4_0). They are random; layers repeat them, since only their bytes are read. Needs gguf and
llama_cpp."""

import os
import tempfile

import gguf
import llama_cpp
import numpy

TYPES = {
    "int8": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "int4": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}


def describe(writer, shape, file_type):
    writer.add_file_type(file_type)
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(5e5)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(shape.vocabulary)])
    writer.add_token_scores([0.0] * shape.vocabulary)
    writer.add_token_types([gguf.TokenType.NORMAL] * shape.vocabulary)


def matrices(shape):
    own, shared = shape.heads * shape.head, shape.kv_heads * shape.head
    yield "token_embd", shape.vocabulary, shape.width
    yield "output", shape.vocabulary, shape.width
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_q", own, shape.width
        yield f"blk.{layer}.attn_k", shared, shape.width
        yield f"blk.{layer}.attn_v", shared, shape.width
        yield f"blk.{layer}.attn_output", shape.width, own
        yield f"blk.{layer}.ffn_gate", shape.inner, shape.width
        yield f"blk.{layer}.ffn_up", shape.inner, shape.width
        yield f"blk.{layer}.ffn_down", shape.width, shape.inner


def norms(shape):
    yield "output_norm"
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_norm"
        yield f"blk.{layer}.ffn_norm"


def write(path, shape, weights):
    quantized, file_type = TYPES[weights]
    generator = numpy.random.default_rng(0)
    made = {}
    writer = gguf.GGUFWriter(path, "llama")
    describe(writer, shape, file_type)
    for name, rows, columns in matrices(shape):
        if (rows, columns) not in made:
            values = generator.normal(0, 0.02, (rows, columns)).astype(numpy.float32)
            made[rows, columns] = gguf.quants.quantize(values, quantized)
        writer.add_tensor(f"{name}.weight", made[rows, columns], raw_dtype=quantized)
    for name in norms(shape):
        writer.add_tensor(f"{name}.weight", numpy.ones(shape.width, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model_of(shape, weights, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        write(path, shape, weights)
        # Read, not mapped: the file goes, and pages are as those of the others.
        return llama_cpp.Llama(
            path, n_ctx=shape.positions, n_batch=512, n_threads=threads, n_threads_batch=threads,
            use_mmap=False, verbose=False,
        )
