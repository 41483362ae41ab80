"""Reads what torch.profiler exports: Chrome traces of Kineto, any generation since 2021."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.assemble import assemble
from perfkit_core.sources.chrome import ChromeFile
from perfkit_core.sources.decimals import to_ns
from perfkit_core.sources.dialect import integer
from perfkit_core.sources.findings import file_findings
from perfkit_core.sources.recorder import Recorder
from perfkit_core.trace import Device, Finding, IntArray, Trace, TraceMeta
from perfkit_torch.collectives import with_collectives
from perfkit_torch.dialect import TorchDialect
from perfkit_torch.operator_names import operator_name

_HEADER_MARKS: Final = (b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"distributedInfo"', b'"with_stack"',
                        b'"torch_profiler_kwargs"')  # fmt: skip
_EVENT_MARKS: Final = (b"aten::", b'"cpu_op"', b'"Ev Idx"')
"""Of events: any table or flame graph of a torch run names its operators too."""
_EVENT: Final = re.compile(rb'"ph"\s*:\s*"')
_KINETO_VERSION: Final = re.compile(rb'"schemaVersion"\s*:\s*1\b(?!\.)')
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_KNOWN: Final = frozenset(
    {"schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds", *_OPTIONS}
)

_EPOCH_FROM_NS: Final = 946_684_800 * 10**9
"""2000-01-01: no profile is older, so smaller times count from something else than 1970."""


def sniff(path: Path, head: bytes) -> int:
    """2 for Chrome traces with Kineto's marks, else 0."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return 0
    header = _KINETO_VERSION.search(head) or any(mark in head for mark in _HEADER_MARKS)
    events = _EVENT.search(head) and any(mark in head for mark in _EVENT_MARKS)
    return 2 if header or events else 0


def read(path: Path, partial: bool = False) -> Trace:
    """The file as a Trace. Raises SourceError."""
    file = ChromeFile(path, partial)
    dialect = TorchDialect()
    recorder = Recorder(dialect)
    for portion in file.portions(dialect):
        recorder.add(portion)
    base = integer(file.header.get("baseTimeNanoseconds")) or 0
    recorded = with_collectives(recorder.recorded(base))
    start_ns = recorded.columns["start_ns"].to_numpy()
    rank, world_size = _place(file.header)
    meta = TraceMeta(
        source=str(path),
        format="torch-chrome",
        framework="torch",
        clock="epoch" if not len(start_ns) or start_ns.min() > _EPOCH_FROM_NS else "relative",
        ranks=() if rank is None else (rank,),
        world_size=world_size,
        window_ns=_window(dialect, base),
        devices=devices(file.header.get("deviceProperties")),
        options={key: bool(file.header[key]) for key in _OPTIONS if key in file.header},
        thread_names={f"{'-' if rank is None else rank}:{key}": name for key, name in recorder.thread_names.items()},
        extra={key: value for key, value in file.header.items() if key not in _KNOWN},
        incomplete=file.truncated_at is not None,
    )
    findings = file_findings(file, recorder) + _clock_findings(meta.clock, start_ns)
    return assemble(recorded, meta, findings, rank, operator_name)


def _place(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    info = header.get("distributedInfo")
    return (integer(info.get("rank")), integer(info.get("world_size"))) if isinstance(info, dict) else (None, None)


def _window(dialect: TorchDialect, base_ns: int) -> tuple[int, int] | None:
    if dialect.window is None:
        return None
    start, duration = to_ns([bytes(text) for text in dialect.window]).tolist()
    return base_ns + start, base_ns + start + duration


def devices(properties: Any) -> tuple[Device, ...]:
    """Kineto's ``deviceProperties`` list."""
    found = [item for item in properties if isinstance(item, dict)] if isinstance(properties, list) else []
    return tuple(
        Device(f"cuda:{item.get('id', i)}", item.get("name"), integer(item.get("totalGlobalMem")), item)
        for i, item in enumerate(found)
    )


def _clock_findings(clock: str, start_ns: IntArray) -> tuple[Finding, ...]:
    """What the times themselves show: written in whole microseconds, or without the origin of their clock."""
    found = []
    if len(start_ns) and not (start_ns % 1000).any():
        found.append(Finding("rounded-clock", "times were written in whole microseconds: each is up to 1 µs off"))
    if clock == "relative":
        found.append(Finding("no-clock-origin", "the file does not tell the date of its times: they count from a boot"))
    return tuple(found)
