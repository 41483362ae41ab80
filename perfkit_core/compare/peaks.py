"""What can the devices of two runs do at most? By their makers' data sheets; only what those say for certain.

Dense rates, without the doubling of structured sparsity. A name that fits several products has no row: "AMD Radeon
Graphics" is any of them, and of boards that a customer had made only what holds for every variant of the chip is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from perfkit_core.model.meta import Device
from perfkit_core.model.trace import Trace

TERA: Final = 10**12
GIGA: Final = 10**9


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations and bytes a second; None where the source leaves a doubt. ``matrix16``: FP16 and BF16 on matrix
    units, ``float32``: FP32 without them."""

    product: str
    float32_flops_per_s: int | None
    matrix16_flops_per_s: int | None
    memory_bytes_per_s: int | None
    source: str


_V100 = Peak("Tesla V100-SXM2", 157 * TERA // 10, 125 * TERA, 900 * GIGA, "NVIDIA V100 data sheet, 2020")
_A100 = Peak("A100", 195 * TERA // 10, 312 * TERA, None, "NVIDIA A100 data sheet, 2021")
PEAKS: Final = {
    "Tesla V100-SXM2-16GB": _V100,
    "Tesla V100-SXM2-32GB": _V100,
    "Tesla V100-DGXS-32GB": Peak("V100 of DGX Station", None, 125 * TERA, None, "NVIDIA DGX Station data sheet, 2018"),
    "NVIDIA A100-SXM4-40GB": Peak("A100 SXM4 40 GB", 195 * TERA // 10, 312 * TERA, 1555 * GIGA, _A100.source),
    "NVIDIA A100-SXM4-80GB": Peak("A100 SXM4 80 GB", 195 * TERA // 10, 312 * TERA, 2039 * GIGA, _A100.source),
    "NVIDIA A100-PG509-200": _A100,
    "NVIDIA H100 80GB HBM3": Peak("H100 SXM5", 67 * TERA, 989 * TERA, 3350 * GIGA, "NVIDIA H100 data sheet, 2023"),
    "NVIDIA B200": Peak("B200", None, 2250 * TERA, None, "NVIDIA Blackwell architecture brief, 2024"),
    "AMD Instinct MI210": Peak("MI210", 226 * TERA // 10, 181 * TERA, 1638 * GIGA, "AMD MI210 data sheet, 2022"),
    "AMD Instinct MI300X": Peak("MI300X", 1634 * TERA // 10, 13074 * TERA // 10, 5300 * GIGA,
                                "AMD MI300X data sheet, 2023"),
}  # fmt: skip
"""Product as the profilers name it → its peaks."""
_VIRTUAL: Final = " VF"
"""A virtual function of a whole device, as a cloud hands it out; told by as many units as the device has."""


def peak(device: Device) -> Peak | None:
    """The peaks of a device, None where its name does not tell the product."""
    name = device.name or ""
    if name.endswith(_VIRTUAL) and device.properties.get("numSms") == 304:  # all units of the MI300X
        name = name.removesuffix(_VIRTUAL)
    return PEAKS.get(name)


def products(trace: Trace) -> tuple[str, ...]:
    """Names of the devices that the run used, of all that were recorded where none was."""
    used = set(trace.codes("device").values)
    mine = [device for device in trace.meta.devices if device.id in used] or list(trace.meta.devices)
    return tuple(dict.fromkeys(device.name or device.id for device in mine))


def different(traces: Sequence[Trace]) -> bool:
    """Whether the runs are known to have used other products."""
    known = [set(products(trace)) for trace in traces if products(trace)]
    return any(one != known[0] for one in known[1:])


def table(sides: Sequence[tuple[str, Trace]]) -> pd.DataFrame:
    """Columns side, device, float32_tflop_per_s, matrix16_tflop_per_s (FP16 and BF16, dense), memory_gb_per_s (these
    decimal, as data sheets have them), device_memory_bytes (as recorded), source of the peaks. NA where not certain."""
    rows = []
    for side, trace in sides:
        recorded = {device.name or device.id: device for device in trace.meta.devices}
        for name in products(trace):
            found = peak(recorded[name])
            rates = (None, None, None) if found is None else _rates(found)
            rows.append([side, name, *rates, recorded[name].memory_bytes, found and found.source])
    columns = ["side", "device", "float32_tflop_per_s", "matrix16_tflop_per_s", "memory_gb_per_s",
               "device_memory_bytes", "source"]  # fmt: skip
    kinds = dict.fromkeys(columns[2:5], "Float64") | {"device_memory_bytes": "Int64"}
    return pd.DataFrame(rows, columns=columns).astype(kinds)


def _rates(found: Peak) -> tuple[float | None, ...]:
    flops = (found.float32_flops_per_s, found.matrix16_flops_per_s)
    return (*(_in(TERA, rate) for rate in flops), _in(GIGA, found.memory_bytes_per_s))


def _in(unit: int, rate: int | None) -> float | None:
    return None if rate is None else rate / unit
