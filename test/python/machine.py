"""What this processor can run, within what TANDEM_ISA allows: a run held to AVX2 stays there."""

import os

import tandem
from graphs import graph_text


def _has_avx512():
    with open("/proc/cpuinfo") as file:
        flags = next(line for line in file if line.startswith("flags")).split()
    return {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= set(flags)


IS_HELD_TO_AVX2 = os.environ.get("TANDEM_ISA") == "avx2"
HAS_AVX512 = _has_avx512() and not IS_HELD_TO_AVX2
ISAS = ["avx2", "avx512"] if HAS_AVX512 else ["avx2"]
# oneDNN has layouts of its own for weights in f32 with AVX-512 alone.
PACKS_F32 = HAS_AVX512 and os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in ("", "ALL")



def _is_zen4():
    with open("/proc/cpuinfo") as file:
        return "AuthenticAMD" in file.read() and _has_avx512()


# Rows from which on products are loops (base/tuning.h): AMD's processors with AVX-512 are Zen 4 and
# later, held to AVX2 or not.
IS_ZEN4 = _is_zen4()
FEWEST_ROWS = 8 if IS_ZEN4 else 32
FEWEST_PACKED_ROWS = 4 if IS_ZEN4 else 32

# Of a core; what a target says where the system does not tell. Python has no name for glibc's
# _SC_LEVEL2_CACHE_SIZE.
L2_BYTES = os.sysconf(191) or 1 << 20


def _has_feature(name):
    text = graph_text("%x: f32[4]", ["%r = aten.exp(%x)"], "%r")
    return f"+{name}," in tandem.compile_text(text, report=True).report


def has_tiles():
    """Whether kernels may use tile registers for bf16: the system can refuse those."""
    return _has_feature("amx-bf16")


def multiplies_bf16():
    """Whether loops sum products of bf16 by instructions for them."""
    return has_tiles() or _has_feature("avx512bf16")


def multiplies_bytes():
    """Whether one instruction sums products of bytes; else factors are widened to i16 before."""
    return _has_feature("avx512vnni") or _has_feature("avxvnni")
