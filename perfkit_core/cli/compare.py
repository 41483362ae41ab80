"""``perfkit compare``: compare two or more runs, which may come from different frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perfkit_core.base.language.units import SHARES, parse_quantity
from perfkit_core.base.system.paths import as_path, exists, is_remote
from perfkit_core.cli import options
from perfkit_core.cli.output import (
    FOR_PEOPLE,
    arguments,
    echo,
    emit,
    loaded,
    refuse_overwriting,
    renderer,
    say_written,
    working,
)
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.plugins.manager import get_plugins

if TYPE_CHECKING:
    from perfkit_core.compare.pair import CompareOptions
    from perfkit_core.readers.read_options import ReadOptions
    from perfkit_core.trace.model.report_data import Report

FAILED: Final = 1
"""Exit code if a limit of ``--fail-on`` is exceeded beyond noise."""
_COMMENT: Final = (
    "gate", "runs", "serving", "new_step_time", "new_waterfall", "waterfall", "normalised", "causes", "new_causes",
    "new_layers", "kernels", "unmatched", "step_parts", "step_time", "devices", "memory_categories", "memory_peak",
)  # fmt: skip
"""Tables in Markdown output, which is a comment on a change, unless ``--view`` selects others."""
_COMMENT_ROWS: Final = 10
_SCREEN_ROWS: Final = 10
_UNLIMITED: Final = ("gate", "runs", "new_waterfall", "new_step_time", "waterfall", "step_time", "step_parts")
"""Tables that ``--limit`` does not shorten: the conditions of --fail-on, the runs, and the parts of a total."""


@click.command(epilog="Example: perfkit compare runs/main runs/change --fail-on 'step_time > 3%' --format markdown")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--baseline", multiple=True, metavar="RUN", help="Compare all other runs with this run. Repeat the "
              "option if the baseline has several captures.  [default: the first run]")  # fmt: skip
@click.option("--against", nargs=2, metavar="BASE OTHER", help="Show only differences that do not also exist "
              "between these two earlier runs.")  # fmt: skip
@click.option("--fail-on", "conditions", multiple=True, metavar="CONDITION", help="Exit with code 1 if this limit "
              "is exceeded beyond noise. Examples: 'step_time > 3%', 'operators.self_cpu_ns[matmul] > +2ms', "
              "'memory_places.peak_bytes[cpu] > 1GiB' (peak of the entire capture). Repeat the option for several "
              "conditions.")  # fmt: skip
@click.option("--per", type=click.Choice(["sample", "token", "flop"]), help="Compare the time per sample, token or "
              "FLOP instead of the time per step.")  # fmt: skip
@click.option(
    "--samples", metavar="A,B", help="Number of samples per step in each run, for runs that do not record this number."
)
@click.option(
    "--tokens", metavar="A,B", help="Number of tokens per step in each run, for runs that do not record this number."
)
@click.option("--noise", metavar="SHARE%", help="Standard deviation of the step time between equal runs, for example "
              "2% on a dedicated machine. Used if each side has a single capture.  [default: what perfkit calibrate "
              "--noise and verify measured on this machine, else 10% of host time and 2% of device time]")  # fmt: skip
@click.option("--view", "views", multiple=True, metavar="NAME", help="Show only this table of the comparison; 'all' "
              "shows every table. Repeat the option or use commas for several tables.")  # fmt: skip
@click.option("--by", multiple=True, metavar="GROUPING", help="Split the rows of the table memory_peak by this "
              "grouping: line (of the user's code), stack, stack=N (innermost frames), module, phase, shape, step or "
              "thread.")  # fmt: skip
@options.limit_option("depends on the table; no limit in json and csv")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html; markdown shows ten rows of the main tables")
@options.output
@options.language
@options.reads
def compare(
    runs: tuple[str, ...],
    baseline: tuple[str, ...],
    against: tuple[str, str] | None,
    views: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    read_options: ReadOptions,
    **values: Any,
) -> int:
    """Compare runs with the first run, or with --baseline.

    A RUN is a run folder or a trace file. For several captures of the same training, separate them by commas or write a
    quoted pattern ('runs/main-*'). The steps of all captures of a run are pooled. For two runs, the tables show where
    the difference comes from. For more runs, the tables have one column per run.

    Operators are matched by canonical name, so the runs may come from different frameworks. Such runs differ a lot. To
    see only new differences, use --against with an earlier pair.

    Exit codes: 0 if the comparison succeeds, 1 if a limit of --fail-on is exceeded beyond noise, 2 if a run or an
    option is invalid."""
    from perfkit_core.compare import multi_run
    from perfkit_core.compare.against import against_report
    from perfkit_core.compare.captures import of_one_kind
    from perfkit_core.compare.kinds_table import kinds_section
    from perfkit_core.compare.report import comparison_report, first_look, without_causes
    from perfkit_core.output.renderers.markdown import comment
    from perfkit_core.output.report.summary import cut

    chosen = renderer(format_name, output)
    named = named_runs(runs, baseline)
    compare_options = parsed_options(values, len(named))
    if compare_options.by and (against or len(named) != 2):
        raise UsageError("--by requires two runs", "example: perfkit compare A B --view memory_peak --by line")
    if against and len(named) != 2:
        hint = "example: perfkit compare A B --against OLD_A OLD_B"
        raise UsageError(f"--against requires two runs, not {len(named)}", hint)
    paths = [captures for _, captures in named] + [tuple(_captures(text)) for text in against or ()]
    refuse_overwriting(output, [path for run in paths for path in run])
    traces = [[loaded([path], read_options) for path in run] for run in paths]
    captures = of_one_kind(traces)
    names = [name for name, _ in named]
    with working("comparing"):
        if against:
            report = against_report((captures[0], captures[1]), (captures[2], captures[3]), compare_options, names)
        elif len(names) == 2:
            report = comparison_report(captures[0], captures[1], compare_options, names, kinds_section(traces))
        else:
            report = multi_run.multi_run_report(
                [multi_run.Run(name, tuple(run)) for name, run in zip(names, captures, strict=True)], compare_options
            )
    tables = options.names(views)
    if chosen.name == "markdown" and not views:
        present = {section.name for section in report.sections}
        tables = [name for name in _COMMENT if name in present]
        limit = _COMMENT_ROWS if limit is None else limit
        report = without_causes(report)
        chosen = replace(chosen, render=comment)
    brief = chosen.name == "text" and not views
    if brief:
        report = first_look(report, f"perfkit compare {arguments([*baseline, *runs], read_options)} --view all")
        limit = _SCREEN_ROWS if limit is None else limit
    report = _only(report, tables)
    if chosen.name not in FOR_PEOPLE:
        report = cut(report, limit or None)
    elif limit is not None:
        sections = (s if s.name in _UNLIMITED else replace(s, limit=limit or None) for s in report.sections)
        report = replace(report, sections=tuple(sections))
    emit(replace(report, by_view=True), chosen, output, brief)
    say_written(output)
    # Failed and undecided conditions are also printed to stderr, so that they are in the log even if -o is used.
    gates = [("", report.data.get("gate", ()))]
    gates += [(f"{run['name']}: ", run["gate"]) for run in report.data.get("runs", ())]
    results = [(outcome["result"], f"{run}{outcome['condition']}") for run, gate in gates for outcome in gate]
    for result, text in results:
        if result != "passed":
            echo(f"perfkit: gate {result}: {text}", err=True)
    return FAILED if any(result == "failed" for result, _ in results) else 0


def parsed_options(values: Mapping[str, Any], runs: int) -> CompareOptions:
    """Parse the values of --per, --samples, --tokens, --fail-on, --noise and --by. Raises UsageError."""
    from perfkit_core.compare.gate.conditions import parsed
    from perfkit_core.compare.pair import CompareOptions

    per = values["per"]
    if values["tokens"] and per != "token":
        raise UsageError("--tokens requires --per token", "add --per token")
    if values["samples"] and per not in (None, "sample"):
        raise UsageError("--samples requires --per sample", "use --per sample")
    amounts: list[int] = []
    name = "tokens" if per == "token" else "samples"
    if values[name] is not None:
        parts = [part.strip() for part in values[name].split(",")]
        if not all(re.fullmatch(r"[1-9]\d{0,17}", part) for part in parts) or len(parts) not in (1, runs):
            text = f"--{name} {values[name]!r} must be one positive whole number, or one per run ({runs} runs)"
            raise UsageError(text, f"example: --{name} 32,64")
        amounts = [int(part) for part in parts]
    share, noise = None, values["noise"]
    if noise is not None:
        hint = "write a percentage, as in --noise 2%"
        try:
            share = parse_quantity(noise, SHARES, needs_unit=True)
        except UsageError as error:
            raise UsageError(f"--noise {error.message}", hint) from None
        if not 0 <= share <= 1:
            raise UsageError(f"--noise {noise!r} is not between 0% and 100%", hint)
    amounts = amounts * runs if len(amounts) == 1 else amounts
    by = tuple(options.names(values.get("by", ())))
    return CompareOptions(per, tuple(amounts), tuple(map(parsed, values["conditions"])), share, by)


def named_runs(texts: Sequence[str], baseline: Sequence[str]) -> list[tuple[str, tuple[Path, ...]]]:
    """Return the short name and the captures of each run. The run of ``--baseline`` is first.

    An argument may name several captures, separated by commas or as a glob pattern. If more than two runs are given,
    files that are not profiles (such as HTML pages) are skipped. They are listed on stderr. Raises UsageError and
    SourceError."""
    from perfkit_core.compare.pair import distinguishing
    from perfkit_core.output.report.run_list import recognised

    base = tuple(path for text in baseline for path in _captures(text))
    runs = [tuple(_captures(text)) for text in texts]
    if base:
        other_runs = [run for run in runs if not set(run) <= set(base)]  # DIR/* also matches the baseline
        runs = [base, *(other_runs or runs)]
    if len(runs) > 2:
        # A missing run stays in the list, so that reading it raises an error.
        left_out = [run for run in runs if len(run) == 1 and exists(run[0]) and not recognised(run[0])]
        if left_out:
            more = f" and {len(left_out) - 3} more" if left_out[3:] else ""
            echo(f"skipped (not a profile): {', '.join(str(run[0]) for run in left_out[:3])}{more}", err=True)
            runs = [run for run in runs if run not in left_out]
    if len(runs) < 2:
        raise UsageError("a comparison needs at least two runs", "example: perfkit compare A B, or DIR/*")
    return list(zip(distinguishing([paths[0] for paths in runs]), runs, strict=True))


def _captures(text: str) -> Iterator[Path]:
    from perfkit_core.compare.captures import matching

    parts = [part for part in map(str.strip, text.split(",")) if part]
    if not parts:
        raise UsageError(f"{text!r} names no run", "separate the captures of one run by commas, as in A1,A2")
    path = as_path(text)
    if is_remote(path) or exists(path):
        yield path
        return
    for part in parts:
        yield from matching(part)


def _only(report: Report, names: Sequence[str]) -> Report:
    from perfkit_core.output.report.summary import ALIASES

    sections = {section.name: section for section in report.sections}
    views = {view: table for table, view in ALIASES.items() if table in sections}
    names = [name if name in sections else views.get(name, name) for name in names]
    for name in names:
        if name in sections or name == "all":
            continue
        hint = ""
        if name == "gate":
            hint = "this table exists only with --fail-on; "
        elif name in get_plugins().views():
            hint = f"--fail-on '{name}.COLUMN[ROW] > 3%' compares a number of this view; "
        raise UsageError(f"the comparison has no table {name!r}", hint + spelled_like(name, (*sections, "all")))
    if not names or "all" in names:
        return report
    return replace(report, sections=tuple(sections[name] for name in names))
