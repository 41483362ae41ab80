"""What ``perfkit summary`` counts and what it shows: the options, and the ViewRequest and Display made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perfkit_core.cli import options
from perfkit_core.cli.options import Whole
from perfkit_core.errors import UsageError
from perfkit_core.language.units import family, parse_quantity
from perfkit_core.plugins.contracts import ViewRequest

if TYPE_CHECKING:
    from perfkit_core.report.display import Display

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--by", multiple=True, metavar="GROUPING", help="Split the rows, where the view can: shape, stack, "
                 "stack=N (innermost frames), overload, thread, label, scope, module, phase, step, device, rank, "
                 "operator, stream, launch, category, … (a view names those it knows when it does not know one); of "
                 "one view only: families.operator."),
    click.option("--step", "steps", multiple=True, metavar="N|N-M", help="Count only these steps."),
    click.option("--filter", "pattern", metavar="REGEX", help="Count only events whose name contains a match (RE2)."),
    click.option("--kind", metavar="REGEX", help="Count only events whose kind or category contains a match."),
    click.option("--device", metavar="REGEX", help="Count only events whose device contains a match."),
    click.option("--average", is_flag=True, help="Sums for one step: only what belongs to the steps, divided by their "
                 "number."),
    click.option("--native", is_flag=True, help="The numbers of the framework's own tables where ours differ."),
    click.option("--sort", metavar="COLUMN", help="Column to sort by, the largest first; named as in --format json, "
                 "or as a grouping (shape, thread)."),
    click.option("--ascending", is_flag=True, help="The smallest first."),
    click.option("--show", metavar="REGEX", help="Show only rows whose text contains a match (in a tree: whose name)."),
    click.option("--hide", metavar="REGEX", help="Leave out rows whose text contains a match; they stay counted."),
    click.option("--start", metavar="REGEX", help="Begin a tree at the rows whose name contains a match."),
    click.option("--trim", metavar="REGEX", help="End a tree above the rows whose name contains a match."),
    click.option("--depth", type=Whole(), metavar="N", help="Deepest level of a tree; roots are 0."),
    click.option("--min", "minimums", multiple=True, metavar="COLUMN=VALUE",
                 help="Show only rows that reach it: total_cpu_ns=1ms, flops=1e6, self_cpu_ratio=5%. Units: ns, us, "
                 "ms, s; B, KiB, MiB, GiB, KB, MB, GB (decimal); K, M, G, T (thousand, million, …); %."),
    click.option("--displayed-only", is_flag=True, help="Sums over the rows below (modules, code) count only what is "
                 "shown."),
    click.option("--columns", multiple=True, metavar="COLUMN", help="Show only these, in this order, and "
                 "what tells the rows apart (name, groupings)."),
    click.option("--unit", type=click.Choice(["ns", "us", "ms", "s"]), help="Unit of all times, where people read."),
)  # fmt: skip

_MINIMUM: Final = re.compile(r"(?P<column>\w+)=(?P<value>.+)")


def filters(command: Command) -> Command:
    """Give a command all options of this file."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def request(given: Mapping[str, Any]) -> ViewRequest:
    """What is to be counted, from the values of the options. Raises UsageError."""
    return ViewRequest(
        by=tuple(options.names(given["by"])),
        steps=options.steps(given["steps"]),
        pattern=given["pattern"],
        kind=given["kind"],
        device=given["device"],
        native=given["native"],
    )


def display(given: Mapping[str, Any], limit: int | None) -> Display:
    """What is to be shown, from the values of the options. Raises UsageError."""
    from perfkit_core.report.display import Display

    same = ("sort", "ascending", "show", "hide", "start", "trim", "depth", "displayed_only", "average", "unit")
    return Display(
        **{name: given[name] for name in same},
        minimums=dict(map(_minimum, options.names(given["minimums"]))),
        columns=tuple(options.names(given["columns"])),
        limit=limit,
    )


def _minimum(text: str) -> tuple[str, float]:
    match = _MINIMUM.fullmatch(text)
    if match is None:
        raise UsageError(f"--min {text!r} is not COLUMN=VALUE", "write it as in --min flops=1e6")
    try:
        return match["column"], parse_quantity(match["value"], family(match["column"]))
    except UsageError as error:
        raise UsageError(f"--min {match['column']}: {error.message}", error.hint) from None
