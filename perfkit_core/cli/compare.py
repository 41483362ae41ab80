"""``perfkit compare``: runs side by side, whatever their frameworks.

What the options of ``perfkit compare`` ask for.

Which runs does ``perfkit compare`` compare? What its arguments name, and what each is called.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, loaded, renderer, told, working
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.language.units import SHARES, parse_quantity
from perfkit_core.system.paths import as_path, exists, is_remote

if TYPE_CHECKING:
    from perfkit_core.compare.pair import Asked
    from perfkit_core.model.trace import Trace
    from perfkit_core.report.model import Report


def asked(given: Mapping[str, Any], runs: int) -> Asked:
    """Normalisation, gate and noise, from the values of the options. Raises UsageError."""
    from perfkit_core.compare.gate.conditions import parsed
    from perfkit_core.compare.pair import Asked

    per = given["per"]
    if given["tokens"] and per != "token":
        raise UsageError("--tokens is for --per token", "--per token --tokens A,B")
    if given["samples"] and per not in (None, "sample"):
        raise UsageError("--samples is for --per sample", "--per sample --samples A,B")
    name = "--tokens" if per == "token" else "--samples"
    amounts = _amounts(given["tokens"] if per == "token" else given["samples"], runs, name)
    return Asked(per, amounts, tuple(map(parsed, given["conditions"])), _share(given["noise"]))


def _amounts(text: str | None, runs: int, name: str) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,17}", part) for part in parts) or len(parts) not in (1, runs):
        raise UsageError(f"{name} {text!r} is not a whole number for each of the {runs} runs", f"{name} 32,64")
    numbers = [int(part) for part in parts]
    return tuple(numbers * runs if len(numbers) == 1 else numbers)


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    hint = "write it in percent, as in --noise 2%"
    try:
        share = parse_quantity(text, SHARES, needs_unit=True)
    except UsageError as error:
        raise UsageError(f"--noise {error.message}", hint) from None
    if not 0 <= share <= 1:
        raise UsageError(f"--noise {text!r} is not between 0% and 100%", hint)
    return share


@dataclass(frozen=True, slots=True)
class Named:
    """One run: a short name and the places of its captures."""

    name: str
    places: tuple[Path, ...]


def named_runs(given: Sequence[str], baseline: Sequence[str]) -> list[Named]:
    """The runs in their order, those of ``--baseline`` first, as captures of one run. An argument may name several
    captures: separated by commas, or by a pattern that the shell left alone. Of many places, those that hold no profile
    are left out, and told. Raises UsageError and SourceError."""
    base = tuple(place for text in baseline for place in _captures(text))
    others = [tuple(_captures(text)) for text in given]
    without = [one for one in others if not set(one) <= set(base)]  # DIR/* names the baseline once more
    runs = [base, *(without or others)] if base else others
    runs = _profiles(runs) if len(runs) > 2 else runs
    if len(runs) < 2:
        raise UsageError("one run cannot be compared", "name two or more: perfkit compare A B, or DIR/*")
    from perfkit_core.compare.pair import distinguishing

    labels = distinguishing([places[0] for places in runs])
    return [Named(name, places) for name, places in zip(labels, runs, strict=True)]


def earlier_pair(given: Sequence[str], runs: int) -> list[Named]:
    """The two runs of ``--against``, each of one capture or more. Raises UsageError and SourceError."""
    if runs != 2:
        raise UsageError(f"--against is for two runs, not {runs}", "perfkit compare A B --against OLD_A OLD_B")
    return [Named(text, tuple(_captures(text))) for text in given]


def _captures(text: str) -> Iterator[Path]:
    """The places that one argument means."""
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if not parts:
        raise UsageError(f"{text!r} names no run", "captures of one run are separated by commas: A1,A2")
    whole = as_path(text)
    if is_remote(whole) or exists(whole):
        yield whole
        return
    for part in parts:
        found = sorted(glob.glob(part)) if glob.has_magic(part) else [part]  # noqa: PTH207 (it may be absolute)
        if not found:
            raise SourceError(f"{part}: nothing has such a name", "check the pattern")
        yield from map(as_path, found)


def _profiles(runs: list[tuple[Path, ...]]) -> list[tuple[Path, ...]]:
    """Those that a reader knows: a folder of runs holds pages and tables, too. A single missing one is an error."""
    from perfkit_core.report.run_list import recognised

    known = [places for places in runs if len(places) > 1 or not exists(places[0]) or recognised(places[0])]
    left = [str(places[0]) for places in runs if places not in known]
    if left:
        more = f" and {len(left) - 3} more" if left[3:] else ""
        click.echo(f"left out, as no profile: {', '.join(left[:3])}{more}", err=True)
    return known


FAILED: Final = 1
"""Exit code where the gate fails."""
_COMMENT: Final = ("gate", "runs", "new_step_time", "new_causes", "new_layers", "step_time", "normalised", "devices",
                   "causes", "step_parts")  # fmt: skip
"""Tables of a Markdown comment, which is read among others; ``--view`` asks for more."""
_COMMENT_ROWS: Final = 10
_WHOLE: Final = ("gate", "runs", "new_waterfall", "new_step_time", "waterfall", "step_time", "step_parts")
"""Tables that no limit cuts: a condition must not disappear, and sums have all of their parts."""


@click.command(epilog="Example: perfkit compare runs/main runs/change --fail-on 'step_time > 3%' --format markdown")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--baseline", multiple=True, metavar="RUN", help="The base; all other runs are compared with it. "
              "Repeat it for several captures.  [default: the first run]")  # fmt: skip
@click.option("--against", nargs=2, metavar="BASE OTHER", help="What is new since this earlier pair: of two runs that "
              "differ in much, only what these two did not differ by.")  # fmt: skip
@click.option("--fail-on", "conditions", multiple=True, metavar="CONDITION", help="End with code 1 where it holds "
              "beyond noise: 'step_time > 3%', 'operators.self_cpu_ns[matmul] > +2ms', "
              "'memory_places.peak_bytes[cpu] > 1GiB' (that of a whole capture). Repeat it for several.")  # fmt: skip
@click.option("--per", type=click.Choice(["sample", "token", "flop"]), help="Compare steps by their work.")
@click.option("--samples", metavar="A,B", help="Samples of a step of each run, where they are not recorded.")
@click.option("--tokens", metavar="A,B", help="Tokens of a step of each run.")
@click.option("--noise", metavar="SHARE%", help="Standard deviation of the step of equal processes, for single "
              "captures: 2% on a machine of your own.  [default: 15% of host time, 2% of device time]")  # fmt: skip
@click.option("--view", "views", multiple=True, metavar="NAME", help="Only this table of the comparison; several: "
              "repeat it or use commas; all.")  # fmt: skip
@options.limit_option("without it what fits, and all in json and csv")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html; markdown is for a comment: the verdict, and ten rows")
@options.output
@options.language
@options.partial
def compare(
    runs: tuple[str, ...],
    baseline: tuple[str, ...],
    against: tuple[str, str] | None,
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
    **given: Any,
) -> int:
    """Compare profiles: the first is the base, or --baseline.

    A RUN is a run folder or trace file; several captures of the same training, separated by commas or as a quoted
    pattern ('runs/main-*'), are pooled. Of two runs it shows where the difference comes from, of more a column each.
    Operators are matched by their canonical names, so runs may come from different frameworks. These differ in much:
    with --against an earlier pair of them, only what is new is named.

    Exit codes: 0, 1 a condition of --fail-on holds, 2 a run or an option is wrong.
    """
    from perfkit_core.cli import output as overwriting

    chosen = renderer(format_name, output)
    named = named_runs(runs, baseline)
    wanted = asked(given, len(named))
    earlier = earlier_pair(against, len(named)) if against else []
    overwriting.check(output, [place for one in (*named, *earlier) for place in one.places])
    captures = [[loaded([place], partial) for place in one.places] for one in (*named, *earlier)]
    with working("comparing"):
        report = _report([one.name for one in named], captures, wanted)
    short = chosen.name == "markdown" and not views
    report = _only(report, list(_COMMENT) if short else options.names(views), known_only=short)
    emit(_cut(report, chosen.name, _COMMENT_ROWS if short and limit is None else limit), chosen, output)
    told(output)
    return _verdict(report)


def _report(names: Sequence[str], captures: Sequence[Sequence[Trace]], wanted: Asked) -> Report:
    from perfkit_core.compare.change import against_report
    from perfkit_core.compare.multi_run import Run, several_report
    from perfkit_core.compare.report import comparison_report

    if len(captures) > len(names):
        return against_report((captures[0], captures[1]), (captures[2], captures[3]), wanted, names)
    if len(names) == 2:
        return comparison_report(captures[0], captures[1], wanted, names)
    return several_report([Run(name, tuple(one)) for name, one in zip(names, captures, strict=True)], wanted)


def _cut(report: Report, format_name: str, limit: int | None) -> Report:
    from perfkit_core.report.summary import cut

    if format_name not in FOR_PEOPLE:
        return cut(report, limit or None)
    if limit is None:
        return report
    shorter = (s if s.name in _WHOLE else replace(s, limit=limit or None) for s in report.sections)
    return replace(report, sections=tuple(shorter))


def _only(report: Report, names: list[str], known_only: bool = False) -> Report:
    known = {section.name: section for section in report.sections}
    if known_only:
        names = [name for name in names if name in known]
    for name in names:
        if name not in known and name != "all":
            hint = f"{_elsewhere(name, known)}known: {', '.join(known)}, all"
            raise UsageError(f"the comparison has no table {name!r}", hint)
    if not names or "all" in names:
        return report
    return replace(report, sections=tuple(known[name] for name in names))


def _elsewhere(name: str, tables: Collection[str]) -> str:
    """How to get what is none of the tables of this comparison."""
    from perfkit_core.plugins.manager import get_plugins
    from perfkit_core.report.summary import COMPARED

    for table, view in COMPARED.items():
        if name == view and table in tables:
            return f"its table is {table!r}; "
    if name == "gate":
        return "it is the table of conditions: --fail-on 'step_time > 3%'; "
    if name in get_plugins().views():
        return f"a condition compares a number of this view: --fail-on '{name}.COLUMN[ROW] > 3%'; "
    return ""


def _verdict(report: Report) -> int:
    """The exit code; what failed is told where a log shows it, wherever the report goes."""
    gates = [("", report.data.get("gate", ()))]
    gates += [(f"{run['name']}: ", run["gate"]) for run in report.data.get("runs", ())]
    told = [(one["result"], f"{run}{one['condition']}") for run, gate in gates for one in gate]
    for result, text in told:
        if result != "passed":
            click.echo(f"perfkit: gate {result}: {text}", err=True)
    return FAILED if any(result == "failed" for result, _ in told) else 0
