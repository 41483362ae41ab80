"""``perfkit summary``: print the tables of views."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perfkit_core.base.language.units import family, parse_quantity
from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, arguments, emit, refuse_overwriting, renderer
from perfkit_core.errors import UsageError
from perfkit_core.output.report import BRIEF_ROWS, DEFAULT_VIEWS
from perfkit_core.plugins.contracts import View, ViewRequest

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions

filters = options.adding(
    click.option("--by", multiple=True, metavar="GROUPING", help="Split the rows of views by this grouping: shape, "
                 "stack, stack=N (the N innermost frames), overload, thread, label, scope, module, phase, step, "
                 "device, rank, operator, stream, launch, category, … 'perfkit plugins' lists the groupings of each "
                 "view. VIEW.GROUPING, such as families.operator, splits only one view."),
    click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Count only events in these steps."),
    click.option("--filter", "pattern", metavar="REGEX", help="Count only events whose name matches."),
    click.option("--kind", metavar="REGEX", help="Count only events whose kind or category matches."),
    click.option("--device", metavar="REGEX", help="Count only events whose device matches."),
    click.option("--average", is_flag=True, help="Show the average step: divide sums by the number of steps."),
    click.option("--native", is_flag=True, help="Show the numbers that the framework's own profiler reports, where "
                 "they differ from perfkit's numbers."),
    click.option("--sort", metavar="COLUMN", help="Sort by this column, with the largest value first. COLUMN is a "
                 "column name as in --format json, or a grouping such as shape or thread."),
    click.option("--ascending", is_flag=True, help="Sort with the smallest value first."),
    click.option("--show", metavar="REGEX", help="Show only rows with a matching text; in a tree, rows with a matching "
                 "name."),
    click.option("--hide", metavar="REGEX", help="Hide rows with a matching text. Totals still include them."),
    click.option("--start", metavar="REGEX", help="In a tree, show only matching names and the rows below them."),
    click.option("--trim", metavar="REGEX", help="In a tree, hide matching names and the rows below them."),
    click.option("--depth", type=options.WholeNumber(), metavar="N", help="Show a tree down to level N; the roots are "
                 "level 0."),
    click.option("--min", "minimums", multiple=True, metavar="COLUMN=VALUE",
                 help="Show only rows whose value is at least VALUE. Examples: total_cpu_ns=1ms, flops=1e6, "
                 "self_cpu_ratio=5%. Units: ns, us, ms, s; B, KiB, MiB, GiB; KB, MB, GB (decimal); K, M, G, T "
                 "(thousand, million, …); %."),
    click.option("--displayed-only", is_flag=True, help="Exclude hidden rows from the sums of a tree. Only two "
                 "views support this: 'modules' and 'code'."),
    click.option("--columns", multiple=True, metavar="COLUMN", help="Show only these columns, in this order, after "
                 "the columns that identify a row (name and groupings)."),
    click.option("--unit", type=click.Choice(["ns", "us", "ms", "s"]), help="Use this unit for all times in text and "
                 "markdown."),
)  # fmt: skip
_DISPLAY: Final = ("sort", "ascending", "show", "hide", "start", "trim", "depth", "displayed_only", "average", "unit")
"""Options that are copied unchanged to the field of ``Display`` with the same name."""


@click.command(epilog="Example: perfkit summary runs/baseline --view operators --sort self_device_ns --by shape")
@options.sources
@click.option("--view", "views", multiple=True, metavar="NAME", help="Show this view or group of views; 'all' shows "
              "every view. Repeat the option or use commas for several views. 'perfkit plugins' lists all views.  "
              f"[default: {','.join(DEFAULT_VIEWS)}]")  # fmt: skip
@filters
@options.peaks
@options.limit_option("20; no limit in json and csv")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
@options.language
@options.reads
@options.many_ranks
def summary(
    sources: tuple[Path, ...],
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    read_options: ReadOptions,
    workers: int,
    scheduler: str | None,
    shard: str | None,
    **values: Any,
) -> None:
    """Show tables of a profile.

    A SOURCE is a run folder, a trace file or a folder of trace files. Several sources (one or more per rank) are read
    as one profile, rank by rank. If the SOURCEs are partial results that --shard wrote, they are merged.

    --step, --filter, --kind and --device select the events that are counted. --show, --hide, --start, --trim, --depth
    and --min select the rows that are shown; totals still include the hidden rows. A REGEX uses RE2 syntax and matches
    anywhere in the text."""
    from perfkit_core.api import TOGETHER_BYTES
    from perfkit_core.output.report.display import Display
    from perfkit_core.output.report.summary import ROWS, choose_views, cut, read_from, summary_report

    refuse_overwriting(output, sources)
    request = ViewRequest(
        by=tuple(options.names(values["by"])),
        steps=options.steps(values["steps"]),
        pattern=values["pattern"],
        kind=values["kind"],
        device=values["device"],
        native=values["native"],
        peaks=values["peaks"],
    )
    if shard is not None:
        shard_views = choose_views(options.names(views) or DEFAULT_VIEWS)
        options.write_shard(shard, sources, output, shard_views, request, read_options, values["average"])
        return
    minimums = options.names(values["minimums"])
    chosen = renderer(format_name, output, without=("html",))
    display = Display(
        **{name: values[name] for name in _DISPLAY},
        minimums=dict(_minimum(text, choose_views(options.names(views) or ["all"])) for text in minimums),
        columns=tuple(options.names(values["columns"])),
        limit=(ROWS if limit is None else limit or None) if chosen.name in FOR_PEOPLE else None,
    )
    together = 0 if views else TOGETHER_BYTES  # the first look follows waits to the last rank
    with options.profile(sources, read_options, workers, scheduler, together) as profile:
        of_partials = options.views_of_partials(profile)
        chosen_views = choose_views(options.names(views) or of_partials or DEFAULT_VIEWS)
        # The first look at a profile: nothing is chosen but steps.
        brief = (
            chosen.name in FOR_PEOPLE
            and not views
            and not of_partials
            and request == ViewRequest(steps=request.steps, peaks=request.peaks)
        )
        if brief and limit is None:
            display = replace(display, limit=BRIEF_ROWS)
        report = summary_report(profile, chosen_views, request, display, brief)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    if brief:
        report = replace(report, next=f"perfkit advise {arguments(sources, read_options)}")
    # Partial results already contain the paths of their sources.
    emit(report if of_partials else read_from(report, sources), chosen, output, brief and limit is None)


def _minimum(text: str, views: list[View]) -> tuple[str, float]:
    match = re.fullmatch(r"(?P<column>\w+)=(?P<value>.+)", text)
    if match is None:
        raise UsageError(f"--min {text!r} is not COLUMN=VALUE", "example: --min flops=1e6")
    view = next((view for view in views if match["column"] in {column.name for column in view.columns}), views[0])
    try:
        return match["column"], parse_quantity(match["value"], family(view.column(match["column"]).unit))
    except UsageError as error:
        raise UsageError(f"--min {match['column']}: {error.message}", error.hint) from None
