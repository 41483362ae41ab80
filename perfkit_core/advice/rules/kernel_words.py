"""What does the name of a kernel say: does it multiply matrices, of which numbers, and with tensor cores?

Libraries write the instruction into the name: ``volta_sgemm_64x64_nt`` multiplies single precision on ordinary cores,
``ampere_fp16_s16816gemm_…`` half precision on tensor cores, ``Cijk_…_MI16x16x1_…`` with the matrix instruction of AMD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.advice.rules.device_time import kernels
from perfkit_core.analyses.devices.launched_for import operator_rows
from perfkit_core.analyses.once import once
from perfkit_core.trace import BoolArray, IntArray, Trace

UNKNOWN: Final = 0
HALF, SINGLE, OTHER = 1, 2, 3
"""Types of numbers: 16 bits, 32 bits, any other."""
TENSOR, PLAIN = 1, 2
"""What multiplies: tensor cores (matrix cores), or the ordinary ones."""

_MULTIPLIES: Final = re.compile(
    r"(?<!fb)gemm|cijk_|nvjet|cutlass(?!::(?:b?float|half)\w*_t)|xmma|convol|(?<![a-z])conv\d?d|[a-z]cudnn_|fprop|dgrad|wgrad|winograd|bwd_weight|bwd_data"
)
_CONVOLVES: Final = re.compile(
    r"conv(?!ert)|cudnn|fprop|dgrad|wgrad|winograd|bwd_weight|bwd_data|igemm_(?:fwd|bwd|wrw)_gtc"
)
_NEVER: Final = re.compile(
    r"gemv|gemmk1|flash|fmha|attention|attn|nhwc(?:to)nchw|nchw(?:to)nhwc|elementwise|splitkreduce|grouped_direct|depthwise"
    r"|reduce_kernel|softmax|embedding|batch_?norm|::bn_|layer_?norm|pool|offsetskernel|reducesplitk"
)
_TENSOR: Final = re.compile(
    r"tensorop|[hiq]mma|wmma|gmma|umma|tf32|nvjet|warpgroup|tensor\d+x\d+x\d+|[hsi](?:884|1688|8816|16816|161616|16832)"
    r"|xdl|gtcx|mfma|_mi\d+x\d+|_sm1\d\d"
)
_PLAIN: Final = re.compile(
    r"simt|ffma|hfma|[sh]gemm|[sh]cudnn|plicit_convolve|dgrad_engine|wgrad_alg|dgrad2d|wgrad2d|winograd|cijk_"
)
_TF32: Final = re.compile(r"tf32|s1688(?!\d)")
_HALF: Final = re.compile(
    r"half|[fh]p?16|bfloat16|hgemm|hcudnn|[hs]884|h1688|s16816|s161616|h16816|cijk_[a-z]+_[a-z]+_[bh]_?[bhs]"
)
_OTHER: Final = re.compile(r"double|f64|[^a-z][dcz]gemm|gcgemm|int8|i8816|e4m3|e5m2|fft")
_SINGLE: Final = re.compile(r"sgemm|scudnn|<float|f32f32|ffma|tf32|cijk_[a-z]+_[a-z]+_s_?b|s1688")


@dataclass(frozen=True, slots=True)
class Multiplying:
    """Kernels that multiply matrices, arrays of shape (found,): ``row``, ``operator`` (row of the innermost operator
    around the launch; -1: none), ``type``, ``unit``, whether it convolves, whether its name speaks of TF32."""

    row: IntArray
    operator: IntArray
    type: IntArray
    unit: IntArray
    convolves: BoolArray
    tf32: BoolArray


@once
def multiplying(trace: Trace) -> Multiplying:
    """The kernels of a trace that multiply matrices. The types that the operator recorded count more than the name."""
    names, rows = trace.codes("name"), kernels(trace)
    texts = [name.lower() for name in names.values]
    found = names.lookup(np.array([multiplies(text) for text in texts], np.bool_), False)[rows]
    rows = rows[found]
    operator = operator_rows(trace)[rows]
    told = _types_of_operators(trace)
    types = np.where(operator >= 0, told[operator], UNKNOWN) if len(told) else np.zeros(len(rows), np.int64)
    named = names.lookup(np.array([number_type(text) for text in texts], np.int64), UNKNOWN)[rows]
    return Multiplying(
        rows,
        operator,
        np.where(types == UNKNOWN, named, types),
        names.lookup(np.array([unit(text) for text in texts], np.int64), UNKNOWN)[rows],
        names.lookup(np.array([bool(_CONVOLVES.search(text)) for text in texts], np.bool_), False)[rows],
        names.lookup(np.array([bool(_TF32.search(text)) for text in texts], np.bool_), False)[rows],
    )


def multiplies(name: str) -> bool:
    """Whether a kernel of this name (lower case) multiplies matrices or convolves, other than with a vector or for each
    channel alone, where tensor cores are of no use."""
    return bool(_MULTIPLIES.search(name)) and not _NEVER.search(name)


def unit(name: str) -> int:
    """TENSOR, PLAIN or UNKNOWN, for the name (lower case) of a kernel that multiplies matrices."""
    if _TENSOR.search(name):
        return TENSOR
    return PLAIN if _PLAIN.search(name) else UNKNOWN


def number_type(name: str) -> int:
    """HALF, SINGLE, OTHER or UNKNOWN, for the name (lower case) of a kernel that multiplies matrices."""
    for type_, words in ((HALF, _HALF), (OTHER, _OTHER), (SINGLE, _SINGLE)):
        if words.search(name):
            return type_
    return UNKNOWN


def _types_of_operators(trace: Trace) -> npt.NDArray[np.int64]:
    dtypes = trace.codes("dtypes")
    return dtypes.lookup(np.array([type_of_inputs(text) for text in dtypes.values], np.int64), UNKNOWN)


def type_of_inputs(dtypes: str) -> int:
    """HALF, SINGLE, OTHER or UNKNOWN: what the first two tensors among the inputs are, given the recorded types as JSON
    text."""
    first = _TENSORS.findall(dtypes.lower())[:2]
    if len(first) < 2:
        return UNKNOWN
    if all(one in ("half", "float16", "bfloat16") for one in first):
        return HALF
    return SINGLE if all(one in ("float", "float32") for one in first) else OTHER


_TENSORS: Final = re.compile(r'"[a-z0-9_:.]*?(half|b?float\d*|double|complex\w*|u?int8|signed char|float8\w*)"')
