"""``perfkit summary``: tables in the terminal, or for a script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, refuse_overwriting, renderer
from perfkit_core.errors import UsageError
from perfkit_core.language.units import family, parse_quantity
from perfkit_core.plugins.contracts import ViewRequest

DEFAULT_VIEWS: Final = ("partition", "model", "operators")
_FILTERS: Final = (
    click.option("--by", multiple=True, metavar="GROUPING", help="Split the rows of views that have this grouping: "
        "shape, "
                 "stack, stack=N (innermost frames), overload, thread, label, scope, module, phase, step, device, "
                 "rank, operator, stream, launch, category, … 'perfkit plugins' lists the groupings of each view; "
                 "families.operator splits the view families only."),
    click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Count only these steps."),
    click.option("--filter", "pattern", metavar="REGEX", help="Count only events whose name contains a match (RE2)."),
    click.option("--kind", metavar="REGEX", help="Count only events whose kind or category contains a match."),
    click.option("--device", metavar="REGEX", help="Count only events whose device contains a match."),
    click.option("--average", is_flag=True, help="Show the average step: sums over the steps, divided by their "
                 "number."),
    click.option("--native", is_flag=True, help="Show the numbers of the framework's own tables where ours differ."),
    click.option("--sort", metavar="COLUMN", help="Sort by this column, largest first; named as in --format json, or "
                 "as a grouping (shape, thread)."),
    click.option("--ascending", is_flag=True, help="Sort with the smallest first."),
    click.option("--show", metavar="REGEX", help="Show only rows whose text contains a match (in a tree: whose name)."),
    click.option("--hide", metavar="REGEX", help="Hide rows whose text contains a match; they stay counted."),
    click.option("--start", metavar="REGEX", help="Begin a tree at the rows whose name contains a match."),
    click.option("--trim", metavar="REGEX", help="End a tree above the rows whose name contains a match."),
    click.option("--depth", type=options.Whole(), metavar="N", help="Deepest level of a tree; roots are 0."),
    click.option("--min", "minimums", multiple=True, metavar="COLUMN=VALUE",
                 help="Show only rows with this value or more: total_cpu_ns=1ms, flops=1e6, self_cpu_ratio=5%. "
                     "Units: ns, us, "
                 "ms, s; B, KiB, MiB, GiB, KB, MB, GB (decimal); K, M, G, T (thousand, million, …); %."),
    click.option("--displayed-only", is_flag=True, help="Let sums over the rows of a tree (modules, code) count only "
                 "what is shown."),
    click.option("--columns", multiple=True, metavar="COLUMN", help="Show only these columns, in this order, besides "
                 "those that identify a row (name, groupings)."),
    click.option("--unit", type=click.Choice(["ns", "us", "ms", "s"]), help="Unit of all times in text and markdown."),
)  # fmt: skip
"""What is counted and what is shown: the options of ViewRequest and Display."""
_DISPLAY: Final = ("sort", "ascending", "show", "hide", "start", "trim", "depth", "displayed_only", "average", "unit")
"""Fields of a Display whose options have the same names and values."""


def filters(command: options.Command) -> options.Command:
    """Give a command the options for what is counted and what is shown."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.command(epilog="Example: perfkit summary runs/baseline --view operators --sort self_device_ns --by shape")
@options.sources
@click.option("--view", "views", multiple=True, metavar="NAME", help="Show this view or group of views, or all. "
              "Repeat it or use commas for several; 'perfkit plugins' lists them.  "
              f"[default: {','.join(DEFAULT_VIEWS)}]")  # fmt: skip
@filters
@options.limit_option("20; all in json and csv")
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
    """Show tables of a profile.

    A SOURCE is a run folder, a trace file or a folder of trace files; several (one or more per rank) are read as one
    profile, rank by rank. Partials (--shard) are merged. Patterns are regular expressions of RE2. Events that --step,
    --filter, --kind and --device exclude are not counted; rows that --show, --hide, --start, --trim, --depth and --min
    exclude are counted, but not shown.
    """
    from perfkit_core.report.display import Display
    from perfkit_core.report.summary import ROWS, choose_views, cut, read_from, summary_report

    refuse_overwriting(output, sources)
    request = ViewRequest(
        by=tuple(options.names(given["by"])),
        steps=options.steps(given["steps"]),
        pattern=given["pattern"],
        kind=given["kind"],
        device=given["device"],
        native=given["native"],
    )
    if shard is not None:
        shard_views = choose_views(options.names(views) or DEFAULT_VIEWS)
        options.write_shard(shard, sources, output, shard_views, request, partial, given["average"])
        return
    chosen = renderer(format_name, output, without=("html",))
    display = Display(
        **{name: given[name] for name in _DISPLAY},
        minimums=dict(map(_minimum, options.names(given["minimums"]))),
        columns=tuple(options.names(given["columns"])),
        limit=(ROWS if limit is None else limit or None) if chosen.name in FOR_PEOPLE else None,
    )
    with options.profile(sources, partial, workers, scheduler) as profile:
        of_partials = options.views_of_partials(profile)
        chosen_views = choose_views(options.names(views) or of_partials or DEFAULT_VIEWS)
        report = summary_report(profile, chosen_views, request, display)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    # partials know the sources that they were made of
    emit(report if of_partials else read_from(report, sources), chosen, output)


def _minimum(text: str) -> tuple[str, float]:
    match = re.fullmatch(r"(?P<column>\w+)=(?P<value>.+)", text)
    if match is None:
        raise UsageError(f"--min {text!r} is not COLUMN=VALUE", "write it as in --min flops=1e6")
    try:
        return match["column"], parse_quantity(match["value"], family(match["column"]))
    except UsageError as error:
        raise UsageError(f"--min {match['column']}: {error.message}", error.hint) from None
