"""The torch dialect of Chrome traces: categories, argument names, devices."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from perfkit_core.assembly.labels import Collective
from perfkit_core.model import schema
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, ScanRules, integer
from perfkit_torch import collectives, names

# c10::DeviceType, by number: torch writes the number of the enum into memory events.
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 2: "cpu", 5: "cpu", 6: "cuda", 7: "fpga", 8: "maia", 9: "xla", 12: "xpu",
                        13: "mps", 15: "hpu", 16: "ve", 18: "ipu", 19: "mtia", 20: "privateuse1"}  # fmt: skip


class TorchDialect(Dialect):
    """See :class:`perfkit_core.readers.chrome.dialect.Dialect`."""

    framework = "torch"
    arguments: ClassVar[Mapping[str, str]] = {
        "correlation": "correlation",
        "External id": "external",
        "external id": "external",
        "stream": "stream",
        "bytes": "bytes",
        "Bytes": "bytes",
        "Addr": "address",
        "Total Allocated": "total_bytes",
        "Input Dims": "shapes",
        "Input dims": "shapes",
        "Input type": "dtypes",
        "Call stack": "stack",
        "Sequence number": "sequence",
        "flops": "flops",
    }

    scan_rules = ScanRules(names.needs_reference, device_arguments=("device", "Device Type", "Device Id"))

    def __init__(self) -> None:
        self.window: tuple[msgspec.Raw, msgspec.Raw] | None = None
        """``ts`` and ``dur`` of the event that spans the whole recording."""

    def label(self, category: str, name: str) -> Label:
        return names.label(category, name)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        cut_off = label.kind == schema.STEP and args.get("finished") is False
        return Label(schema.OTHER, step=label.step) if cut_off else label

    def keeps(self, event: ChromeEvent) -> bool:
        if event.cat == names.RECORDING:
            self.window = self.window or (event.ts, event.dur)
            return False
        return not (isinstance(event.name, str) and event.name.startswith(names.RECORDING_MARKS))

    def communicates(self, name: str, kind: str) -> bool:
        return collectives.communicates(name, kind)

    def described(
        self, name: str, args: str | None, shapes: str | None, dtypes: str | None
    ) -> tuple[Collective | None, int]:
        return collectives.described(name, args, shapes, dtypes)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        if label.kind == schema.MEMORY:
            return _memory_device(integer(args.get("Device Type")), integer(args.get("Device Id")))
        return super().device(label, pid, args)


@functools.lru_cache(maxsize=256)
def _memory_device(kind: int | None, index: int | None) -> str:
    name = "cpu" if kind is None else _DEVICE_TYPES.get(kind, f"type{kind}")
    return name if name == "cpu" else f"{name}:{max(index or 0, 0)}"
