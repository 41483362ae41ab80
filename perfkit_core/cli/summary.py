"""``perfkit summary``: tables in the terminal, or for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer
from perfkit_core.cli.progress import loaded, working

DEFAULT_VIEWS: Final = ("overview", "model", "operators")


@click.command(epilog="Example: perfkit summary runs/baseline --view operators --sort self_device_ns --by shape")
@options.sources
@click.option("--view", "views", multiple=True, metavar="NAME", help="View to show, or all; several: repeat it or use "
              f"commas. 'perfkit plugins' lists them.  [default: {','.join(DEFAULT_VIEWS)}]")  # fmt: skip
@click.option("--sort", metavar="COLUMN", help="Column to sort by, the largest first; named as in --format json.")
@click.option("--ascending", is_flag=True, help="The smallest first.")
@options.limit_option("without it 20, and all in json and csv")
@click.option(
    "--by",
    multiple=True,
    metavar="GROUPING",
    help="Split the rows, where the view can: shape, stack, thread, category.",
)
@click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Only these steps.")
@click.option("--filter", "pattern", metavar="REGEX", help="Only names that contain a match (RE2 syntax).")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
@options.partial
def summary(
    sources: tuple[Path, ...],
    views: tuple[str, ...],
    sort: str | None,
    ascending: bool,
    limit: int | None,
    by: tuple[str, ...],
    steps: tuple[str, ...],
    pattern: str | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
) -> None:
    """Show what a profile holds, as tables.

    A SOURCE is a run folder or a trace file; several (one a rank) are read as one profile.
    """
    chosen = renderer(format_name, output, without=("html",))
    wanted_steps = options.steps(steps)
    from perfkit_core.plugins.contracts import ViewRequest
    from perfkit_core.report.summary import ROWS, choose_views, cut, read_from, summary_report

    chosen_views = choose_views(options.names(views) or DEFAULT_VIEWS)
    request = ViewRequest(tuple(options.names(by)), wanted_steps, pattern)
    trace = loaded(sources, partial)
    rows = (ROWS if limit is None else limit or None) if chosen.name in FOR_PEOPLE else None
    with working("analysing"):
        report = summary_report(trace, chosen_views, request, sort, ascending, rows)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    emit(read_from(report, sources), chosen, output)
