"""What is known of entries of PyTorch's op_db: how each is judged, and what was found once."""

# Entries whose results have no specified contents.
UNSPECIFIED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
               "new_empty_strided", "resize_", "resize_as_")  # fmt: skip
# Wrong or crashed before: lists of views, integer powers and divisions of lanes, pads that cut
# everything, positions at the edge, indices counted from the end, empty indices; views that no
# schema tells of, draws in place, bad weights.
FOUND = (
    "broadcast_tensors",
    "meshgrid.list_of_tensors",
    "nn.functional.mse_loss",
    "__rpow__",
    "nn.functional.avg_pool1d",
    "nn.functional.pad.replicate_negative",
    "grid_sampler_2d",
    "take_along_dim",
    "gather",
    "normal.in_place",
    "cartesian_prod",
    "atleast_2d",
    "multinomial",
    "nn.functional.dropout",
)
# Refused, and run by torch where that is wanted: before, the attempt failed.
REFUSED = ("histogramdd", "sparse.mm.reduce", "resize_", "linalg.pinv", "equal", "linalg.lu")
# Entries that choose among equal elements: they get distinct ones, because eager's choice is not
# specified.
CHOOSING = ("sort", "argsort", "msort", "topk", "kthvalue")
# Gradients that eager has wrong, by entry and number of the input.
OTHER_GRADIENTS = {
    ("as_strided_scatter", 0): "eager's is non-zero where self was overwritten",
    ("as_strided_scatter", 4): "the derivative of that one, by the tangent",
}
# The same of reference inputs alone: the samples that `make opdb` takes are judged.
REFERENCE_GRADIENTS = {
    ("polar", 0): "eager's is that of |abs|, and 0 at 0",
    ("nn.functional.elu", 0): "at NaN eager's is NaN in whole registers, and not in what is left",
    ("nn.functional.celu", 0): "the same",
    ("nn.functional.selu", 0): "the same",
}
# Of tensors that lie otherwise: torch's fakes, by which results are laid, say other strides than
# eager's results have.
STRIDES_OF_FAKES = (
    "_batch_norm_with_update", "_native_batch_norm_legit", "copysign",
    "div.floor_rounding", "floor_divide", "native_batch_norm", "native_dropout_backward",
    "nn.functional.batch_norm", "nn.functional.interpolate.nearest",
    "nn.functional.interpolate.nearest-exact", "nn.functional.logsigmoid",
    "nn.functional.max_unpool2d", "nn.functional.max_unpool2d.grad",
    "nn.functional.upsample_nearest", "normal",
)  # fmt: skip
