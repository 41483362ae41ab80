"""Reader of Paddle's profile protobuf (``.pb``, also gzip): exact nanoseconds, and the tree that Paddle recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit_core.assemble import assemble
from perfkit_core.collective_labels import with_labels
from perfkit_core.errors import SourceError
from perfkit_core.sources.bytestream import DAMAGED, open_bytes
from perfkit_core.sources.findings import negative_durations
from perfkit_core.trace import Device, Finding, Trace, TraceMeta
from perfkit_paddle import findings
from perfkit_paddle.meta import make_meta, processes
from perfkit_paddle.operators import operator_name
from perfkit_paddle.pb_pieces import HINT
from perfkit_paddle.pb_rows import Doubtful, Rows, rows, without_steps
from perfkit_paddle.pb_table import Table
from perfkit_paddle.pb_wire import Scan, scan

FORMAT = "paddle-pb"


@dataclass(frozen=True, slots=True)
class Live:
    """What only the recording process knows: its rank, which steps are none, further fields of TraceMeta, and what is
    to be kept in its ``extra``."""

    rank: int | None = None
    no_steps: frozenset[int] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


NOT_LIVE = Live()


def read_pb(path: Path, partial: bool = False) -> Trace:
    """The Trace of a file. Raises SourceError (file, byte, hint) for what is no such file or damaged."""
    content, broken = _content(path, partial)
    return trace_of(content, str(path), partial, broken)


def trace_of(
    content: bytes | memoryview, source: str, partial: bool = False, broken: bool = False, live: Live = NOT_LIVE
) -> Trace:
    """The Trace of a file's bytes. ``broken`` says that bytes are missing. Raises SourceError as :func:`read_pb`."""
    scanned, found = read_rows(content, source, partial)
    return finish(scanned.tables, found, source, broken or bool(scanned.problem), live)


def read_rows(content: bytes | memoryview, source: str, partial: bool = False) -> tuple[Scan, Rows]:
    """What the bytes hold, not yet assembled. Raises SourceError as :func:`read_pb`."""
    if not content:
        raise SourceError(f"{source}: the file is empty", "was the profiler stopped before it was read?")
    scanned = scan(content, clip=partial)
    if scanned.problem and not partial:
        raise SourceError(f"{source}: {scanned.problem} (byte {scanned.at} of {len(content)})", HINT)
    found = rows(scanned.tables)
    if found.doubtful.incomplete and not partial:
        text = f"{source}: {found.doubtful.incomplete} events lack required fields (in {len(content)} bytes)"
        raise SourceError(text, HINT)
    return scanned, found


def finish(tables: dict[str, Table], found: Rows, source: str, cut: bool = False, live: Live = NOT_LIVE) -> Trace:
    """The Trace of tables, from a file or a live tree."""
    recorded = without_steps(found.recorded, live.no_steps)
    meta = described(tables, processes(recorded.columns), source, cut, live)
    quality = (*doubts(found.doubtful, cut), *findings.devices(recorded.columns, meta.devices))
    return assemble(with_labels(recorded), meta, quality, live.rank, operator_name)


def described(
    tables: dict[str, Table], of_thread: Mapping[int, int], source: str, cut: bool, live: Live = NOT_LIVE
) -> TraceMeta:
    """What a file tells beside its events; ``of_thread``: the process of each thread."""
    return make_meta(of_thread, _extra_info(tables["extra"]), live.rank, devices=_devices(tables["property"]),
                     source=source, format=FORMAT, incomplete=cut, extra={**_header(tables["file"]), **live.extra},
                     **live.facts)  # fmt: skip


def _content(path: Path, partial: bool) -> tuple[bytes, bool]:
    """All bytes of a file, and whether its compressed data broke off (with ``partial`` only)."""
    pieces: list[bytes] = []
    try:
        with open_bytes(path) as file:
            while piece := file.read(1 << 20):
                pieces.append(piece)
    except DAMAGED as error:
        if not partial or not pieces:
            where = sum(map(len, pieces))
            raise SourceError(f"{path}: damaged or truncated data after byte {where} ({error})", HINT) from None
        return b"".join(pieces), True
    return b"".join(pieces), False


def doubts(found: Doubtful, cut: bool) -> tuple[Finding, ...]:
    """What the events have to confess; ``cut``: whether the file broke off."""
    quality = []
    if cut:
        quality.append(findings.truncated())
    if found.incomplete:
        quality.append(findings.skipped(found.incomplete))
    if found.reversed:
        quality.append(negative_durations(found.reversed))
    if found.unknown:
        quality.append(findings.unknown_types({f"EventType{n}": count for n, count in found.unknown.items()}))
    return tuple(quality)


def _header(file: Table) -> dict[str, Any]:
    version = file.texts("version")[0].as_py()
    index = int(file["span_index"][0]) if file.known("span_index")[0] else None
    return {key: value for key, value in (("schema_version", version), ("span_index", index)) if value is not None}


def _extra_info(table: Table) -> dict[str, str]:
    pairs = zip(table.texts("key").to_pylist(), table.texts("value").to_pylist(), strict=True)
    return {key: value for key, value in pairs if key is not None and value is not None}


def _devices(table: Table) -> tuple[Device, ...]:
    names = table.texts("name").to_pylist()
    columns = [c for c in table.columns if c not in ("owner", "name", "name.length")]
    return tuple(
        findings.device({c: int(table[c][i]) for c in columns if table.known(c)[i]}, name)
        for i, name in enumerate(names)
    )
