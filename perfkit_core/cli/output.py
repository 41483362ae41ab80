"""Output of reports to the terminal, to a pipe or to a file, and the spinner that the terminal shows during long work.

An output file appears only when it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.base.language.messages import speaking
from perfkit_core.base.system.paths import (
    as_path,
    harmless,
    identity,
    is_folder,
    is_remote,
    printable,
    replacing,
    without_secrets,
)
from perfkit_core.base.system.processes import shell_path, shell_word
from perfkit_core.errors import UsageError, unwritable
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import Renderer
    from perfkit_core.readers.read_options import ReadOptions
    from perfkit_core.trace.model.report_data import Report
    from perfkit_core.trace.model.trace import Trace

FOR_PEOPLE: Final = ("text", "markdown", "html")
"""Formats that by default show only the first rows of long tables. The other formats show all rows."""
_MOST_IN_COMMAND: Final = 3
"""Maximum number of sources that are repeated in a command."""
_SUFFIXES: Final = {
    "": "text", ".txt": "text", ".log": "text", ".json": "json", ".csv": "csv", ".md": "markdown",
    ".markdown": "markdown", ".html": "html", ".htm": "html",
}  # fmt: skip


def renderer(name: str | None, output: Path | None = None, without: tuple[str, ...] = ()) -> Renderer:
    """Return the renderer ``name``. Without a name, the suffix of ``output`` selects the renderer. Without both, the
    format is text. ``without`` lists formats that the command does not support. Raises UsageError."""
    renderers = {key: value for key, value in get_plugins().renderers().items() if key not in without}
    elsewhere = "; use perfkit report for HTML" if without else ""
    if name is None:
        suffixes = _SUFFIXES | {f".{key}": key for key in renderers}
        suffix = output.suffix.lower() if output else ""
        if suffix not in suffixes:
            shown = ", ".join(end for end, key in _SUFFIXES.items() if end and key in renderers)
            hint = f"use --format, or one of {shown}{elsewhere}"
            raise UsageError(f"{output}: no format has the suffix {suffix}", hint)
        name = suffixes[suffix]
    if name not in renderers:
        raise UsageError(f"unsupported format {name!r}", f"known: {', '.join(renderers)}{elsewhere}")
    if name in ("json", "csv") and (context := click.get_current_context(silent=True)):
        context.with_resource(speaking("en"))  # programs read these formats, so their texts are English
    return renderers[name]


def emit(report: Report, chosen: Renderer, output: Path | None, brief: bool = False) -> None:
    """Write a rendered report to ``output``, or to stdout if ``output`` is None. Text of a ``brief`` report is
    shortened to fit one screen. Raises UsageError."""
    terminal = output is None and sys.stdout.isatty()
    if terminal and chosen.name == "html":
        raise UsageError("refusing to write HTML to a terminal", "use -o FILE")
    if chosen.name == "text":
        from perfkit_core.output.renderers import text

        columns = shutil.get_terminal_size((text.WIDEST_PIPE, text.SCREEN)).columns
        width = columns if terminal else min(columns, text.WIDEST_PIPE)
        colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"  # see no-color.org
        rendered = text.render(report, width, colours, text.SCREEN if brief else None)
    else:
        rendered = chosen.render(report)
    if output is not None:
        write(rendered, output)
    elif terminal and chosen.name == "text":  # it contains styling, and its texts are escaped already
        click.echo(rendered, nl=False, color=True)
    else:
        echo(rendered, nl=False)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print a text without styling. A terminal shows control characters of data escaped, so that no name in a file can
    control it. Files and pipes get the text as it is."""
    stream = sys.stderr if err else sys.stdout
    terminal = getattr(stream, "isatty", bool)()  # a recorded script may have replaced the stream
    # without ``color``, click removes what looks like styling, also from data
    click.echo(harmless(text) if terminal else text, err=err, nl=nl, color=True)


def write(text: str, path: Path) -> None:
    """Write a UTF-8 file atomically. Missing folders are created. Raises UsageError."""
    try:
        with replacing(path) as file:
            file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise unwritable(path, error) from None


def arguments(sources: Iterable[str | Path], read_options: ReadOptions) -> str:
    """Return sources for a command to copy, with the options that apply to all profiles, and the shortest paths."""
    paths = [as_path(str(source)) for source in sources]
    shown = [without_secrets(path) if is_remote(path) else str(path) for path in paths]
    pairs = [("--step-on", read_options.step_on), ("--step-kind", read_options.step_kind)]
    pairs += [("--graph-capture", _shortest(path)) for path in read_options.graph_captures]
    pairs += [("--compile-info", _shortest(path)) for path in read_options.compile_info]
    options = "".join(f" {option} {shell_word(value)}" for option, value in pairs if value)
    return (
        "SOURCE..." if len(shown) > _MOST_IN_COMMAND else " ".join(map(shell_path, map(_shortest, shown)))
    ) + options


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len) if Path(path).is_absolute() else path


def say_written(output: Path | None) -> None:
    if output is not None:
        echo(f"wrote {output}", err=True)


def refuse_overwriting(output: Path | None, sources: Iterable[Path]) -> None:
    """Raise UsageError if ``output`` is a source or a file in a source folder. Remote folders are not searched."""
    if output is None:
        return
    written = identity(output)
    for source in sources:
        read = {identity(source)}
        here = not (is_remote(source) or is_remote(output)) and output.is_file() and is_folder(source)
        if here and Path(written).parent == Path(identity(source)):
            from perfkit_core.readers.load import files_of
            from perfkit_core.trace.storage.store import SUFFIX

            cycles = list(source.glob(f"*{SUFFIX}"))
            read |= {identity(path) for path in cycles or files_of([source], get_plugins(), partial=True)[0]}
        if written in read:
            raise _overwrites(output)


def refuse_overwriting_below(output: Path | None, folder: Path) -> None:
    """Raise UsageError if ``output`` is an existing profile below ``folder``."""
    if output is None or is_remote(output) or is_remote(folder) or not output.is_file():
        return
    from perfkit_core.output.report.run_list import recognised

    if Path(identity(folder)) in Path(identity(output)).parents and recognised(output):
        raise _overwrites(output)


def _overwrites(output: Path) -> UsageError:
    return UsageError(f"{output}: -o would overwrite a source", "choose another output file")


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with ``text`` while the block runs, if stderr is a terminal. Yield a function that replaces it."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    def one_line(text: str) -> Text:
        return Text(printable(text), no_wrap=True, overflow="ellipsis")

    with Console(stderr=True).status(one_line(text)) as status:
        yield lambda text: status.update(one_line(text))


def reading(sources: Sequence[Path]) -> contextlib.AbstractContextManager[Callable[[str], None]]:
    return working(f"reading {', '.join(source.name or str(source) for source in sources[:3])}")


def loaded(sources: Sequence[Path], read_options: ReadOptions) -> Trace:
    from perfkit_core.readers.load import load_all

    with reading(sources):
        return load_all(sources, read_options)
