"""Where a rendered report goes: the terminal, a pipe, or a file that appears only when it is complete.

Would a command write its output over what it reads?

What long work shows: a spinner on a terminal, nothing in a pipe.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.errors import UsageError, unwritable
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.system.paths import identity, is_folder, is_remote, replacing

if TYPE_CHECKING:
    from perfkit_core.model.trace import Trace
    from perfkit_core.plugins.contracts import Renderer
    from perfkit_core.report.model import Report

FOR_PEOPLE: Final = ("text", "markdown", "html")
"""Formats that show the first rows of long tables; all others get whole tables."""

_SUFFIXES: Final = {
    "": "text", ".txt": "text", ".log": "text", ".json": "json", ".csv": "csv", ".md": "markdown",
    ".markdown": "markdown", ".html": "html", ".htm": "html",
}  # fmt: skip


def renderer(name: str | None, output: Path | None = None, without: tuple[str, ...] = ()) -> Renderer:
    """The renderer of this name, or of the suffix of ``output``, or text; never one of ``without``.

    Raises UsageError with the known ones.
    """
    known = {key: value for key, value in get_plugins().renderers().items() if key not in without}
    elsewhere = "; perfkit report writes HTML" if without else ""
    if name is None:
        name = _named_by(output, known, elsewhere)
    if name not in known:
        raise UsageError(f"there is no format {name!r} here", f"known: {', '.join(known)}{elsewhere}")
    return known[name]


def _named_by(output: Path | None, known: Collection[str], elsewhere: str) -> str:
    """The format that a file's suffix means; that of a plugin is its own name."""
    suffixes = _SUFFIXES | {f".{name}": name for name in known}
    suffix = output.suffix.lower() if output else ""
    if suffix not in suffixes:
        ends = ", ".join(end for end, name in suffixes.items() if end in _SUFFIXES and end and name in known)
        raise UsageError(f"{output}: {suffix} is no format of perfkit", f"--format, or one of {ends}{elsewhere}")
    return suffixes[suffix]


def emit(report: Report, chosen: Renderer, output: Path | None) -> None:
    """Render a report to ``output``, or to the terminal. Raises UsageError where the file cannot be written."""
    if output is not None:
        write(chosen.render(report), output)
    elif not sys.stdout.isatty():
        click.echo(chosen.render(report), nl=False)
    elif chosen.name == "text":
        from perfkit_core.renderers import text

        click.echo(text.render(report, shutil.get_terminal_size().columns), nl=False)
    elif chosen.name == "html":
        raise UsageError("a page of HTML is not for a terminal", "name a file with -o")
    else:
        click.echo(chosen.render(report), nl=False)


def told(output: Path | None) -> None:
    """Say which file was written, where the report went to one."""
    if output is not None:
        click.echo(f"wrote {output}", err=True)


def write(text: str, path: Path) -> None:
    """Write a text file as UTF-8: all of it or nothing; its folder is made. Raises UsageError where that fails."""
    try:
        with replacing(path) as file:
            file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise unwritable(path, error) from None


def check(output: Path | None, sources: Iterable[Path]) -> None:
    """Raises UsageError where ``output`` is one of the sources, or a file that a folder among them is read from.
    Folders in stores are not looked through."""
    if output is None:
        return
    for source in sources:
        if identity(output) == identity(source) or identity(output) in _files(source, output):
            raise _over(output)


def check_below(output: Path | None, folder: Path) -> None:
    """Raises UsageError where ``output`` is a profile below a folder that is looked through."""
    if output is None or is_remote(output) or is_remote(folder) or not output.is_file():
        return
    from perfkit_core.report.run_list import recognised

    if Path(identity(folder)) in Path(identity(output)).parents and recognised(output):
        raise _over(output)


def _files(source: Path, output: Path) -> set[str]:
    """What a folder is read from, where the output would be in it."""
    if is_remote(source) or is_remote(output) or not is_folder(source) or not output.is_file():
        return set()
    if Path(identity(output)).parent != Path(identity(source)):
        return set()
    from perfkit_core.readers.load import files_of
    from perfkit_core.storage.store import SUFFIX

    cycles = list(source.glob(f"*{SUFFIX}"))
    return {identity(path) for path in cycles or files_of([source], get_plugins(), partial=True)[0]}


def _over(output: Path) -> UsageError:
    return UsageError(f"{output}: -o would replace what is read", "give the output another name")


COMPILING: Final = " (compiling its loops, once on this machine)"


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show ``text`` while the block runs, and what is given to the function that it yields; beside it that functions
    are compiled, while they are."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)) as status:
        told = [text, ""]

        def say(text: str) -> None:
            told[0] = text
            status.update(escape("".join(told)))

        def compiling(begun: bool) -> None:
            told[1] = COMPILING if begun else ""
            say(told[0])

        from perfkit_core.runtime import compile  # imports numpy, which help does without

        with compile.watched(compiling):
            yield say


def loaded(sources: Sequence[Path], partial: bool) -> Trace:
    """Read the sources with a spinner. Raises SourceError."""
    from perfkit_core.readers.load import load

    with working(f"reading {', '.join(str(source) for source in sources[:3])}"):
        return load(list(sources), partial=partial)
