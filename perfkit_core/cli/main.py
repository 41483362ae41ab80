"""The ``perfkit`` command: collects the verbs from the plugins, and turns every error into one line.

When does Python look for garbage? Seldom while perfkit starts, not when it ends, as usual in scripts that it runs.

What perfkit imports makes a quarter of a million objects that stay; looking through them again and again took a third
of the time of a short command.

What a process has in place of an output that was closed before it began (``>&-``, ``2>&-``): Python has nothing.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from perfkit_core.errors import PerfkitError
from perfkit_core.plugins.manager import get_plugins


class _Nowhere(io.RawIOBase):
    """Takes what is written, and remembers that it was."""

    lost = False

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.lost = True
        return len(piece)


_nowhere = _Nowhere()


def open_all() -> None:
    """Give the process both outputs. Files that it opens later do not get their numbers, to which libraries write."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_nowhere), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)


def flush() -> None:
    """Write what is still held. Raises OSError where that fails, and where standard output was closed all the time."""
    sys.stdout.flush()
    if _nowhere.lost:
        raise OSError(errno.EBADF, "it is closed, and nothing was shown", "standard output")


OBJECTS: Final = 300_000
"""New objects after which the youngest are looked through: more than the imports make."""

_USUAL: Final = gc.get_threshold()


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Look through objects only after many new ones while the block runs."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_as_usual() -> None:
    """From now on, as often as Python does by itself."""
    gc.set_threshold(*_USUAL)


def leave_garbage() -> None:
    """The process ends: nothing that is still there is looked through for the sake of its memory."""
    gc.freeze()


FAILED: Final = 2
"""Exit code of everything that perfkit refuses or cannot do."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""
DEBUG: Final = "PERFKIT_DEBUG"
"""Environment variable: with "1", errors show their traceback."""

# Arrow's own allocator keeps what it frees, in huge pages: 40 MB more for a trace of 35 MB. Read when it is imported.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


class PluginGroup(click.Group):
    """A group whose commands are those that the plugins register, in that order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(get_plugins().commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None = get_plugins().commands().get(cmd_name)
        return command


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="perfkit", prog_name="perfkit", message="%(prog)s %(version)s")
@click.pass_context
def perfkit(ctx: click.Context) -> None:
    """Tells why training or inference is slow, in one vocabulary for every framework.

    A SOURCE is a run folder that perfkit recorded, or a trace file that a profiler wrote.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Without ``arguments``, those of the process, which then ends."""
    open_all()
    _never_fail_to_print()
    with collecting_rarely():
        code = _main(arguments)
    if arguments is None:
        leave_garbage()
    return code


def _main(arguments: Sequence[str] | None) -> int:
    try:
        code = perfkit.main(arguments, prog_name="perfkit", standalone_mode=False)
        flush()
        return code if isinstance(code, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    if os.environ.get(DEBUG) == "1":
        traceback.print_exc()
    click.echo(f"perfkit: error: {_told(error)}", err=True)
    return FAILED


def _told(error: Exception) -> str:
    if isinstance(error, PerfkitError):
        return str(error)
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "perfkit"
        return f"{_one_line(error.format_message())}; see '{where} --help'"
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message())
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or _one_line(error)}"
    return f"unexpected {type(error).__name__}: {_one_line(error)}; {DEBUG}=1 shows where, please report it"


def _one_line(text: Any) -> str:
    return " ".join(str(text).split()).rstrip(".")


def _reader_left() -> int:
    """``perfkit … | head``: nothing is wrong. What is still buffered must not complain when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _never_fail_to_print() -> None:
    """A terminal that cannot encode a name shows its escape instead."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
