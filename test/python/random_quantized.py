"""Random quantized graphs as texts: convolutions, transposed ones, linear layers, products of two
activations, sums, activations, pools, cats, means, and quantizations between them, static and of
each call.

Every quantized value is a result too, so each is checked against what its own operands say: the
step is computed in f64 from the bytes that the program gave for them, v is the number before
rounding, and the byte must be v rounded, where v is no nearer to a tie than f32 can tell. So an
error is found where it is made, and none is carried on.
"""

import random

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed
import torch.nn.functional as F

import tandem

Q = torch.ops.quantized_decomposed
RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
NAMES = {torch.uint8: "u8", torch.int8: "i8", torch.float32: "f32", torch.int64: "i64"}
TIE = 4e-3  # of a step: f32 sums of some 500 steps, rounded a few times


def type_of(tensor):
    return f"{NAMES[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]"


class Quantized:
    """A value of the graph: bytes `name`, their scale and zero point (or names of tensors), and
    what they are in the reference while the graph is made."""

    def __init__(self, name, q, scale, zero, bounds):
        self.name, self.q, self.scale, self.zero, self.bounds = name, q, scale, zero, bounds

    @property
    def arguments(self):
        low, high = self.bounds
        return f"{self.scale}, {self.zero}, {low}, {high}, {NAMES[self.q.dtype]}"

    def real(self, q):
        return (q.double() - self.zero) * self.scale


class Weight:
    def __init__(self, name, q, scales, zeros, axis):
        self.name, self.q, self.scales, self.zeros, self.axis = name, q, scales, zeros, axis

    def real(self):
        each = [1] * self.q.dim()
        each[self.axis] = -1
        return (self.q.double() - self.zeros.view(each)) * self.scales.double().view(each)


class RandomQuantized:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.lines, self.inputs, self.constants = [], {}, {}
        self.values = []  # Quantized
        self.checks = []  # (result, function of the results so far -> v in f64, bounds or None)
        self.results = []
        self.declared, self.count = [], -1
        self.begin()
        for _ in range(self.rng.randint(1, 5)):
            self.rng.choice(self.possible())()
        self.end()

    # --- text

    def name(self, prefix="v"):
        self.count += 1
        return f"%{prefix}{self.count}"

    def line(self, call):
        name = self.name()
        self.lines.append(f"{name} = {call}")
        return name

    def constant(self, tensor, marks=""):
        name = self.name("c")
        self.constants[name[1:]] = tensor
        self.declared.append(f'{name}: {type_of(tensor)} {{param "{name[1:]}" constant{marks}}}')
        return name

    def text(self, results):
        body = "".join(f"  {line}\n" for line in self.lines)
        given = ", ".join(self.declared)
        return f"graph @random({given}) {{\n{body}  return {', '.join(results)}\n}}"

    # --- values

    def begin(self):
        rng = self.rng
        is_image = rng.random() < 0.65
        if is_image:
            places = rng.choices(range(3, 10), k=2)
            sizes = (rng.randint(1, 2), rng.choice([1, 3, 4, 6, 8]), *places)
        else:
            matrix = (rng.randint(1, 9), rng.randint(1, 40))
            sizes = rng.choice([matrix, (2, 3, rng.randint(1, 20))])
        x = torch.randn(sizes, generator=self.generator)
        name = self.name("x")
        self.inputs[name[1:]] = x
        self.declared.append(f"{name}: {type_of(x)}")
        self.quantize(name, lambda _: x.double(), x.double())

    def quantize(self, name, exact, real):
        """Writes the quantization of float value `name`; `real` is it while the graph is made."""
        rng = self.rng
        dtype = rng.choice([torch.uint8, torch.uint8, torch.int8])
        low, high = RANGES[dtype]
        if rng.random() < 0.15:
            low, high = low + rng.randint(0, 40), high - rng.randint(1, 120)
        least, most = min(real.min().item(), 0.0), max(real.max().item(), 0.0)
        span = max(most - least, 1e-3) * rng.choice([1.0, 1.0, 0.6, 2.0])
        scale = float(torch.tensor(span / (high - low)))
        zero = min(max(round(low - least / scale), low), high)
        if rng.random() < 0.1:
            zero = rng.choice([low, high])
        value = Quantized("", None, scale, zero, (low, high))
        result = self.line(
            f"quantized_decomposed.quantize_per_tensor({name}, {scale!r}, {zero}, {low}, {high}, "
            f"{NAMES[dtype]})"
        )
        value.name = result
        value.q = (real / scale).round().add(zero).clamp(low, high).to(dtype)
        self.results.append(result)
        self.values.append(value)
        self.checks.append((result, lambda got: exact(got) / scale + zero, (low, high)))

    def dequantized(self, value):
        call = "quantized_decomposed.dequantize_per_tensor"
        return self.line(f"{call}({value.name}, {value.arguments})")

    def pick(self, fits):
        """The latest value most often."""
        possible = [value for value in self.values if fits(value.q)]
        if not possible:
            return None
        return possible[-1] if self.rng.random() < 0.75 else self.rng.choice(possible)

    def weight(self, sizes, axis):
        rng = self.rng
        dtype = torch.int8 if rng.random() < 0.85 else torch.uint8
        low, high = RANGES[dtype]
        q = torch.randint(low, high + 1, sizes, dtype=dtype, generator=self.generator)
        count = sizes[axis]
        scales = torch.rand(count, generator=self.generator) * 0.02 + 1e-3
        has_zeros = dtype == torch.uint8 or rng.random() < 0.15
        zeros = torch.randint(-9, 9, (count,), generator=self.generator)
        zeros = zeros + (128 if dtype == torch.uint8 else 0)
        zeros = zeros if has_zeros else torch.zeros_like(zeros)
        names = [self.constant(q), self.constant(scales)]
        names.append(self.constant(zeros, "" if has_zeros else " zeros"))
        name = self.line(
            f"quantized_decomposed.dequantize_per_channel({', '.join(names)}, {axis}, {low}, "
            f"{high}, {NAMES[dtype]})"
        )
        return Weight(name, q, scales, zeros, axis)

    def bias(self, count):
        if self.rng.random() < 0.4:
            return "none", None
        bias = torch.randn(count, generator=self.generator)
        return self.constant(bias), bias.double()

    # --- what follows a product, up to its quantization

    def finish(self, name, exact, real):
        """`exact`: of the results so far, in f64."""
        for _ in range(self.rng.randint(0, 2)):
            name, exact, real = self.rng.choice([self.activated, self.added])(name, exact, real)
        self.quantize(name, exact, real)

    def activated(self, name, exact, real):
        call, function = self.rng.choice(
            [
                ("aten.relu({})", F.relu),
                ("aten.clamp({}, 0, 6)", lambda x: x.clamp(0, 6)),
                ("aten.clamp({}, -1.5, 1.0)", lambda x: x.clamp(-1.5, 1.0)),
                ("aten.hardswish({})", F.hardswish),
                ("aten.silu({})", F.silu),
                ("aten.leaky_relu({}, 0.125)", lambda x: F.leaky_relu(x, 0.125)),
                ("aten.tanh({})", torch.tanh),
            ]
        )
        return self.line(call.format(name)), lambda got: function(exact(got)), function(real)

    def added(self, name, exact, real):
        other = self.pick(lambda q: q.shape == real.shape)
        if other is None:
            return name, exact, real
        alpha = self.rng.choice([1, 1, 1, 2, -0.5])
        given = self.dequantized(other)
        pair = (name, given) if self.rng.random() < 0.5 else (given, name)
        is_first = pair[0] == name

        def add(x, y):
            return x + alpha * y if is_first else y + alpha * x

        line = self.line(f"aten.add.Tensor({pair[0]}, {pair[1]}, alpha={alpha})")
        now = add(real, other.real(other.q))
        return line, lambda got: add(exact(got), other.real(got[other.name])), now

    def follow(self, call, function, *operands):
        """A step of dequantized operands that is quantized behind; `call` has a place for each."""
        line = self.line(call.format(*(self.dequantized(value) for value in operands)))
        exact = self.exact_of(function, operands)
        self.finish(line, exact, function(*(value.real(value.q) for value in operands)))

    @staticmethod
    def exact_of(function, operands):
        return lambda got: function(*(value.real(got[value.name]) for value in operands))

    # --- steps

    def possible(self):
        steps = [self.requantize]
        shapes = [value.q.shape for value in self.values]
        if any(len(shape) == 4 for shape in shapes):
            steps += [self.convolution] * 3 + [self.transposed, self.pool, self.mean, self.flatten]
            steps.append(self.dynamic_convolution)
        if any(len(shape) < 4 for shape in shapes):
            steps += [self.linear] * 3 + [self.product, self.dynamic]
        return [*steps, self.cat]

    def convolution(self):
        value = self.pick(lambda q: q.dim() == 4)
        call, function = self.random_convolution(value)
        self.follow(call, function, value)

    def dynamic_convolution(self):
        value = self.pick(lambda q: q.dim() == 4)
        call, function = self.random_convolution(value)
        self.follow_dynamic(call, function, value, is_token=False)

    def random_convolution(self, value):
        """A call with a place for its image, and what it computes."""
        rng, channels = self.rng, value.q.shape[1]
        groups = rng.choice([1, 1, 1, channels, 2 if channels % 2 == 0 else 1])
        results = groups * rng.choice([1, 2, 3, 5]) if groups > 1 else rng.randint(1, 20)
        kernel = [rng.randint(1, min(3, size)) for size in value.q.shape[2:]]
        options = dict(
            stride=rng.randint(1, 2), padding=[rng.randint(0, size // 2) for size in kernel]
        )
        weight = self.weight((results, channels // groups, *kernel), 0)
        name, bias = self.bias(results)
        stride, padding = [options["stride"]] * 2, options["padding"]
        call = f"aten.convolution({{}}, {weight.name}, {name}, {stride}, {padding}, [1, 1], "
        call += f"false, [0, 0], {groups})"
        return call, lambda x: F.conv2d(x, weight.real(), bias, groups=groups, **options)

    def transposed(self):
        value = self.pick(lambda q: q.dim() == 4)
        if max(value.q.shape[2:]) > 12:
            return
        rng, channels = self.rng, value.q.shape[1]
        groups = rng.choice([1, 1, channels])
        stride, kernel = rng.randint(1, 3), rng.randint(1, 4)
        padding = rng.randint(0, (kernel - 1) // 2)
        extra = rng.randint(0, stride - 1)
        each = rng.randint(1, 5)
        weight = self.weight((channels, each, kernel, kernel), 1)
        name, bias = self.bias(each * groups)
        call = f"aten.convolution({{}}, {weight.name}, {name}, {[stride] * 2}, {[padding] * 2}, "
        call += f"[1, 1], true, {[extra] * 2}, {groups})"
        options = dict(stride=stride, padding=padding, output_padding=extra, groups=groups)
        self.follow(call, lambda x: F.conv_transpose2d(x, weight.real(), bias, **options), value)

    def pool(self):
        value = self.pick(lambda q: q.dim() == 4)
        size = self.rng.randint(1, min(3, *value.q.shape[2:]))
        name = self.rng.choice(["max_pool2d", "avg_pool2d"])
        function = getattr(F, name)
        self.follow(f"aten.{name}({{}}, [{size}, {size}])", lambda x: function(x, size), value)

    def mean(self):
        value = self.pick(lambda q: q.dim() == 4)
        self.follow("aten.mean.dim({}, [2, 3])", lambda x: x.mean((2, 3)), value)

    def flatten(self):
        value = self.pick(lambda q: q.dim() == 4)
        sizes = [value.q.shape[0], value.q[0].numel()]
        self.follow(f"aten.reshape({{}}, {sizes})", lambda x: x.reshape(sizes), value)

    def linear(self):
        value = self.pick(lambda q: q.dim() in (2, 3))
        call, function = self.random_linear(value)
        self.follow(call, function, value)

    def random_linear(self, value):
        terms, results = value.q.shape[-1], self.rng.randint(1, 40)
        weight = self.weight((results, terms), 0)
        name, bias = self.bias(results)
        call = f"aten.linear({{}}, {weight.name}, {name})"
        return call, lambda x: F.linear(x, weight.real(), bias)

    def product(self):
        """Of a value and itself, transposed."""
        value = self.pick(lambda q: q.dim() in (2, 3))
        turned = f"aten.transpose.int({self.dequantized(value)}, -2, -1)"
        call = f"aten.matmul({{}}, {self.line(turned)})"
        self.follow(call, lambda x: x @ x.transpose(-2, -1), value)

    def dynamic(self):
        value = self.pick(lambda q: q.dim() in (2, 3))
        call, function = self.random_linear(value)
        self.follow_dynamic(call, function, value, is_token=self.rng.random() < 0.5)

    def follow_dynamic(self, call, function, value, is_token):
        """Scales of each call, for all or for each token, in front of a layer."""
        low, high = value.bounds
        x = self.dequantized(value)

        def dequantize(q):
            return Q.dequantize_per_tensor(q, value.scale, value.zero, low, high, q.dtype)

        parameters = f"{self.name()}, {self.name()}"
        scale, zero = parameters.split(", ")
        if is_token:
            self.lines.append(
                f"{parameters} = quantized_decomposed.choose_qparams_per_token_asymmetric({x}, i8)"
            )
            kind, bounds = "token", "-128, 127, i8"
        else:
            self.lines.append(
                f"{parameters} = quantized_decomposed.choose_qparams.tensor({x}, 0, 255, 1e-5, u8)"
            )
            kind, bounds = "tensor.tensor", "0, 255, u8"
        q = self.line(f"quantized_decomposed.quantize_per_{kind}({x}, {scale}, {zero}, {bounds})")
        wanted = ", f32" if is_token else ""
        y = self.line(
            f"quantized_decomposed.dequantize_per_{kind}({q}, {scale}, {zero}, {bounds}{wanted})"
        )

        def again(q):
            x = dequantize(q)
            if is_token:
                scale, zero = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
                q = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
            else:
                scale, zero = Q.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
                q = Q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            return (q.double() - zero.double()) * scale.double()

        line = self.line(call.format(y))
        self.finish(line, lambda got: function(again(got[value.name])), function(again(value.q)))

    def cat(self):
        value = self.pick(lambda q: q.dim() >= 2)
        if value.q.shape[1] > 40:
            return
        self.follow("aten.cat([{}, {}], 1)", lambda x, y: torch.cat([x, y], 1), value, value)

    def requantize(self):
        value = self.pick(lambda q: True)
        self.follow("aten.alias({})", lambda x: x, value)

    def end(self):
        """The last value as floats, too."""
        value = self.values[-1]
        self.last = self.dequantized(value)
        self.checks.append((self.last, lambda got: value.real(got[value.name]), None))

    # --- the check

    def run(self, results, **options):
        executable = tandem.compile_text(self.text(results), **options)
        executable.bind_constants(self.constants)
        given = [self.inputs[name] for name in executable.inputs]
        return dict(zip(results, executable.run(given), strict=True))

    def check(self):
        names = [*self.results, self.last]
        got = self.run(names)
        for name, exact, bounds in self.checks:
            if bounds is None:
                torch.testing.assert_close(got[name].double(), exact(got), rtol=1e-6, atol=1e-30)
            else:
                self.check_bytes(name, got[name], exact(got), bounds)
        self.check_alone(got)

    def check_bytes(self, name, q, v, bounds):
        v = v.clamp(bounds[0] - 0.25, bounds[1] + 0.25)
        off = (q.double() - v).abs().max().item() if q.numel() else 0.0
        assert off <= 0.5 + TIE, f"{name}: {off} steps\n{self.text([name])}"

    def check_alone(self, got):
        """The last result alone: other kernels, and the interpreter, the same bits. Sums of floats
        are taken in the order of a kernel's loops, and machine code has series of its own for
        exponentials: where there are such, a number near a tie may be rounded otherwise."""
        text = self.text([self.last])
        [alone] = self.run([self.last]).values()
        if not any(word in text for word in ("aten.mean", "aten.avg_pool2d")):
            assert torch.equal(alone, got[self.last]), text
        [interpreted] = self.run([self.last], interpret=True).values()
        if not any(word in text for word in ("aten.tanh", "aten.silu")):
            assert torch.equal(interpreted, alone), text
