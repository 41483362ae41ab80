"""The recordings of graph captures that belong to a trace file.

They are given (``--graph-capture``), or found next to the trace file ``NAME.json.gz``:

- ``NAME.capture.json.gz``
- the files in the folder ``capture_traces``, in which servers write them

Servers write one file for each batch size. The batch size is in the file ``execution_details.json`` of the folder
(``[{"file": …, "batch_size": 32}]``), or in the file name (``bs_32_rank0.json.gz``). A file is read if steps of the
trace use its batch size, or if its batch size is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perfkit_core.base.language.messages import message
from perfkit_core.base.system.outside_text import decode_json, read_file
from perfkit_core.base.system.paths import as_path, exists, is_folder, reaching, readable
from perfkit_core.errors import SourceError
from perfkit_core.trace.assembly import graph_capture
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace

FOLDER: Final = "capture_traces"
DETAILS: Final = "execution_details.json"
_SUFFIX: Final = re.compile(r"\.json(?:\.gz)?$", re.IGNORECASE)
_CAPTURE: Final = ".capture"
_BATCH: Final = re.compile(r"bs_(\d+)(?!\d)")


def is_beside(file: Path, files: Iterable[Path]) -> bool:
    """Return whether a file is the recording of a graph capture that belongs to another one of ``files``."""
    stem = _SUFFIX.sub("", file.name)
    return stem.endswith(_CAPTURE) and any(
        _SUFFIX.sub("", other.name) == stem.removesuffix(_CAPTURE) for other in files
    )


def with_operators(trace: Trace, path: Path, requested: Sequence[str], read: Callable[[Path], Trace]) -> Trace:
    """Return the trace with the operators of captured graphs (:mod:`perfkit_core.trace.assembly.graph_capture`). Raises
    SourceError if a ``requested`` file does not exist, cannot be read or has no captured graph. A file that only lies
    next to the trace may belong to something else. If it cannot be read, a note says so."""
    if not requested and not _SUFFIX.search(path.name):  # a stored run has the operators, and reads columns on demand
        return trace
    for source in map(as_path, requested):
        with reaching(source):
            if not exists(source):
                raise SourceError(f"{source}: no such file or folder", "check --graph-capture")
    if not graph_capture.graph_launches(trace).any():
        if requested:
            text = message("the recording has no launches of graphs, so the recording of the capture is not used")
            return trace.with_findings(Finding("graph-capture-unused", text, note=True))
        return trace
    skipped: list[Finding] = []

    @contextmanager
    def optional(source: Path) -> Iterator[None]:
        try:
            yield
        except (SourceError, OSError) as error:
            if requested:
                raise
            reason = error.message if isinstance(error, SourceError) else f"{source}: {error.strerror or error}"
            text = message("{reason}; this recording of a graph capture is not used", reason=readable(reason))
            skipped.append(Finding("graph-capture-unreadable", text, note=True))

    files: list[tuple[Path, int | None]] = []
    sources = [as_path(source) for source in requested] or beside(path)
    for source in sources:
        with optional(source), reaching(source):
            more = _files(source) if requested or exists(source) else []
            if requested and not more:
                raise SourceError(f"{source}: contains no recording of a graph capture", "check --graph-capture")
            files += more
    graphs, names = [], []
    for file, batch in _needed(files, _batches(trace)):
        with optional(file):
            captured = graph_capture.captured_graphs(read(file), batch)
            if not captured and requested:
                raise SourceError(
                    f"{file}: no graph was captured in this recording", "record while the server captures its graphs"
                )
            graphs += captured
            names += [readable(file.name)] if captured else []
    trace = trace.with_findings(*skipped)
    if requested and not graphs:
        text = message("no given recording of a graph capture has a batch size that the steps use")
        trace = trace.with_findings(Finding("graph-capture-unused", text))
    return graph_capture.attributed(trace, graphs, names) if graphs else trace


def beside(path: Path) -> list[Path]:
    """Return the files and the folder next to a trace file in which recordings of its graph captures may be."""
    stem = _SUFFIX.sub("", path.name)
    return [*(path.with_name(f"{stem}{_CAPTURE}{end}") for end in (".json.gz", ".json")), path.with_name(FOLDER)]


def _files(source: Path) -> list[tuple[Path, int | None]]:
    """Return the files of a source (a file or folder), each with its batch size if known."""
    if not is_folder(source):
        return [(source, None)]
    names = sorted(file for file in source.iterdir() if _SUFFIX.search(file.name) and file.name != DETAILS)
    sizes = _details(source / DETAILS)
    matches = {file: _BATCH.match(file.name) for file in names}
    return [(file, sizes.get(file.name, int(match[1]) if match else None)) for file, match in matches.items()]


def _details(file: Path) -> dict[str, int]:
    try:
        entries = decode_json(read_file(file)) if exists(file) else []
    except ValueError:  # the batch sizes then come from the file names
        return {}
    return {
        entry["file"]: entry["batch_size"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("file"), str) and isinstance(entry.get("batch_size"), int)
    }


def _batches(trace: Trace) -> set[int] | None:
    """Return the numbers of tokens of the steps that launch graphs, or None if a step does not say it."""
    rows, steps = serving_steps(trace)
    tokens = {int(trace.ints("step")[row]): step.tokens for row, step in zip(rows, steps, strict=True)}
    launching = set(trace.ints("step")[graph_capture.graph_launches(trace)].tolist())
    sizes = {tokens.get(step) for step in launching}
    return None if None in sizes else {size for size in sizes if size is not None}


def _needed(files: Sequence[tuple[Path, int | None]], batches: set[int] | None) -> list[tuple[Path, int | None]]:
    """Return the files that steps with these batch sizes may have replayed. A step replays the graph of the smallest
    batch size that it fits in."""
    sizes = sorted({batch for _, batch in files if batch is not None})
    if batches is None or not sizes:
        return list(files)
    used = {next((batch for batch in sizes if batch >= size), None) for size in batches}
    return [(file, batch) for file, batch in files if batch is None or batch in used]
