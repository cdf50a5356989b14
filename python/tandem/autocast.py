"""What autocast does at a place: the 16-bit type of the region, or None."""

import torch

from tandem.fakes import dtype_name


def ambient_autocast():
    """Of the region that this is called in."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    return dtype_name(torch.get_autocast_dtype("cpu"))


def autocast_dtype(device_type, dtype=None, enabled=True, cache_enabled=None):
    """Of a region, as torch.amp.autocast takes its arguments."""
    del cache_enabled
    if device_type != "cpu" or not enabled:
        return None
    return dtype_name(dtype or torch.get_autocast_dtype("cpu"))
