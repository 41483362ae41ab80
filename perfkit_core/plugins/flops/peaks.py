"""Peak rates of devices: FLOPs per second by data type, and bytes per second of the memory.

The built-in rates are in ``device_peaks.toml``, with their sources. A file of the same form adds devices or replaces
rates (``--peaks FILE``)."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from perfkit_core.base.system.outside_text import (
    MOST_TOML_BYTES,
    convert,
    decode_toml,
    decode_utf8,
    read_file,
    read_toml,
)
from perfkit_core.errors import UsageError
from perfkit_core.trace.model.meta import Device

TERA: Final = 10**12
TF32: Final = "tf32"
"""Type of float32 products that matrix units compute with rounded inputs."""
_TF32_KERNEL: Final = re.compile(r"tf32|s1688(?!\d)", re.IGNORECASE)
UNITS: Final = "numSms"
"""Key of a device's recorded properties: its number of multiprocessors."""
_COMPUTED_AS: Final = {"float16": "float32", "bfloat16": "float32", "bool": "float32"}
"""Type → type in which vector units compute it, if the data sheet has no rate of its own."""


Rate = Annotated[float, msgspec.Meta(gt=0)]
_TYPES: Final = frozenset(("float8", "bfloat16", "float16", TF32, "float32", "float64", "int8"))


class DevicePeaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak rates of a device model, dense. Rates by data type are in TFLOP/s. A missing rate is unknown.

    - ``names``: the names by which frameworks know the device.
    - ``source``: the document with the rates.
    - ``compute_units``: number of multiprocessors for which the rates hold, None for any number.
    - ``matrix_tflop_per_s``: of matrix units (tensor cores). ``vector_tflop_per_s``: of vector units (CUDA cores)."""

    names: tuple[str, ...]
    source: str
    product: str = ""
    compute_units: int | None = None
    memory_gb_per_s: Rate | None = None
    matrix_tflop_per_s: dict[str, Rate] = {}
    vector_tflop_per_s: dict[str, Rate] = {}

    def flops_per_s(self, dtype: str | None, matrix: bool, tf32: bool = False) -> float | None:
        """Return the peak of work on numbers of type ``dtype``, or None if unknown. ``matrix``: the work consists of
        matrix products. ``tf32``: matrix units compute float32 products with rounded inputs."""
        if dtype is None:
            return None
        rate = self.matrix_tflop_per_s.get(TF32 if tf32 and dtype == "float32" else dtype) if matrix else None
        rate = rate or self.vector_tflop_per_s.get(dtype) or self.vector_tflop_per_s.get(_COMPUTED_AS.get(dtype, ""))
        return None if rate is None else rate * TERA


class _File(msgspec.Struct, forbid_unknown_fields=True):
    devices: tuple[DevicePeaks, ...]


@functools.cache
def _built_in() -> Mapping[str, DevicePeaks]:
    where = "perfkit_core.plugins.flops/device_peaks.toml"
    return _by_name(convert(read_toml("perfkit_core.plugins.flops", "device_peaks.toml"), _File, where))


def _by_name(file: _File) -> Mapping[str, DevicePeaks]:
    for peaks in file.devices:
        unknown = {*peaks.matrix_tflop_per_s, *peaks.vector_tflop_per_s} - _TYPES
        if unknown:
            raise ValueError(f"{min(unknown)!r} is no data type of peak rates; known: {', '.join(sorted(_TYPES))}")
    return {name: peaks for peaks in file.devices for name in peaks.names}


def read_peaks(path: Path) -> str:
    """Return the text of a file of peak rates. Raises UsageError if it cannot be read or has wrong fields."""
    try:
        text = decode_utf8(read_file(path, MOST_TOML_BYTES))
        _parsed(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}", "a file of peak rates is a TOML file") from None
    except ValueError as error:
        hint = "example: [[devices]] names = ['cpu'], source = 'measured', memory_gb_per_s = 50"
        raise UsageError(f"{path}: {error}", hint) from None
    return text


@functools.lru_cache(8)
def _parsed(text: str) -> Mapping[str, DevicePeaks]:
    return _by_name(convert(decode_toml(text), _File, "peak rates"))


def peaks_of(device: Device, more_rates: str | None = None) -> DevicePeaks | None:
    """Return the peak rates of a device, or None if they are unknown. ``more_rates`` is the text of a file with further
    rates, which may name a device also by its id or its kind, such as ``cuda:0`` or ``cpu``."""
    extra, name = _parsed(more_rates) if more_rates else {}, device.name or ""
    peaks = extra.get(name) or extra.get(device.id) or extra.get(device.id.partition(":")[0]) or _built_in().get(name)
    if peaks is None or peaks.compute_units in (None, device.properties.get(UNITS)):
        return peaks
    return None


def shows_tf32(kernel: str) -> bool:
    """Return whether the name of a kernel shows that it computes float32 products with rounded inputs."""
    return bool(_TF32_KERNEL.search(kernel))
