"""A Trace as a file that another tool opens: one format a file, each a function ``write(trace, file, options) -> str``.

What they share: ``lanes`` (the rows of a timeline), ``call_paths`` (distinct stacks), ``json_lines`` (JSON in bulk).
"""

from __future__ import annotations

from perfkit_core.exporters import chrome, folded, pprof, speedscope, tables
from perfkit_core.exporters.weights import WEIGHTS
from perfkit_core.plugins.contracts import Exporter

EXPORTERS = (
    Exporter("chrome", "timeline for Perfetto and chrome://tracing", (".json",), chrome.write),
    Exporter("folded", "stacks for flame graphs, one a line", (".folded", ".collapsed", ".txt"), folded.write, WEIGHTS),
    Exporter("speedscope", "timeline for speedscope", (".speedscope.json", ".speedscope"), speedscope.write),
    Exporter("pprof", "stacks for pprof", (".pb.gz", ".pprof"), pprof.write),
    Exporter("csv", "the event table as text", (".csv",), tables.write_csv),
    Exporter("parquet", "the event table as perfkit stores it", (".parquet",), tables.write_parquet),
)
