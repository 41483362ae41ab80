"""``perfkit demo``: find the faults of a slow training, fix them, and measure whether the advice was right.

Every program runs in a new process with one thread. The order of the runs is symmetric, so that a machine that becomes
slower or faster changes both programs alike."""

from __future__ import annotations

import datetime
import difflib
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.base.language.messages import Text, mark, message, render, say
from perfkit_core.base.language.units import format_duration, format_ratio
from perfkit_core.base.system.packages import installed
from perfkit_core.cli import options
from perfkit_core.cli.output import renderer, working, write
from perfkit_core.errors import CaptureError
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perfkit_core.advice.advice import Advices
    from perfkit_core.measure.verify.outcome import Outcome
    from perfkit_core.measure.verify.prediction import Predicted
    from perfkit_core.measure.verify.runs import Side
    from perfkit_core.plugins.frameworks import Demo
    from perfkit_core.trace.model.trace import Trace

ROUNDS: Final = 3
"""Number of recordings of each program."""
_PROGRAMS: Final[dict[Side, str]] = {"base": "before", "change": "after"}
_THREADS: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_BUSY: Final = 0.1
"""Minimum share of the step time lost to other processes that the output reports."""
_WIDTH: Final = 100
_VERDICTS: Final = {
    "verified": mark("verified"), "helps": mark("helps"), "slower": mark("slower"), "refuted": mark("refuted"),
    "helps, more than predicted": mark("helps, more than predicted"),
    "helps, less than predicted": mark("helps, less than predicted"),
    "no change within noise": mark("no change within noise"), "cannot tell": mark("cannot tell"),
}  # fmt: skip


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), metavar="DIR",
              show_default=True, help="Write programs, recordings and pages to this folder. The folder is created if "
              "it does not exist.")  # fmt: skip
@options.language
def demo(output: Path) -> None:
    """Find and fix faults of a slow training, and measure the gain.

    The demo trains a small model in every installed framework. The training has two planted faults: each step makes
    its batch from Python lists, and each step writes a log. The demo records the training, shows what perfkit advises,
    applies the fix, and compares the predicted saving with the measured one. It takes one to two minutes.

    The programs, the recordings and HTML pages are in DIR."""
    from perfkit_core.base.system import processes
    from perfkit_core.measure.verify import ledger
    from perfkit_core.measure.verify.outcome import record

    recorders = get_plugins().recorders()
    trainings_of = {name: recorder.demo for name, recorder in recorders.items() if recorder.demo is not None}
    trainings = [_Training(name, trainings_of[name], output / name) for name in trainings_of if installed(name)]
    if not trainings:
        packages = " or ".join(f'"perfkit[{name}]"' for name in trainings_of) or "perfkit"
        raise CaptureError("no framework is installed", f"pip install {packages}")
    frameworks = [training.framework for training in trainings]
    _show(message("Training a small classifier with two planted faults in {frameworks:and}.", frameworks=frameworks))
    order = [side for at in range(ROUNDS) for side in (list(_PROGRAMS), list(_PROGRAMS)[::-1])[at % 2]]
    with working("starting") as show, processes.ended_by_signals():
        for training in trainings:
            training.write_programs()
            training.record(order[0], show)
        for training in trainings:
            training.advise(show)
    for training in trainings:
        _show("", *training.finding())
    with working("starting") as show, processes.ended_by_signals():
        for side, training in itertools.product(order[1:], trainings):
            training.record(side, show)
        show("writing the pages")
        pages = list(_pages(trainings, output))
    results = [(training, training.verified()) for training in trainings]
    for _, result in results:
        ledger.append(output / "ledger.jsonl", record(result))
    _show("", _table(results), *_remarks(results), *_between_frameworks(trainings))
    for missing in (name for name in trainings_of if name not in frameworks):
        text = mark('{framework} is not installed. To compare with it: pip install "perfkit[{framework}]"')
        _show(message(text, framework=missing))
    _show(message("Pages in {folder}: {pages:list}", folder=str(output), pages=[page.name for page in pages]))
    _show(message("Open {page} in a browser: the slow training, and the advice on it.", page=str(pages[0])))


@dataclass(slots=True)
class _Training:
    """The demo of one framework: its two programs in ``folder``, and what was recorded of them."""

    framework: str
    demo: Demo
    folder: Path
    traces: dict[Side, list[Trace]] = field(default_factory=lambda: {"base": [], "change": []})
    advices: Advices | None = None

    def program(self, side: Side) -> Path:
        return self.folder / f"{_PROGRAMS[side]}.py"

    def write_programs(self) -> None:
        text = self.demo.script.read_text(encoding="utf-8")
        write(text, self.program("base"))
        for fault, fix in self.demo.fix.items():
            text = text.replace(fault, fix)
        write(text, self.program("change"))

    def command(self, side: Side, *arguments: str) -> str:
        return shlex.join([sys.executable, str(self.program(side)), *arguments])

    def record(self, side: Side, show: Callable[[str], None]) -> None:
        """Run a program in a new process, and read what it recorded. Raises CaptureError."""
        from perfkit_core.measure.verify import runs
        from perfkit_core.readers.load import load
        from perfkit_core.trace.storage.store import INCOMPLETE_MARK, SUFFIX

        number = len(self.traces[side]) + 1
        run_dir = self.folder / f"{_PROGRAMS[side]}-{number}"
        for old in (*run_dir.glob(f"*{SUFFIX}"), run_dir / INCOMPLETE_MARK):
            old.unlink(missing_ok=True)  # the recording of an earlier demo
        show(f"{self.program(side)}: recording {number} of {ROUNDS}")
        runs.run(self.command(side, str(run_dir)), {**os.environ, **_THREADS})
        self.traces[side].append(load(run_dir))

    def advise(self, show: Callable[[str], None]) -> None:
        from perfkit_core.advice.engine import advise

        show(f"{self.framework}: predicting what changes save")
        self.advices = advise(self.traces["base"][0], rules=self.demo.rules)

    def finding(self) -> Iterator[RenderableType | Text]:
        """Yield the advice on the first recording, and the fix."""
        from rich.padding import Padding
        from rich.text import Text as Line

        from perfkit_core.advice import reports, text

        assert self.advices is not None
        program, version = self.program("base"), self.traces["base"][0].meta.framework_version or ""
        title = say("{program} with {name} {version}", program=str(program), name=self.framework, version=version)
        yield Line(title, "bold")
        yield from reports.headline(self.advices, "step")
        for number, advice in enumerate(self.advices.advice, 1):
            p = advice.prediction
            low, mid, high = (ns or 0 for ns in (p.saving_p10_ns, p.saving_ns, p.saving_p90_ns))
            share = _interval(mid / p.base_ns, low / p.base_ns, high / p.base_ns)
            yield say("{number}. {title}: saves {share}", number=number, title=advice.title, share=share)
            what = text.sentence(advice.candidate.what).replace(str(program.resolve()), program.name)
            yield Padding(what, (0, 0, 0, 3))
        profiler = text.profiler_time(self.advices.base, "step")
        if profiler is not None:
            yield profiler
        yield message("The fix, in {program}:", program=str(self.program("change")))
        before, after = (self.program(side).read_text(encoding="utf-8").splitlines() for side in _PROGRAMS)
        for line in difflib.unified_diff(before, after, n=0):
            if not line.startswith(("---", "+++", "@")):
                yield Line(f"   {line[0]} {line[1:].strip()}", "red" if line[0] == "-" else "green")

    def step_ns(self, side: Side) -> list[int]:
        """Return the median step time of each recording in ns, without the profiler. Raises CaptureError."""
        times = [trace.timed_steps.unprofiled_ns for trace in self.traces[side]]
        if None in times:
            raise CaptureError(f"{self.program(side)} timed no step without the profiler")
        return [time for time in times if time is not None]

    def verified(self) -> Outcome:
        """Return the outcome of the fix. The profiler is off in the steps that are compared."""
        from perfkit_core.measure.verify.outcome import judged
        from perfkit_core.measure.verify.runs import Metric, Plan, Run

        values = [(at, side, ns) for side in _PROGRAMS for at, ns in enumerate(self.step_ns(side), 1)]
        measured = [Run(at, side, ns, (self.framework,)) for at, side, ns in sorted(values)]
        plan = Plan(self.command("base"), self.command("change"), Metric())
        return judged(
            plan, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), measured, self.predicted()
        )

    def predicted(self) -> Predicted | None:
        from perfkit_core.measure.verify.prediction import Predicted

        p = None if self.advices is None else self.advices.combined
        if p is None or p.p10_ns is None or p.p50_ns is None or p.p90_ns is None:
            return None
        return Predicted(
            p.base_ns, p.p10_ns, p.p50_ns, p.p90_ns, framework=self.framework,
            saving_p10_ns=p.saving_p10_ns, saving_p90_ns=p.saving_p90_ns,
        )  # fmt: skip


def _table(results: Sequence[tuple[_Training, Outcome]]) -> RenderableType:
    """Return the table of predicted and measured savings, with one row for each framework."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", say("Step, before → after"), say("Predicted saving"), say("Measured saving")):
        table.add_column(title, no_wrap=True)
    table.add_column(say("Verdict"), overflow="fold")
    for training, outcome in results:
        measured, predicted, promise = outcome.measured, outcome.predicted, "–"
        if predicted is not None:
            promise = _interval(predicted.saving, predicted.saving_low, predicted.saving_high)
        times = f"{format_duration(measured.base)} → {format_duration(measured.change)}"
        saving = _interval(measured.saving, measured.saving_low, measured.saving_high)
        table.add_row(training.framework, times, promise, saving, say(_VERDICTS[outcome.verdict.value]))
    return table


def _remarks(results: Sequence[tuple[_Training, Outcome]]) -> Iterator[Text]:
    """Yield how the table was measured, and what disturbed the measurement."""
    noise = [f"{format_ratio(outcome.measured.noise)} ({training.framework})" for training, outcome in results]
    text = mark(
        "Medians of {count} processes of each program, without the profiler. Intervals: p10 to p90 predicted, 95% "
        "measured. Equal processes may differ by up to {noise:list}."
    )
    yield message(text, count=ROUNDS, noise=noise)
    traces = [trace for training, _ in results for side in training.traces.values() for trace in side]
    lost = sorted(trace.timed_steps.preempted for trace in traces)[len(traces) // 2]
    if lost >= _BUSY:
        text = mark(
            "Other processes took {share:ratio} of the recorded step time. The step times in the table exclude it."
        )
        yield message(text, share=lost)
    unsure = [training.framework for training, outcome in results if outcome.verdict.outcome == "abstained"]
    if unsure:
        text = mark("{frameworks:and}: the difference may be noise. Repeat the demo on a quieter machine.")
        yield message(text, frameworks=unsure)


def _between_frameworks(trainings: Sequence[_Training]) -> Iterator[Text]:
    """Yield how the fixed programs of each pair of frameworks compare."""
    from perfkit_core.measure.verify.statistics import measured

    for base, other in itertools.combinations(trainings, 2):
        result = measured(base.step_ns("change"), other.step_ns("change"))
        text = mark("Without the faults, a step takes {first:ns} with {base} and {second:ns} with {other}: {which}.")
        conclusion = message("noise may explain the difference")
        if result.better or result.worse:
            conclusion = message("{name} is faster", name=other.framework if result.better else base.framework)
        names = {"base": base.framework, "other": other.framework}
        yield message(text, first=result.base, second=result.change, which=conclusion, **names)


def _pages(trainings: Sequence[_Training], output: Path) -> Iterator[Path]:
    """Write a page on each slow training, on each fix, and on each pair of frameworks. Yield the pages."""
    from perfkit_core.compare.report import comparison_report
    from perfkit_core.pages.profile import run_report

    html, reports = renderer("html"), {}
    for training in trainings:
        before, after = training.traces.values()
        reports[f"{training.framework}.html"] = run_report(before[0])
        reports[f"{training.framework}-fix.html"] = comparison_report(before, after, names=list(_PROGRAMS.values()))
    for base, other in itertools.combinations(trainings, 2):
        names = base.framework, other.framework
        file = "compare.html" if len(trainings) == 2 else f"compare-{'-'.join(names)}.html"
        reports[file] = comparison_report(base.traces["change"], other.traces["change"], names=names)
    for name, report in reports.items():
        write(html.render(report), output / name)
        yield output / name


def _interval(mid: float, low: float, high: float) -> str:
    return say("{mid:ratio} ({low:ratio} to {high:ratio})", mid=mid, low=low, high=high)


def _show(*parts: RenderableType | Text) -> None:
    """Print the parts, wrapped to the terminal and to at most ``_WIDTH`` columns."""
    from rich.console import Console
    from rich.text import Text as Line

    from perfkit_core.base.language.messages import Message

    console = Console(highlight=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    with console.capture() as shown:
        for part in parts:
            console.print(Line(render(part)) if isinstance(part, (str, Message)) else part)
    for line in shown.get().splitlines():  # rich fills cells and indented texts with spaces
        click.echo(line.rstrip())
