"""Processes that must end."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int) -> bool:
    """Return whether a process ends within a minute. A zombie counts as ended."""
    last = time.monotonic() + 60
    while time.monotonic() < last:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
