"""Find the kernels that multiply matrices, their number formats and hardware units, and the tensor cores of devices.

Libraries put the instruction into the name of a kernel:

- ``volta_sgemm_64x64_nt``: single precision on vector units
- ``ampere_fp16_s16816gemm_…``: half precision on tensor cores
- ``Cijk_…_MI16x16x1_…``: the matrix instruction of AMD"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfkit_core.advice.operators import kernels
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import Text, message
from perfkit_core.plugins.flops.peaks import peaks_of
from perfkit_core.replay.transforms import Quantity, Scale
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators.calls import operator_rows

UNKNOWN: Final = 0
HALF, SINGLE, OTHER = 1, 2, 3
"""Number formats: 16 bits, 32 bits, and all other formats."""
TENSOR, PLAIN = 1, 2
"""Hardware units that multiply: tensor cores (AMD: matrix cores), and vector units (CUDA cores)."""

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
_TENSORS: Final = re.compile(r'"[a-z0-9_:.]*?(half|b?float\d*|double|complex\w*|u?int8|signed char|float8\w*)"')
"""The recorded type of a tensor, in lower case."""
_NAMES: Final = 3
_NAME_LENGTH: Final = 90
"""The evidence contains up to ``_NAMES`` kernel names, each cut to ``_NAME_LENGTH`` characters."""
_TENSOR_CORES_MAJOR, _TF32_MAJOR = 7, 8
"""First major compute capability with tensor cores, and the first whose tensor cores support TF32 and bfloat16. Source:
CUDA C++ Programming Guide, table of features by compute capability."""
_WARP: Final = 32
"""Threads per warp on CUDA devices. Other vendors' devices, whose compute capabilities look similar, have 64."""
_NO_TENSOR_CORES: Final = re.compile(r"GTX 16")
"""Devices of compute capability 7.5 without tensor cores."""
_MATRIX_CORES: Final = re.compile(r"Instinct MI([1-9]\d\d)")
"""AMD devices with matrix cores, from MI100 on. From MI200 on, bfloat16 is as fast as float16. Source: ISA guides."""
_MI200: Final = 200
_BY_PEAKS: Final = message("estimate: at best the ratio of the device's peak rates; less for small products")


@dataclass(frozen=True, slots=True)
class MatrixKernels:
    """Kernels that multiply matrices. All arrays have the shape (kernels,)."""

    row: IntArray
    operator: IntArray  # row of the innermost operator around the launch; -1 if none
    type: IntArray  # number format: HALF, SINGLE, OTHER or UNKNOWN
    unit: IntArray  # hardware unit: TENSOR, PLAIN or UNKNOWN
    convolves: BoolArray  # whether the kernel is part of a convolution
    tf32: BoolArray  # whether the kernel's name shows TF32


@once
def matrix_kernels(trace: Trace) -> MatrixKernels:
    """Return the kernels of a trace that multiply matrices. Their number format comes from the input types of the
    operator, else from the name of the kernel."""
    names, rows = trace.codes("name"), kernels(trace)
    texts = [name.lower() for name in names.values]

    def by_name(test: Any, kind: Any, missing: Any) -> Any:
        return names.lookup(np.array([test(text) for text in texts], kind), missing)[rows]

    rows = rows[by_name(multiplies, np.bool_, False)]
    operator = operator_rows(trace)[rows]
    dtypes = trace.codes("dtypes")
    recorded = dtypes.lookup(np.array([type_of_inputs(text) for text in dtypes.values], np.int64), UNKNOWN)
    types = np.where(operator >= 0, recorded[operator], UNKNOWN) if len(recorded) else np.zeros(len(rows), np.int64)
    return MatrixKernels(
        rows,
        operator,
        np.where(types == UNKNOWN, by_name(number_type, np.int64, UNKNOWN), types),
        by_name(unit, np.int64, UNKNOWN),
        by_name(lambda text: bool(_CONVOLVES.search(text)), np.bool_, False),
        by_name(lambda text: bool(_TF32.search(text)), np.bool_, False),
    )


def multiplies(name: str) -> bool:
    """Return whether a kernel with this lower-case name multiplies matrices or convolves. Matrix-vector products and
    depthwise convolutions do not count, because tensor cores cannot speed them up."""
    return bool(_MULTIPLIES.search(name)) and not _NEVER.search(name)


def unit(name: str) -> int:
    """Return the hardware unit of a matrix kernel with this lower-case name: TENSOR, PLAIN or UNKNOWN."""
    if _TENSOR.search(name):
        return TENSOR
    return PLAIN if _PLAIN.search(name) else UNKNOWN


def number_type(name: str) -> int:
    """Return the number format of a matrix kernel with this lower-case name: HALF, SINGLE, OTHER or UNKNOWN."""
    for type_, words in ((HALF, _HALF), (OTHER, _OTHER), (SINGLE, _SINGLE)):
        if words.search(name):
            return type_
    return UNKNOWN


def type_of_inputs(dtypes: str) -> int:
    """Return the number format of the first two tensors: HALF, SINGLE, OTHER or UNKNOWN. ``dtypes`` is the recorded
    JSON text, such as ``["float", "float"]``."""
    first = _TENSORS.findall(dtypes.lower())[:2]
    if len(first) < 2:
        return UNKNOWN
    if all(dtype in ("half", "float16", "bfloat16") for dtype in first):
        return HALF
    return SINGLE if all(dtype in ("float", "float32") for dtype in first) else OTHER


@dataclass(frozen=True, slots=True)
class TensorCores:
    """Whether a device has tensor cores for half precision, for TF32 (rounded single precision), and for bfloat16."""

    name: str
    half: bool
    tf32: bool
    bfloat16: bool


def tensor_cores(devices: Sequence[Device]) -> TensorCores:
    """Return the kinds of tensor cores that all devices have. Raises NotEvaluableError if a capability is unknown."""
    if not devices:
        raise NotEvaluableError(message("the matrix units of the device are not known"))
    per_device = [tensor_cores_of(device) for device in devices]
    half, tf32, bfloat16 = (all(getattr(cores, kind) for cores in per_device) for kind in ("half", "tf32", "bfloat16"))
    return TensorCores(per_device[0].name, half, tf32, bfloat16)


def tensor_cores_of(device: Device) -> TensorCores:
    """Return the kinds of tensor cores of a device. Raises NotEvaluableError if its compute capability is unknown."""
    name = device.name or device.id
    instinct = _MATRIX_CORES.search(name)
    if instinct:
        return TensorCores(name, True, False, int(instinct[1]) >= _MI200)
    major = cuda_major(device)
    if major is None:
        raise NotEvaluableError(message("the matrix units of the device are not known ({device})", device=name))
    cores = major >= _TENSOR_CORES_MAJOR and not _NO_TENSOR_CORES.search(name)
    return TensorCores(name, cores, cores and major >= _TF32_MAJOR, cores and major >= _TF32_MAJOR)


def cuda_major(device: Device) -> int | None:
    """Return the major compute capability of a CUDA device, None if it was not recorded or the device is another."""
    major, warp = device.properties.get("computeMajor"), device.properties.get("warpSize")
    of_cuda = not isinstance(warp, int) or warp == _WARP
    return major if isinstance(major, int) and of_cuda and not re.search("AMD|Radeon", device.name or "") else None


def cores_and_kernels(facts: RuleInput) -> tuple[TensorCores, MatrixKernels]:
    """Return the kinds of tensor cores that all devices have, and the kernels that multiply matrices. Raises
    NotEvaluableError if there are no such kernels, or if none of their names shows the hardware unit."""
    facts.need_device()
    device, products = tensor_cores(facts.trace.meta.devices), matrix_kernels(facts.trace)
    if not len(products.row):
        raise NotEvaluableError(message("no kernel with the name of a matrix product was recorded"))
    if not (products.unit != UNKNOWN).any():
        raise NotEvaluableError(message("the kernel names do not show whether tensor cores are used"))
    return device, products


def by_peaks(devices: Sequence[Device], usual: Quantity, now: str, then: str) -> Quantity:
    """Return the time of products on matrix units with the data type ``then``, divided by their time on vector units
    with the type ``now``. At best, it is the ratio of the peak rates of the devices. ``usual`` holds for devices whose
    rates are unknown, and its highest value for all devices. The likely value is the geometric mean."""
    rates = [peaks for device in devices if (peaks := peaks_of(device)) is not None]
    pairs = [(peaks.vector_tflop_per_s.get(now), peaks.matrix_tflop_per_s.get(then)) for peaks in rates]
    ratios = [vector / matrix for vector, matrix in pairs if vector is not None and matrix is not None]
    if not ratios or len(ratios) < len(devices):
        return usual
    best = min(max(ratios), usual.high)
    return Quantity(best, math.sqrt(best * usual.high), usual.high, _BY_PEAKS)


def slow_products(
    facts: RuleInput, device: TensorCores, rows: IntArray, factor: Quantity, how: Text, risk: Text, conflict: str
) -> list[Candidate]:
    """Return a list with one candidate, or an empty list if the kernels take too small a share of the step.
    The candidate assumes that the kernels in ``rows`` run on faster cores, in ``factor`` times the recorded time.
    ``how`` completes the message ``Matrix products take 3 ms …``. ``conflict`` is the id of the rule whose advice the
    candidate replaces."""
    spent = facts.covered_ns(rows)
    if not facts.exceeds(spent, facts.thresholds.multiply_share):
        return []
    names = facts.trace.codes("name")
    total = np.bincount(names.codes[rows], facts.trace.ints("dur_ns")[rows], len(names.values))
    longest = [code for code in np.argsort(-total, kind="stable")[:_NAMES] if total[code]]
    return [
        Candidate(
            message("Matrix products take {time} {how}.", time=facts.of_step(spent), how=how),
            evidence={
                **facts.part("kernel", spent), "kernels": len(rows),
                "names": [names.values[code][:_NAME_LENGTH] for code in longest], "device": device.name,
            },
            rows=rows,
            transforms=(Scale(rows, factor, below=False, host=False),),
            ceiling_ns=round(spent),
            preconditions=(
                message("{device} has tensor cores for this number format", device=device.name),
                message("the kernel names show whether tensor cores are used"),
            ),
            assumptions=assume(kernel_factor=factor),
            risks=(risk,),
            conflicts=(conflict,),
        )
    ]  # fmt: skip
