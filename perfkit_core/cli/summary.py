"""``perfkit summary``: tables in the terminal, or for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.filters import filters
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer

DEFAULT_VIEWS: Final = ("partition", "model", "operators")


@click.command(epilog="Example: perfkit summary runs/baseline --view operators --sort self_device_ns --by shape")
@options.sources
@click.option("--view", "views", multiple=True, metavar="NAME", help="View or group of views to show, or all; "
              f"several with commas. 'perfkit plugins' lists them.  [default: {','.join(DEFAULT_VIEWS)}]")  # fmt: skip
@filters
@options.limit_option("without it 20, and all in json and csv")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
@options.language
@options.partial
@options.many_ranks
def summary(
    sources: tuple[Path, ...],
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
    workers: int,
    scheduler: str | None,
    shard: str | None,
    **given: Any,
) -> None:
    """Show what a profile holds, as tables.

    A SOURCE is a run folder, a trace file or a folder of them; several files (one a rank, or more) are read as one
    profile, rank by rank; partials (--shard) are merged. Patterns have the syntax of RE2, and cannot hang. What --step,
    --filter, --kind and --device leave out is not counted; what --show, --hide, --start, --trim, --depth and --min
    leave out is counted, but not shown.
    """
    from perfkit_core.cli import output as overwriting
    from perfkit_core.cli import ranks
    from perfkit_core.cli.filters import display, request
    from perfkit_core.report.summary import ROWS, choose_views, cut, read_from, summary_report

    overwriting.check(output, sources)
    if shard is not None:
        chosen_views = choose_views(options.names(views) or DEFAULT_VIEWS)
        done = ranks.write_share(sources, shard, output, chosen_views, request(given), given["average"], partial)
        click.echo(done, err=True)
        return
    chosen = renderer(format_name, output, without=("html",))
    rows = (ROWS if limit is None else limit or None) if chosen.name in FOR_PEOPLE else None
    counted, shown = request(given), display(given, rows)
    with ranks.profile(sources, partial, workers, scheduler) as profile:
        chosen_views = choose_views(options.names(views) or ranks.held_views(profile, DEFAULT_VIEWS))
        report = summary_report(profile, chosen_views, counted, shown)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    emit(read_from(report, ranks.named(profile, sources)), chosen, output)
