"""Exporters write a trace in the format of another tool. Each module has a function ``write(trace, file, options)`` for
one format. It returns a text about what the file lacks, or ""."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.contracts import Exporter, ExportOptions

if TYPE_CHECKING:
    from pathlib import Path

    from perfkit_core.trace.model.trace import Trace

CPU: Final = "cpu"
DEVICE: Final = "device"
CALLS: Final = "calls"
BYTES: Final = "bytes"
WEIGHTS: Final = (CPU, DEVICE, CALLS, BYTES)

CHROME_FORMAT: Final = "perfkit-chrome"
"""The value of ``format`` in the header of exported timelines."""


def sniff_chrome(path: Path, head: bytes) -> int:
    """Return how well the reader suits the file: 3 for a timeline of perfkit (other readers: at most 2), else 0."""
    mark = f'"format":"{CHROME_FORMAT}"'.encode()
    return 3 if head.lstrip()[:1] == b"{" and mark in b"".join(head[:200].split()) else 0


def _write(module: str, name: str = "write") -> Callable[[Trace, BinaryIO, ExportOptions], str]:
    return later(f"{__name__}.{module}", name)


EXPORTERS = (
    Exporter("chrome", "timeline for Perfetto and chrome://tracing", (".json",), _write("chrome")),
    Exporter("folded", "stacks for flame graphs", (".folded", ".collapsed", ".txt"), _write("folded"), WEIGHTS),
    Exporter("speedscope", "timeline for speedscope", (".speedscope.json", ".speedscope"), _write("speedscope")),
    Exporter("pprof", "stacks for pprof", (".pb.gz", ".pprof"), _write("pprof")),
    Exporter("csv", "the event table as CSV", (".csv",), _write("export", "write_csv")),
    Exporter("parquet", "the event table in perfkit's own format", (".parquet",), _write("export", "write_parquet")),
)
