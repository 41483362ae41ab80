"""``perfkit view``: make the page of a profile and open it in the browser."""

from __future__ import annotations

import hashlib
import re
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.base.language.messages import say
from perfkit_core.base.system.machine import has_display
from perfkit_core.base.system.paths import as_path, identity, user_folder
from perfkit_core.base.system.processes import shell_path
from perfkit_core.cli import options
from perfkit_core.cli.output import echo, refuse_overwriting, say_written
from perfkit_core.cli.record import RUNS
from perfkit_core.cli.report import write_page
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions

_LONGEST_NAME: Final = 80


@click.command(epilog="Example: perfkit view runs/baseline")
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=options.LOCATION)
@click.option("-o", "--output", type=options.writable, metavar="FILE", help="Write the page to FILE.  [default: a file "
              "for this SOURCE in the cache folder of the user]")  # fmt: skip
@options.language
@options.reads
def view(sources: tuple[Path, ...], output: Path | None, read_options: ReadOptions) -> None:
    """Make the page of a profile and open it in the browser.

    The page is that of perfkit report. Without a SOURCE, it shows the newest run below the folder runs, in which
    perfkit record writes. Over SSH, or without a display, the command prints how to open the page."""
    sources = sources or (newest_run(),)
    page = output or default_page(sources)
    refuse_overwriting(page, sources)
    write_page(sources, page, read_options)
    say_written(page)
    if has_display() and webbrowser.open(page.absolute().as_uri()):
        return
    echo(say("No browser can be opened here. Copy the file to your computer and open it there."), err=True)
    echo(
        say("Or serve it: {command}", command=f"python -m http.server --directory {shell_path(page.parent)}"), err=True
    )


def newest_run() -> Path:
    """Return the newest run below the folder of ``perfkit record``. Raises UsageError."""
    from perfkit_core.output.report.run_list import list_runs

    paths = list_runs(RUNS)["path"].to_list() if Path(RUNS).is_dir() else []
    if not paths:
        raise UsageError(f"no SOURCE given, and there is no run below {RUNS}", "record one with: perfkit record SCRIPT")
    return as_path(paths[0])


def default_page(sources: Sequence[Path]) -> Path:
    """Return the file for the page of these sources. It is the same each time: ``$XDG_CACHE_HOME/perfkit/pages/…``."""
    name = re.sub(r"[^\w.-]+", "-", sources[0].name)[:_LONGEST_NAME] or "page"
    digest = hashlib.sha256("\0".join(map(identity, sources)).encode("utf-8", "surrogateescape")).hexdigest()
    return as_path(user_folder("XDG_CACHE_HOME", ".cache") / "pages" / f"{name}-{digest[:8]}.html")
