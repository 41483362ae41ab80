"""A statement in a process of its own, which is ended at a time limit. duckdb itself cannot be interrupted while it
computes a single value, such as a long list."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from perfkit_core.base.system import processes
from perfkit_core.errors import UsageError
from perfkit_core.integrations.sql.engine import LimitedEngine

_CODE: Final = "import sys; from perfkit_core.integrations.sql import bounded; bounded.main(int(sys.argv[1]))"
_POLL_SECONDS: Final = 0.05
_MOST_BYTES: Final = 100_000_000
"""Maximum size of a result."""


class BoundedEngine:
    """The methods of an engine in another process. ``seconds``: time limit of the process without the time to
    make the tables. ``stop``: the statement ends when it returns True."""

    def __init__(self, connection: Any, folder: Path, seconds: float, stop: Callable[[], bool]) -> None:
        self._connection = connection
        self._folder = folder
        self._seconds = self._left = seconds
        self._stop = stop

    def named(self, statement: str) -> list[str]:
        names: list[str] = self._answer(statement)
        return names

    def rows(self, statement: str, tables: Mapping[str, pa.Table], limit: int | None) -> pa.Table:
        for name, table in tables.items():
            _write(table, self._folder / name)
        return _read(Path(self._answer([list(tables), limit])))

    def _answer(self, question: Any) -> Any:
        began = time.monotonic()
        try:
            self._connection.send_bytes(json.dumps(question).encode())
            while not self._connection.poll(_POLL_SECONDS):
                if time.monotonic() - began > self._left or self._stop():
                    hint = "select fewer rows or join on fewer columns"
                    raise UsageError(f"the statement took longer than {self._seconds:g} s", hint)
            done, answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise UsageError("the process of the statement has ended", "it may need too much memory") from None
        self._left -= time.monotonic() - began
        if not done:
            raise UsageError(*answer)
        return answer


@contextmanager
def opened(tables: Sequence[str], seconds: float, stop: Callable[[], bool] = lambda: False) -> Iterator[BoundedEngine]:
    """Start an engine in a new process, which is ended at the end of the block."""
    ours, theirs = Pipe()
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder, ours:
        options: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        command = processes.python(_CODE, str(theirs.fileno()))
        with processes.group(
            command, pass_fds=[theirs.fileno()], cwd=folder, env=processes.environment(), **options
        ) as process:
            theirs.close()
            try:
                engine = BoundedEngine(ours, Path(folder), seconds, stop)
                with suppress(BrokenPipeError):  # if the process has ended, the first question reports it
                    ours.send_bytes(json.dumps(list(tables)).encode())
                yield engine
            finally:
                process.kill()  # it has nothing to save


def main(descriptor: int) -> None:
    """Answer two questions: which tables a statement names, and the rows of the statement, as the name of a file. An
    answer is a pair of whether it succeeded, and its value or the arguments of an UsageError."""
    with Connection(descriptor) as connection:

        def question() -> Any:
            return json.loads(connection.recv_bytes())

        def answer(done: bool, value: Any) -> None:
            connection.send_bytes(json.dumps([done, value]).encode())

        try:
            with LimitedEngine(question()) as engine:
                statement = question()
                answer(True, engine.named(statement))
                names, limit = question()
                result = engine.rows(statement, {name: _read(Path(name)) for name in names}, limit)
                if result.nbytes > _MOST_BYTES:
                    text = f"the result has {result.nbytes / 1e6:,.0f} MB, more than {_MOST_BYTES / 1e6:.0f} MB"
                    raise UsageError(text, "select fewer rows, or shorter texts")
                answer(True, str(_write(result, Path.cwd() / "result.arrow")))
        except UsageError as error:
            answer(False, [error.message, error.hint])
    os._exit(0)  # duckdb would report objects that were not freed


def _write(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    return path


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
