"""Where a rendered report goes: the terminal, a pipe, or a file that appears only when it is complete."""

from __future__ import annotations

import contextlib
import shutil
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import Renderer
    from perfkit_core.report.model import Report

FOR_PEOPLE: Final = ("text", "markdown", "html")
"""Formats that show the first rows of long tables; all others get whole tables."""


_SUFFIXES: Final = {".json": "json", ".csv": "csv", ".md": "markdown", ".html": "html", ".htm": "html"}


def renderer(name: str | None, output: Path | None = None, without: tuple[str, ...] = ()) -> Renderer:
    """The renderer of this name, or of the suffix of ``output``, or text; never one of ``without``.

    Raises UsageError with the known ones.
    """
    name = name or _SUFFIXES.get(output.suffix.lower() if output else "", "text")
    known = {key: value for key, value in get_plugins().renderers().items() if key not in without}
    if name not in known:
        hint = f"known: {', '.join(known)}"
        raise UsageError(
            f"there is no format {name!r} here", hint + ("; perfkit report writes HTML" if without else "")
        )
    return known[name]


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


def write(text: str, path: Path) -> None:
    """Write a text file as UTF-8: all of it or nothing. Raises UsageError where that cannot be done."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_char_device() or path.is_fifo():  # /dev/stdout, a named pipe: nothing to replace
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror or error})", "choose another place with -o"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
