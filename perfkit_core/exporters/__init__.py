"""A Trace as a file that another tool opens: one format a file, each a function ``write(trace, file, options) -> str``.

What they share: ``lanes`` (the rows of a timeline), ``call_paths`` (distinct stacks), ``json_lines`` (JSON in bulk).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from perfkit_core.exporters.stacks import WEIGHTS
from perfkit_core.plugins.contracts import Exporter, ExportOptions
from perfkit_core.system.packages import later

if TYPE_CHECKING:
    from perfkit_core.model.trace import Trace


def _write(module: str, name: str = "write") -> Callable[[Trace, BinaryIO, ExportOptions], str]:
    return later(f"{__name__}.{module}", name)


EXPORTERS = (
    Exporter("chrome", "timeline for Perfetto and chrome://tracing", (".json",), _write("chrome")),
    Exporter(
        "folded", "stacks for flame graphs, one a line", (".folded", ".collapsed", ".txt"), _write("folded"), WEIGHTS
    ),
    Exporter("speedscope", "timeline for speedscope", (".speedscope.json", ".speedscope"), _write("speedscope")),
    Exporter("pprof", "stacks for pprof", (".pb.gz", ".pprof"), _write("pprof")),
    Exporter("csv", "the event table as text", (".csv",), _write("tables", "write_csv")),
    Exporter("parquet", "the event table as perfkit stores it", (".parquet",), _write("tables", "write_parquet")),
)
