"""Where a rendered report goes: the terminal, a pipe, or a file that appears only when it is complete."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.errors import UsageError, unwritable
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.storage.replacing import replacing

if TYPE_CHECKING:
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
