"""Commands in a pseudo-terminal, whose output a pipe would not show: bold text, colours, and the width of a screen."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
import termios
import threading
from collections.abc import Sequence

import pytest

from perfkit_core.cli.main import main

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(
    patch: pytest.MonkeyPatch, arguments: Sequence[object], columns: int = 100, code: int = 0, errors: bool = False
) -> str:
    """Run a command in this process with a terminal as its standard output, and with ``errors`` also for its
    errors. Return what it prints, with escape codes. ``code`` is the expected exit code."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 45, columns, 0, 0))
    pieces: list[bytes] = []

    def collect() -> None:
        while True:
            try:
                piece = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            pieces.append(piece)

    reader = threading.Thread(target=collect)
    reader.start()
    with patch.context() as context, os.fdopen(follower, "w", encoding="utf-8", errors="backslashreplace") as terminal:
        for name in ("stdout", "__stdout__", *(("stderr",) if errors else ())):
            context.setattr(sys, name, terminal)
        context.delenv("COLUMNS", raising=False)
        context.setenv("TERM", "xterm-256color")
        assert main(list(map(str, arguments))) == code
        terminal.flush()
    reader.join()
    os.close(leader)
    return b"".join(pieces).decode("utf-8").replace("\r\n", "\n")


def plain(text: str) -> str:
    return _ESCAPE.sub("", text)
