"""``perfkit compare``: two runs side by side, whatever their frameworks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer
from perfkit_core.cli.progress import loaded, working
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.report.model import Report


@click.command(epilog="Example: perfkit compare runs/torch runs/paddle -o compare.html")
@click.argument("base", metavar="A", type=options.LOCATION)
@click.argument("other", metavar="B", type=options.LOCATION)
@click.option("--view", "views", multiple=True, metavar="NAME", help="Only this table of the comparison; several: "
              "repeat it or use commas.")  # fmt: skip
@options.limit_option("without it what fits, and all in json and csv")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html")
@options.output
@options.partial
def compare(
    base: Path,
    other: Path,
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
) -> None:
    """Compare two profiles: A is the base, B the other.

    Operators are matched by their canonical names, so the two may come from different frameworks.
    """
    chosen = renderer(format_name, output)
    profiles = loaded([base], partial), loaded([other], partial)
    from perfkit_core.comparison import comparison_report
    from perfkit_core.report.summary import cut

    with working("comparing"):
        report = _only(comparison_report(*profiles), options.names(views))
    if limit is not None and chosen.name in FOR_PEOPLE:
        report = replace(report, sections=tuple(replace(s, limit=limit or None) for s in report.sections))
    elif chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    emit(report, chosen, output)


def _only(report: Report, names: list[str]) -> Report:
    known = {section.name: section for section in report.sections}
    for name in names:
        if name not in known:
            raise UsageError(f"the comparison has no table {name!r}", f"known: {', '.join(known)}")
    return replace(report, sections=tuple(known[name] for name in names)) if names else report
