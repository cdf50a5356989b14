"""Samples that every op gets, made from its own: other strides, no elements, no dimensions, NaN and
infinities. What eager refuses must be refused, or is counted; see op_check."""

import dataclasses

import samples as sample_language
from samples import FLOATS, WITHOUT_EAGER, Spec, contiguous_strides

# Kinds that are not made of an op, and why. `differs`: a defect that is still there.
LEFT_OUT = {
    "empty": {
        "eager divides by zero, which ends the process": (
            "aten._weight_norm",
            "aten._weight_norm_interface",
            "aten._weight_norm_interface_backward",
            "aten._native_batch_norm_legit_no_training",
            "aten.native_batch_norm_backward",
        ),
        "eager's gradient ends the process": ("aten.pdist",),
        "eager gives memory that nothing wrote": (
            "aten.multi_margin_loss",
            "aten.multilabel_margin_loss",
            "aten.multilabel_margin_loss_forward",
        ),
        "eager returns a mask of floats": ("aten.native_dropout",),
        "eager returns it as it is, of other sizes": ("aten.pixel_unshuffle",),
        "there is nothing to index; eager looks at no index that is masked": (
            "aten._unsafe_masked_index",
            "aten._unsafe_masked_index_put_accumulate",
        ),
    },
    "scalar": {
        "eager ends the process": ("aten._chunk_cat",),
        "eager writes the scalar to all places; we say that sizes differ": (
            "aten.diagonal_backward",
            "aten.select_backward",
            "aten.slice_backward",
            "aten.unfold_backward",
        ),
        "eager has rules for no dimensions that its documentation has not": (
            "aten._fused_rms_norm",
            "aten.linalg_vecdot",
            "aten.multilabel_margin_loss_forward",
            "aten.triplet_margin_loss",
        ),
        "the buffer does not belong to the operand": ("aten.log_sigmoid_backward",),
    },
    "strided": {
        "eager's kernel reads memory in order, whatever the strides are": (
            "aten.native_group_norm_backward",
            "aten._weight_norm_interface",
            "aten._scaled_dot_product_flash_attention_for_cpu",
            "aten._scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        "eager's side results depend on strides": (
            "aten._embedding_bag",
            "aten._embedding_bag_forward_only",
            "aten.embedding_bag",
        ),
        "its own samples say which strides are accepted": (
            "aten.as_strided",
            "aten.as_strided_copy",
        ),
    },
    "special": {
        "eager's vectors and the elements behind them differ at NaN": (
            "aten.elu_backward",
            "aten.hardshrink_backward",
            "aten.hardswish_backward",
            "aten.hardtanh_backward",
            "aten.softshrink_backward",
        ),
        "infinities less infinities: NaN or not depends on the order of terms, or on 0 times one": (
            "aten._convolution",
            "aten._convolution.deprecated",
            "aten._convolution_mode",
            "aten.conv1d",
            "aten.conv1d.padding",
            "aten.conv2d",
            "aten.conv2d.padding",
            "aten.conv3d.padding",
            "aten.conv_transpose2d.input",
            "aten.convolution",
            "aten.convolution_backward",
            "aten._upsample_bicubic2d_aa",
            "aten._upsample_bicubic2d_aa.vec",
            "aten._upsample_bicubic2d_aa_backward",
            "aten._upsample_bilinear2d_aa",
            "aten._upsample_bilinear2d_aa.vec",
            "aten._upsample_bilinear2d_aa_backward",
            "aten.upsample_bilinear2d_backward",
            "aten.upsample_trilinear3d_backward",
            "aten._euclidean_dist",
            "aten.trapz.dx",
        ),
        "eager's means are running ones, NaN from the first infinity on": (
            "aten.layer_norm",
            "aten.native_layer_norm",
            "aten.native_group_norm",
            "aten.native_group_norm_backward",
            "aten.std_mean.dim",
            "aten.var_mean.correction",
            "aten.var_mean.dim",
        ),
        "places that are NaN: eager casts them to integers": (
            "aten.grid_sampler_2d_backward",
            "aten.grid_sampler_3d",
            "aten.grid_sampler_3d_backward",
        ),
        "differs: one row that is not finite makes NaN of all, in eager of those behind it": (
            "aten.linalg_solve_triangular",
        ),
        "differs: second derivatives at NaN and infinities, which only a gradient op's own has": (
            "aten._prelu_kernel_backward",
            "aten.gelu_backward",
            "aten.glu_backward",
            "aten.huber_loss_backward",
            "aten.smooth_l1_loss_backward",
        ),
        "eager's gradient at -inf is NaN, ours is 0: it has no share in the sum": (
            "aten.logcumsumexp",
        ),
        "differs: gradients at NaN and infinities": (
            "aten.multilabel_margin_loss_forward",
            "aten.prod.dim_int",
        ),
        "differs: rows of NaN, of which eager's attention makes zeros": (
            "aten._scaled_dot_product_flash_attention_for_cpu",
        ),
    },
}


def is_left_out(op, kind):
    return any(op in names for names in LEFT_OUT.get(kind.__name__, {}).values())


def strided(spec, _):
    """Transposed, or every other element."""
    sizes = spec.sizes
    if spec.strides is not None or not sizes:
        return spec
    strides = [2]
    if len(sizes) > 1:
        *outer, row, column = sizes
        strides = contiguous_strides([*outer, column, row])
        strides[-2:] = reversed(strides[-2:])
    return dataclasses.replace(spec, strides=strides)


def empty(spec, first):
    """The first size of the first operand is 0, in all operands that begin with it."""
    if not spec.sizes or not first.sizes or spec.sizes[0] != first.sizes[0]:
        return spec
    return dataclasses.replace(spec, sizes=[0, *spec.sizes[1:]], strides=None)


def scalar(spec, _):
    """No dimensions."""
    return dataclasses.replace(spec, sizes=[], strides=None)


def special(spec, _):
    """NaN, infinities, zeros of both signs."""
    if spec.dtype not in FLOATS or spec.fill != "normal":
        return spec
    return dataclasses.replace(spec, fill="special")


KINDS = {strided: ["f32"], empty: ["f32"], scalar: ["f32"], special: ["f32", "bf16"]}


def with_specs(sample, derive):
    """The sample with every tensor made by `derive`."""
    first = sample.specs()[0]

    def value_of(value):
        if isinstance(value, list):
            return [value_of(item) for item in value]
        return derive(value, first) if isinstance(value, Spec) else value

    named = {key: value_of(value) for key, value in sample.named.items()}
    return sample_language.Sample([value_of(value) for value in sample.positional], named)


def is_of(kind, specs):
    """Whether a sample is of that kind by itself."""
    if kind is strided:
        return any(spec.strides is not None for spec in specs)
    if kind is empty:
        return any(0 in spec.sizes for spec in specs)
    if kind is scalar:
        return any(not spec.sizes for spec in specs)
    return any(spec.fill == "special" for spec in specs)


def kinds_of(op):
    """Of its own samples."""
    specs = [sample_language.parse_sample(text, "f32").specs() for text in op.samples]
    return {kind for kind in KINDS if any(is_of(kind, each) for each in specs)}


def of(op):
    """(text, dtype, kind) of what is made of an op's first sample; the kinds it has are not."""
    texts = [text for text in op.samples if sample_language.parse_sample(text, "f32").specs()]
    if not texts or op.name.startswith(WITHOUT_EAGER):
        return
    own = kinds_of(op)
    known = sample_language.SETS[op.sample_dtypes] if "$" in texts[0] else ["f32"]
    for kind, dtypes in KINDS.items():
        if kind in own or is_left_out(op.name, kind):
            continue
        for dtype in dtypes:
            sample = sample_language.parse_sample(texts[0], dtype)
            if dtype in known and with_specs(sample, kind) != sample:
                yield texts[0], dtype, kind
