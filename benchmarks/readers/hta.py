"""HolisticTraceAnalysis, measured in two ways: the call with which its users usually begin, and only its parser."""

from __future__ import annotations

from pathlib import Path

from benchmarks.readers.contract import Outcome, Reader


def _analysis(file: Path, folder: Path) -> Outcome:
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(file)}, trace_dir=str(file.parent))
    frame = analysis.t.get_trace(0)
    return Outcome(len(frame), int(frame.memory_usage(deep=True).sum()), analysis)


def _parse(file: Path, folder: Path) -> Outcome:
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    found = parse_trace_dataframe(str(file), ParserConfig.get_default_cfg())
    return Outcome(len(found[1]), int(found[1].memory_usage(deep=True).sum()), found)


READERS = (
    Reader(
        "HolisticTraceAnalysis",
        "peer",
        "TraceAnalysis(trace_files={0: file}): json, DataFrame, fixed args as columns, iterations, launch ↔ kernel",
        ("hta.trace_analysis",),
        _analysis,
        slow=True,
    ),
    Reader(
        "HolisticTraceAnalysis, parse only",
        "peer",
        "parse_trace_dataframe: json, DataFrame, fixed args as columns; times with decimals are rounded to µs",
        ("hta.common.trace_parser",),
        _parse,
        slow=True,
    ),
)
