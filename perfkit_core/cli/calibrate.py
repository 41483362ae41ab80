"""``perfkit calibrate``: measure the cost of tiny operators, launches and copies, and the noise of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, renderer, working
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import get_plugins

_NOTE: Final = (
    "Each row shows the duration of one call. host_OPERATOR_N is an operator that Python calls on N elements; calls of "
    "different operators alternate."
)
_COLUMNS: Final = ("name", "p10_ns", "p50_ns", "p90_ns", "samples")


@click.command(epilog="Example: perfkit calibrate --noise 'python train.py'")
@click.option("--framework", "frameworks", multiple=True, metavar="NAME", help="Measure only this framework. Repeat "
              "the option or use commas for several frameworks.  [default: all installed frameworks]")  # fmt: skip
@click.option("--noise", "command", metavar="CMD", help="Run this shell command, a training, several times, and "
              "measure how much its equal runs differ.")  # fmt: skip
@click.option("--runs", type=options.WholeNumber(), default=8, show_default=True, metavar="N",
              help="Number of runs for --noise, at least 3. A warm-up run comes first.")  # fmt: skip
@click.option("--show", is_flag=True, help="Show the saved measurements without measuring.")
@click.option("--refresh", is_flag=True, help="Measure again, even if measurements are saved.")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
def calibrate(
    frameworks: tuple[str, ...],
    command: str | None,
    runs: int,
    show: bool,
    refresh: bool,
    format_name: str | None,
    output: Path | None,
) -> None:
    """Measure costs of this machine, or the noise of equal runs.

    The costs are those of tiny operators, launches and copies, and of recording an operator. perfkit advise uses them
    to predict the cost of moving an operator to another device, and of a step without the profiler. Costs that the
    recording itself shows have precedence. The measurement takes some seconds. The times are saved in the cache folder,
    separately for each version of a framework.

    With --noise, perfkit measures by how much equal runs of CMD differ, without a profiler, each run in a new process.
    perfkit compare then uses this for single recordings of this machine and framework."""
    import msgspec
    import pandas as pd

    from perfkit_core.measure.calibration import calibrate
    from perfkit_core.measure.verify import noise
    from perfkit_core.trace.model.report_data import Report, Section

    chosen = renderer(format_name, output, without=("html",))
    if show and refresh:
        raise UsageError("--show and --refresh cannot be combined", "--show never measures; --refresh always does")
    if command is not None:
        if show or refresh or frameworks:
            raise UsageError(
                "--noise cannot be combined with --framework, --show or --refresh", "give --noise CMD alone"
            )
        if runs < noise.FEWEST:
            raise UsageError(f"{runs} runs are too few to measure noise", f"give --runs {noise.FEWEST} or more")
        with working("measuring noise") as say:
            record = noise.measure(command, runs, say)
        emit(noise.report(record), chosen, output)
        return
    parts = {name: framework.calibrator() for name, framework in get_plugins().frameworks().items()}
    calibrators = {name: calibrator for name, calibrator in parts.items() if calibrator is not None}
    names, hint = options.names(frameworks), f"known: {', '.join(calibrators) or 'none'}"
    for name in names:
        if name not in calibrators:
            raise UsageError(f"no plugin calibrates {name!r}", hint)
    selected = names or [name for name, calibrator in calibrators.items() if calibrator.version() is not None]
    if not selected:
        raise UsageError("no framework that can be calibrated is installed", hint)
    sections, data = [], []
    for framework in selected:
        calibration = None if refresh else calibrate.newest(framework)
        if calibration is None and not show:
            with working(f"importing {framework}") as say:
                calibration = calibrate.calibrate(framework, calibrators[framework], say)
        if calibration is None:
            empty = f"not measured yet; run perfkit calibrate --framework {framework}"
            sections.append(Section(framework, framework, pd.DataFrame(columns=list(_COLUMNS)), empty=empty))
            continue
        threads = "" if calibration.threads is None else f", {calibration.threads} threads"
        machine = f"{calibration.cpu}, {calibration.cpus} CPUs{threads}, {calibration.device or 'no device'}"
        title = f"{framework} {calibration.version} on {machine}; {calibration.date}"
        rows = [[getattr(measurement, name) for name in _COLUMNS] for measurement in calibration.measurements]
        sections.append(Section(framework, title, pd.DataFrame(rows, columns=list(_COLUMNS)), note=_NOTE))
        data.append(msgspec.to_builtins(calibration))
    sections += noise.sections()
    headline = (f"The measurements are saved in {calibrate.folder()}.",) if data else ()
    report = Report("perfkit calibrate", (), tuple(sections), headline=headline, data={"calibrations": data})
    emit(report, chosen, output)
