"""Which runs lie below a folder, and what is the most important about each? Reads metadata, not events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.errors import PerfkitError, SourceError
from perfkit_core.paths import (
    arrow_input,
    as_path,
    exists,
    is_file,
    is_folder,
    is_remote,
    reaching,
    readable,
    walk_store,
)
from perfkit_core.plugins.contracts import Source
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.recording import pending
from perfkit_core.run_figures import Run, of_file, of_folder, of_stored
from perfkit_core.sources.bytestream import head
from perfkit_core.storage.store import SUFFIX, is_ours

RUN: Final = "run"
_RECOGNISED: Final = 2
"""What a reader says of a file when it knows the framework's dialect; less is any JSON file."""
_COUNTS: Final = ("ranks", "cycles", "steps", "median_step_ns", "events", "file_bytes", "findings")


def list_runs(folder: str | os.PathLike[str], *, read_files: bool = False) -> pd.DataFrame:
    """Every run folder, stored run and trace file below ``folder``, the newest first.

    Columns path (what is not UTF-8 in it is escaped), format (the reader), framework, devices, ranks, cycles, steps
    (distinct step numbers), median_step_ns (over all steps of all ranks), recorded_at (UTC; of a trace file that was
    not read: when the file was written), events, file_bytes, findings (about data quality), error (why it cannot be
    read). Unknown is NA: of a trace file, framework to median_step_ns, events and findings need the whole file, which
    ``read_files`` reads.
    ``folder`` may be the address of a store. Raises SourceError where there is no such folder.
    """
    root = as_path(folder)
    pending.flush(root)
    with reaching(root):
        if not is_folder(root):
            missing = "no folder" if exists(root) else "no such folder"
            raise SourceError(f"{root}: {missing}", "name the folder that your runs are in")
        found = [run for path in _places(root) if (run := _run(path, read_files)) is not None]
    table = pd.DataFrame(
        {field.name: pd.Series([getattr(run, field.name) for run in found], dtype=object) for field in fields(Run)}
    )
    for name in _COUNTS:
        table[name] = table[name].astype("Int64")
    table["recorded_at"] = pd.to_datetime(table["recorded_at"], utc=True)
    for name in ("framework", "devices", "error"):
        table[name] = table[name].where(table[name].notna(), pd.NA)
    return table.sort_values(["recorded_at", "path"], ascending=[False, True], ignore_index=True, na_position="last")


def _places(root: Path) -> Iterator[Path]:
    """Run folders, and files that are not part of one."""
    for here, files in _folders(root):
        cycles = [name for name in files if name.endswith(SUFFIX)]
        if cycles:
            yield here
        yield from (here / name for name in sorted(set(files) - set(cycles)) if not name.startswith("."))


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each folder with the names of its files; hidden folders are left out."""
    walk = walk_store(root) if is_remote(root) else map(_as_paths, os.walk(root))
    for here, subfolders, files in walk:
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield here, files


def _as_paths(found: tuple[str, list[str], list[str]]) -> tuple[Path, list[str], list[str]]:
    return Path(found[0]), found[1], found[2]


def _run(path: Path, read_files: bool) -> Run | None:
    """The figures of a place, with an error where it is broken; None for what is no profile."""
    if is_folder(path):
        return _guarded(Run(readable(path), RUN), lambda run: of_folder(run, path))
    source = _source(path)
    if source is None:
        return None
    if source.name != RUN:
        return _guarded(Run(readable(path), source.name), lambda run: of_file(run, path, read_files))
    return _guarded(Run(readable(path), RUN), lambda run: of_stored(run, [path], ())) if _ours(path) else None


def recognised(path: Path) -> bool:
    """Whether a reader knows a file or folder for a profile, by its name and first bytes."""
    return is_folder(path) or _source(path) is not None


def _ours(path: Path) -> bool:
    """False for a Parquet file of somebody else."""
    try:
        with arrow_input(path) as file:
            return is_ours(pq.read_metadata(file))
    except (OSError, pa.ArrowException):
        return path.name.endswith(SUFFIX)


def _guarded(run: Run, fill: Callable[[Run], Run]) -> Run:
    try:
        return fill(run)
    except PerfkitError as error:
        return replace(run, error=readable(error).removeprefix(f"{run.path}: ").removeprefix(f"{run.path}{os.sep}"))
    except (OSError, pa.ArrowException, ValueError) as error:
        return replace(run, error=f"cannot be read ({' '.join(readable(error).split())})")


def _source(path: Path) -> Source | None:
    try:
        start = head(path) if is_file(path) else b""
    except (OSError, PerfkitError):
        return None
    rated = [(source.sniff(path, start), index, source) for index, source in enumerate(get_plugins().sources())]
    best = max(rated, key=lambda item: (item[0], -item[1]), default=(0, 0, None))
    return best[2] if start and best[0] >= _RECOGNISED else None
