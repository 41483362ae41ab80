"""``perfkit calibrate``: measures what tiny work costs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, renderer, working
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from perfkit_core.calibration.model import Calibration
    from perfkit_core.plugins.contracts import Calibrator
    from perfkit_core.report.model import Section

_NOTE: Final = (
    "Time of one call; host_OPERATOR_N is an operator on N elements, called from Python in turns with the others."
)


@click.command(epilog="Example: perfkit calibrate --framework torch --show")
@click.option("--framework", "frameworks", multiple=True, metavar="NAME",
              help="Only this framework; repeat it or use commas.  [default: all that are installed]")  # fmt: skip
@click.option("--show", is_flag=True, help="Only show what is known; measure nothing.")
@click.option("--refresh", is_flag=True, help="Measure again what is known.")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
def calibrate(
    frameworks: tuple[str, ...], show: bool, refresh: bool, format_name: str | None, output: Path | None
) -> None:
    """Measure what tiny operators, launches and copies cost here.

    perfkit advise uses it for operators that would run elsewhere, where the recording itself does not show what they
    cost there. It takes some seconds, and is kept in your cache folder for each version of a framework.
    """
    chosen = renderer(format_name, output, without=("html",))
    if show and refresh:
        raise UsageError("--show measures nothing, --refresh does", "give one of them")
    from perfkit_core.calibration import calibrate
    from perfkit_core.report.model import Report

    found = [_found(one, show, refresh) for one in _wanted(options.names(frameworks))]
    sections = tuple(_section(name, one) for name, one in found)
    head = (f"Kept in {calibrate.folder()}.",) if any(one for _, one in found) else ()
    data = {"calibrations": [_plain(one) for _, one in found if one]}
    emit(Report("perfkit calibrate", (), sections, headline=head, data=data), chosen, output)


def _wanted(names: list[str]) -> Iterator[Calibrator]:
    """Those that are asked for, or all whose framework is installed. Raises UsageError."""
    known = get_plugins().calibrators()
    for name in names:
        if name not in known:
            raise UsageError(f"nothing measures {name!r}", f"known: {', '.join(known) or 'none'}")
    wanted = [known[name] for name in names] or [one for one in known.values() if one.version() is not None]
    if not wanted:
        raise UsageError(f"none of {', '.join(known) or 'any framework'} is installed", "install one")
    yield from wanted


def _found(one: Calibrator, show: bool, refresh: bool) -> tuple[str, Calibration | None]:
    from perfkit_core.calibration import calibrate as calibrating

    known = None if refresh else calibrating.known(one.framework)
    if known is None and not show:
        with working(f"importing {one.framework}") as say:
            known = calibrating.calibrate(one, say)
    return one.framework, known


def _section(framework: str, found: Calibration | None) -> Section:
    import pandas as pd

    from perfkit_core.report.model import Section

    columns = ["name", "p10_ns", "p50_ns", "p90_ns", "samples"]
    rows = [(one.name, one.p10_ns, one.p50_ns, one.p90_ns, one.samples) for one in found.measurements] if found else []
    title = framework if found is None else f"{framework} {found.version} on {_place(found)}"
    empty = f"not measured yet; perfkit calibrate --framework {framework} measures it"
    return Section(framework, title, pd.DataFrame(rows, columns=columns), note=_NOTE if found else "", empty=empty)


def _place(found: Calibration) -> str:
    threads = "" if found.threads is None else f", {found.threads} threads"
    return f"{found.cpu}, {found.cpus} CPUs{threads}, {found.device or 'no device'}; {found.date}"


def _plain(found: Calibration) -> object:
    import msgspec

    return msgspec.to_builtins(found)
