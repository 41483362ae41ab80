"""``perfkit summary``: tables in the terminal, or for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.filters import filters
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer
from perfkit_core.cli.progress import loaded, working

DEFAULT_VIEWS: Final = ("partition", "model", "operators")


@click.command(epilog="Example: perfkit summary runs/baseline --view operators --sort self_device_ns --by shape")
@options.sources
@click.option("--view", "views", multiple=True, metavar="NAME", help="View or group of views to show, or all; "
              f"several with commas. 'perfkit plugins' lists them.  [default: {','.join(DEFAULT_VIEWS)}]")  # fmt: skip
@filters
@options.limit_option("without it 20, and all in json and csv")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
@options.partial
def summary(
    sources: tuple[Path, ...],
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
    **given: Any,
) -> None:
    """Show what a profile holds, as tables.

    A SOURCE is a run folder or a trace file; several (one a rank) are read as one profile. Patterns have the syntax of
    RE2, and cannot hang. What --step, --filter, --kind and --device leave out is not counted; what --show, --hide,
    --start, --trim, --depth and --min leave out is counted, but not shown.
    """
    chosen = renderer(format_name, output, without=("html",))
    from perfkit_core.cli.filters import display, request
    from perfkit_core.report.summary import ROWS, choose_views, cut, read_from, summary_report

    chosen_views = choose_views(options.names(views) or DEFAULT_VIEWS)
    rows = (ROWS if limit is None else limit or None) if chosen.name in FOR_PEOPLE else None
    counted, shown = request(given), display(given, rows)
    trace = loaded(sources, partial)
    with working("analysing"):
        report = summary_report(trace, chosen_views, counted, shown)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    emit(read_from(report, sources), chosen, output)
