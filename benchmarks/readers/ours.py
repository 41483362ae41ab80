"""perfkit, measured in three ways: from a file to a trace in memory, to a stored run, and streamed to Parquet."""

from __future__ import annotations

from pathlib import Path

from benchmarks.readers.contract import Outcome, Reader

_MODULES = (
    "pyarrow.pandas_compat", "pyarrow.parquet", "perfkit_core.base.algorithms.addresses",
    "perfkit_core.cli.builtin", "perfkit_core.readers.load", "perfkit_core.readers.scanner.chunks",
    "perfkit_core.trace.storage.store", "perfkit_paddle.plugin", "perfkit_torch.ascend",
    "perfkit_torch.plugin", "perfkit_torch.source",
)  # fmt: skip
"""All modules that perfkit imports in this process, including late imports."""


def _trace(file: Path, folder: Path) -> Outcome:
    from perfkit_core.readers.load import load

    trace = load(file)
    return Outcome(len(trace), trace.events.get_total_buffer_size(), trace)  # this size counts shared memory only once


def _stored(file: Path, folder: Path) -> Outcome:
    from perfkit_core.readers.load import load
    from perfkit_core.trace.storage.store import write_cycle

    trace = load(file)
    return Outcome(len(trace), write_cycle(trace, folder).stat().st_size, trace)


def _streamed(file: Path, folder: Path) -> Outcome:
    from perfkit_core.readers.load import stream

    out = folder / "streamed.perfkit.parquet"
    rows = stream(file, out)
    return Outcome(rows, out.stat().st_size)


READERS = (
    Reader(
        "perfkit, in memory",
        "perfkit",
        "the whole event table: exact ns, links from launch to device work, parents, steps, phases, modules, all args",
        _MODULES,
        _trace,
    ),
    Reader(
        "perfkit, stored run", "perfkit", "the event table, written as a run folder (Parquet, zstd)", _MODULES, _stored
    ),
    Reader(
        "perfkit, streamed",
        "perfkit",
        "written to Parquet while reading, with all args; links, parents and steps are computed on loading",
        _MODULES,
        _streamed,
    ),
)
