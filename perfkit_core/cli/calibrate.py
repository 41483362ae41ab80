"""``perfkit calibrate``: measures what tiny work costs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, renderer, working
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins

_NOTE: Final = (
    "Time of one call; host_OPERATOR_N is an operator on N elements, called from Python, alternating with the others."
)
_COLUMNS: Final = ("name", "p10_ns", "p50_ns", "p90_ns", "samples")


@click.command(epilog="Example: perfkit calibrate --framework torch --show")
@click.option("--framework", "frameworks", multiple=True, metavar="NAME", help="Measure only this framework. Repeat it "
              "or use commas for several.  [default: all that are installed]")  # fmt: skip
@click.option("--show", is_flag=True, help="Show earlier measurements; measure nothing.")
@click.option("--refresh", is_flag=True, help="Repeat earlier measurements.")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
def calibrate(
    frameworks: tuple[str, ...], show: bool, refresh: bool, format_name: str | None, output: Path | None
) -> None:
    """Measure the cost of tiny operators, launches and copies.

    perfkit advise uses the times for operators that would run on another device, where the recording does not show
    their cost there. This takes some seconds; the times are kept in the cache folder for each version of a framework.
    """
    import msgspec
    import pandas as pd

    from perfkit_core.calibration import calibrate
    from perfkit_core.report.model import Report, Section

    chosen = renderer(format_name, output, without=("html",))
    if show and refresh:
        raise UsageError("--show measures nothing, --refresh does", "give one of them")
    known = get_plugins().calibrators()
    names = options.names(frameworks)
    for name in names:
        if name not in known:
            raise UsageError(f"no plugin calibrates {name!r}", f"known: {', '.join(known) or 'none'}")
    wanted = [known[name] for name in names] or [one for one in known.values() if one.version() is not None]
    if not wanted:
        raise UsageError(f"none of {', '.join(known) or 'any framework'} is installed", "install one")
    sections, data = [], []
    for calibrator in wanted:
        framework = calibrator.framework
        calibration = None if refresh else calibrate.known(framework)
        if calibration is None and not show:
            with working(f"importing {framework}") as say:
                calibration = calibrate.calibrate(calibrator, say)
        if calibration is None:
            empty = f"not measured yet; perfkit calibrate --framework {framework} measures it"
            sections.append(Section(framework, framework, pd.DataFrame(columns=list(_COLUMNS)), empty=empty))
            continue
        threads = "" if calibration.threads is None else f", {calibration.threads} threads"
        place = f"{calibration.cpu}, {calibration.cpus} CPUs{threads}, {calibration.device or 'no device'}"
        title = f"{framework} {calibration.version} on {place}; {calibration.date}"
        rows = [[getattr(measurement, name) for name in _COLUMNS] for measurement in calibration.measurements]
        sections.append(Section(framework, title, pd.DataFrame(rows, columns=list(_COLUMNS)), note=_NOTE))
        data.append(msgspec.to_builtins(calibration))
    headline = (f"Kept in {calibrate.folder()}.",) if data else ()
    report = Report("perfkit calibrate", (), tuple(sections), headline=headline, data={"calibrations": data})
    emit(report, chosen, output)
