"""Does an exporter write what its contract promises?"""

from __future__ import annotations

import io
from typing import BinaryIO, cast

from perfkit_core.plugins.contracts import Exporter, ExportOptions
from perfkit_core.testing.require import require
from perfkit_core.trace import Trace


class _Pipe(io.BytesIO):
    """A file that can only be written on and on, as a pipe."""

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("an exporter may not seek")


def check_exporter(exporter: Exporter, trace: Trace) -> None:
    """On the trace and on one without events, with each weight. Raises AssertionError."""
    require(bool(exporter.name and exporter.description), "an exporter needs a name and a description")
    require(bool(exporter.suffixes), f"{exporter.name} has no suffix")
    for suffix in exporter.suffixes:
        require(suffix.startswith(".") and suffix == suffix.lower(), f"not a suffix in small letters: {suffix!r}")
    empty = trace.slice(0, 0)
    for weight in (None, *exporter.weights):
        options = ExportOptions(weight)
        require(_written(exporter, trace, options) == _written(exporter, trace, options), "it differs each time")
        said = exporter.write(empty, cast("BinaryIO", _Pipe()), options)
        require(bool(said), f"{exporter.name} does not say why there is nothing in its file")


def _written(exporter: Exporter, trace: Trace, options: ExportOptions) -> bytes:
    file = _Pipe()
    said = exporter.write(trace, cast("BinaryIO", file), options)
    require(isinstance(said, str), f"{exporter.name} returns {said!r}, not text")
    return file.getvalue()
