"""From a Trace to a file for another tool: which format, which steps, and a file that appears only when complete."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

from isal import igzip

from perfkit_core.errors import UsageError, spelled_like, unwritable
from perfkit_core.exporters.restrict import only_steps
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Exporter, ExportOptions
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.system.paths import as_path, replacing

_GZIP: Final = ".gz"
_GZIP_LEVEL: Final = 2
"""isal's levels are 0 to 3; this one is its default."""


def export(
    trace: Trace,
    path: str | os.PathLike[str],
    to: str | None = None,
    *,
    weight: str | None = None,
    steps: Sequence[int] | None = None,
    align: bool = False,
) -> str:
    """Write a Trace to ``path`` in the format ``to`` (None: as the name of the file tells).

    ``path`` may be the address of a store (``s3://…``). ``weight``: what stacks weigh, where the format has stacks;
    ``steps``: step numbers (None: everything), kept with what runs on the devices meanwhile; ``align``: ranks that
    share collectives on one clock. A name that ends in ``.gz`` is compressed. Returns in words what the file lacks
    ("": nothing). Raises UsageError for unknown formats, weights and steps, and where the file cannot be written.
    """
    target = as_path(path)
    chosen, options = choose(to, target), ExportOptions(weight)
    check(chosen, options)
    if align:
        from perfkit_core.views.communication.clocks import aligned

        trace = aligned(trace)
    chosen_steps = only_steps(trace, None if steps is None else tuple(steps))
    with writing(target) as file, _compressed(chosen, target, file) as out:
        return chosen.write(chosen_steps, out, options)


def choose(name: str | None, path: Path | None = None) -> Exporter:
    """The exporter of this name, or of the longest suffix of ``path``. Raises UsageError with the known ones."""
    known = get_plugins().exporters()
    if name is not None:
        if name not in known:
            raise UsageError(f"there is no export format {name!r}", spelled_like(name, known))
        return known[name]
    text = path.name.lower() if path else ""
    fits = [(len(end), one) for one in known.values() for end in one.suffixes if text.endswith((end, end + _GZIP))]
    if not fits:
        ends = ", ".join(f"{one.suffixes[0]} ({one.name})" for one in known.values())
        raise UsageError(f"{path}: its name does not tell the format", f"use --to, or one of {ends}")
    return max(fits, key=lambda fit: fit[0])[1]


def check(exporter: Exporter, options: ExportOptions) -> None:
    """Raises UsageError where the exporter cannot do what the options ask."""
    if options.weight is not None and options.weight not in exporter.weights:
        known = ", ".join(exporter.weights)
        hint = f"known: {known}" if known else "leave --weight out"
        raise UsageError(f"{exporter.name} has no weight {options.weight!r}", hint)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that appears only when it is complete. Raises UsageError where it cannot be written."""
    try:
        with replacing(path) as place, place.open("wb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


@contextlib.contextmanager
def _compressed(exporter: Exporter, path: Path, file: BinaryIO) -> Iterator[BinaryIO]:
    """``file``, or a gzip stream into it when the name asks for one that the format does not have by itself."""
    name = path.name.lower()
    if not name.endswith(_GZIP) or name.endswith(exporter.suffixes):
        yield file
        return
    with igzip.IGzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as stream:
        buffered = io.BufferedWriter(cast("io.RawIOBase", stream), 1 << 20)
        yield cast("BinaryIO", buffered)
        buffered.flush()
        buffered.detach()
