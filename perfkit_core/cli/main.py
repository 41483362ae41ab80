"""The ``perfkit`` command. It collects the commands of the plugins and prints every error in one line.

It also replaces closed standard streams, and makes garbage collections rare."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import click

from perfkit_core.base.system.paths import printable_line
from perfkit_core.errors import PerfkitError, UsageError, one_line, spelled_like
from perfkit_core.plugins.manager import get_plugins

FAILED: Final = 2
"""Exit code for all errors."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""
DEBUG: Final = "PERFKIT_DEBUG"
"""Environment variable; the value "1" prints the traceback of an error."""
OBJECTS: Final = 300_000
"""Number of new objects that triggers a garbage collection. The imports create fewer objects than this."""
_DEFAULT_THRESHOLD: Final = gc.get_threshold()

_ALLOCATOR: Final = "ARROW_DEFAULT_MEMORY_POOL"
_undo: Final[list[Callable[[], object]]] = []


class PluginGroup(click.Group):
    """A command group with the commands that plugins register, in the order of registration."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(get_plugins().commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None = get_plugins().commands().get(cmd_name)
        return command.load() if isinstance(command, DeferredCommand) else command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their short help, without loading them."""
        commands = {name: command for name, command in get_plugins().commands().items() if not command.hidden}
        width = formatter.width - 6 - max(map(len, commands))
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        commands = get_plugins().commands()
        if args and args[0] not in commands and not args[0].startswith("-"):
            visible = (name for name, command in commands.items() if not command.hidden)
            raise UsageError(f"no such command {args[0]!r}", spelled_like(args[0], visible))
        return super().resolve_command(ctx, args)


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="perfkit", prog_name="perfkit", message="%(prog)s %(version)s")
@click.pass_context
def perfkit(ctx: click.Context) -> None:
    """Show why training or inference is slow, with the same terms for every framework.

    Most commands read one or more SOURCEs. A SOURCE is a run folder that perfkit recorded, or a trace file that a
    profiler wrote."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. If ``arguments`` is None, they are read from ``sys.argv``. In this
    case, the caller must end the process, because its existing objects are no longer garbage-collected."""
    _open_outputs()
    _undo.clear()
    # Arrow's default allocator does not return freed memory: a 35 MB trace needs 40 MB more than with the system's
    # allocator. Arrow reads the variable when it is imported.
    if _ALLOCATOR not in os.environ:
        os.environ[_ALLOCATOR] = "system"
        _undo.append(functools.partial(os.environ.pop, _ALLOCATOR, None))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # characters that the terminal cannot encode are escaped
            _undo.append(functools.partial(stream.reconfigure, errors=stream.errors))
            stream.reconfigure(errors="backslashreplace")
    with collecting_rarely():
        try:
            result = perfkit.main(arguments, prog_name="perfkit", standalone_mode=False)
            sys.stdout.flush()
            if _nowhere.lost:
                raise OSError(errno.EBADF, "closed, so nothing was printed", "standard output")
            code = result if isinstance(result, int) else 0
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except BrokenPipeError:
            # ``perfkit … | head`` is not an error. Python must not raise when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except Exception as error:
            if os.environ.get(DEBUG) == "1":
                traceback.print_exc()
            click.echo(f"perfkit: error: {printable_line(_described(error))}", err=True)
            code = FAILED
        if arguments is None:  # the process exits now: also the collection that the next threshold starts is useless
            gc.freeze()
            if code == INTERRUPTED:  # Python then ends by this signal, and a shell ends the loop that runs perfkit, too
                sys.excepthook = lambda *_: None
                raise KeyboardInterrupt
    return code


def _described(error: Exception) -> str:
    if isinstance(error, PerfkitError):
        return str(error)
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "perfkit"
        return f"{_sentence(error.format_message())}; see '{where} --help'"
    if isinstance(error, click.ClickException):
        return _sentence(error.format_message())
    if isinstance(error, ImportError):
        return f"a package cannot be imported ({_sentence(error)}); run perfkit doctor"
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or _sentence(error)}"
    if isinstance(error, MemoryError):  # also that of Arrow
        return f"out of memory ({_sentence(error)}); read fewer ranks, or convert trace files by export --stream"
    return f"unexpected {type(error).__name__}: {_sentence(error)}; please report it with the traceback ({DEBUG}=1)"


def _sentence(text: Any) -> str:
    return one_line(text).rstrip(".")


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Make garbage collections rare within the block.

    The imports of perfkit create a quarter of a million permanent objects. With Python's default thresholds, a short
    command spent a third of its time on scanning these objects."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def restore() -> None:
    """Undo what :func:`main` has changed in the process, before a script runs in it."""
    gc.set_threshold(*_DEFAULT_THRESHOLD)
    while _undo:
        with contextlib.suppress(ValueError):  # the stream is closed
            _undo.pop()()


class _Nowhere(io.RawIOBase):
    """Replacement for a closed stdout. It discards all bytes, and sets ``lost`` when bytes were discarded."""

    lost = False

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.lost = True
        return len(piece)


_nowhere = _Nowhere()


def _open_outputs() -> None:
    """Replace stdout and stderr if they are closed (``>&-``, ``2>&-``). Python sets closed streams to None."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    # Libraries write to file descriptors 1 and 2, so files that are opened later must not get these descriptors.
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_nowhere), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)


class DeferredCommand(click.Command):
    """The name and the short help of a command. The module ``perfkit_core.cli.NAME`` has the command itself."""

    def __init__(self, name: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)

    def load(self) -> click.Command:
        """Import and return the command."""
        return cast("click.Command", getattr(import_module(f"perfkit_core.cli.{self.name}"), str(self.name)))
