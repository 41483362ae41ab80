"""``perfkit report``: one HTML page to send to a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import renderer, write
from perfkit_core.cli.progress import loaded, working
from perfkit_core.errors import UsageError

_PAGE: Final = ("", ".html", ".htm")


@click.command(epilog="Example: perfkit report runs/baseline -o baseline.html")
@options.sources
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              metavar="FILE", help="The page to write, its folder too.")  # fmt: skip
@options.partial
def report(sources: tuple[Path, ...], output: Path, partial: bool) -> None:
    """Write one self-contained HTML page that works offline.

    A SOURCE is a run folder or a trace file; several (one a rank) are read as one profile.
    """
    if output.suffix.lower() not in _PAGE:
        raise UsageError(
            f"{output}: a report is a page of HTML", "name it .html; perfkit summary -o writes other formats"
        )
    trace = loaded(sources, partial)
    from perfkit_core.report.page import run_report
    from perfkit_core.report.summary import read_from

    with working("analysing"):
        write(renderer("html").render(read_from(run_report(trace), sources)), output)
    click.echo(f"wrote {output}", err=True)
