"""Where are calibrations kept? A file for each version of a framework, processor and device, in the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from perfkit_core.calibration.model import Calibration
from perfkit_core.errors import UsageError
from perfkit_core.storage.replacing import replacing


def folder() -> Path:
    """``$XDG_CACHE_HOME/perfkit/calibrations``, by default in ``~/.cache``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"  # as the standard says
    return root / "perfkit" / "calibrations"


def place(found: Calibration) -> Path:
    """The file of a calibration."""
    key = "\n".join((found.framework, found.version, found.cpu, str(found.cpus), found.device or ""))
    return folder() / f"{found.framework}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def save(found: Calibration) -> Path:
    """Keep a calibration in place of an earlier one; readers see all of it or nothing. Raises UsageError."""
    import msgspec

    path = place(found)
    try:
        with replacing(path) as file:
            file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})", "set XDG_CACHE_HOME") from None
    return path


def kept(framework: str) -> Iterator[Calibration]:
    """All calibrations of a framework, the newest first. A file that cannot be read is passed over."""
    import msgspec

    found = []
    with contextlib.suppress(OSError):  # there is no such folder, or none that may be read
        for path in folder().glob(f"{framework}-*.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Calibration))
    yield from sorted((one for one in found if one.framework == framework), key=lambda one: one.date, reverse=True)
