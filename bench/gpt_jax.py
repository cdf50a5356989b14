"""The GPT of examples/gpt.cc in JAX, its whole training step one XLA program."""

import functools

import gpt_data
import jax
import jax.numpy as jnp


def dropout(x, p, key):
    if p == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0)


def layer_norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p[name + ".weight"] + p[name + ".bias"]


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def attention(p, name, x, config, key):
    batch, length, width = x.shape
    qkv = linear(p, name + ".project_in", x).reshape(batch, length, 3, config.heads, -1)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / (width // config.heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    weights = dropout(jax.nn.softmax(scores, -1), config.dropout, key)
    return linear(p, name + ".project_out", (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape))


def block(p, name, x, config, key):
    keys = jax.random.split(key, 3)
    mixed = attention(p, name + ".attention", layer_norm(p, name + ".norm1", x), config, keys[0])
    x = x + dropout(mixed, config.dropout, keys[1])
    hidden = jax.nn.gelu(
        linear(p, name + ".up", layer_norm(p, name + ".norm2", x)), approximate=True
    )
    return x + dropout(linear(p, name + ".down", hidden), config.dropout, keys[2])


def loss_of(p, tokens, targets, config, key):
    keys = jax.random.split(key, config.layers + 1)
    x = dropout(p["token.weight"][tokens] + p["position.weight"], config.dropout, keys[0])
    for i in range(config.layers):
        x = block(p, f"blocks.{i}", x, config, keys[i + 1])
    logits = layer_norm(p, "norm", x) @ p["head.weight"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def adamw(parameter, gradient, mean, square, number):
    parameter = parameter * (1 - gpt_data.RATE * gpt_data.DECAY)
    beta1, beta2 = gpt_data.BETAS
    mean = beta1 * mean + (1 - beta1) * gradient
    square = beta2 * square + (1 - beta2) * gradient * gradient
    root = jnp.sqrt(square / (1 - beta2**number)) + gpt_data.EPSILON
    return parameter - gpt_data.RATE / (1 - beta1**number) * mean / root, mean, square


@functools.partial(jax.jit, static_argnums=4, donate_argnums=(0, 1))
def train(p, state, tokens, targets, config):
    number = state["step"] + 1
    key = jax.random.fold_in(jax.random.key(0, impl="rbg"), state["step"])
    loss, gradients = jax.value_and_grad(loss_of)(p, tokens, targets, config, key)
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    factor = jnp.minimum(1.0, gpt_data.CLIP / (norm + 1e-6))
    new = {
        name: adamw(p[name], gradients[name] * factor, *state["moments"][name], number)
        for name in p
    }
    moments = {name: values[1:] for name, values in new.items()}
    return (
        loss,
        {name: values[0] for name, values in new.items()},
        {"step": number, "moments": moments},
    )


def training_step(config, arrays, _):
    """A function that trains one step and returns the loss."""
    held = {"p": {name: jnp.array(array) for name, array in arrays.items()}}
    zeros = {name: (jnp.zeros_like(v), jnp.zeros_like(v)) for name, v in held["p"].items()}
    held["state"] = {"step": jnp.int32(0), "moments": zeros}
    tokens, targets = (jnp.array(array, jnp.int32) for array in gpt_data.batches(config))

    def step():
        loss, held["p"], held["state"] = train(held["p"], held["state"], tokens, targets, config)
        return float(loss)

    return step
