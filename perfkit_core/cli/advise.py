"""``perfkit advise``: what to change, what it should save, and how certain that is."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, loaded, refuse_overwriting, renderer, say_written, working, write
from perfkit_core.errors import UsageError
from perfkit_core.system.paths import without_secrets

if TYPE_CHECKING:
    from perfkit_core.advice.advice import Advices
    from perfkit_core.model.trace import Trace
    from perfkit_core.plugins.contracts import Renderer

_SHOWN_SOURCES: Final = 3
"""Sources that are written out in a command of a hint."""


@click.command(epilog="Example: perfkit advise runs/baseline --what-if loader-workers=4")
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=options.LOCATION)
@click.option("--explain", metavar="ID", help="Show everything about one advice; a prefix of its id is enough.")
@click.option("--what-if", "questions", multiple=True, metavar="RULE=VALUE", help="Predict the effect of this value, "
              "whether or not the rule applies: loader-workers=4. Repeatable; each is predicted alone.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Apply only this rule. Repeat it or use commas for "
              "several; 'perfkit plugins' lists them.")  # fmt: skip
@click.option("--threshold", "thresholds", multiple=True, metavar="NAME=VALUE", help="Override a threshold of the "
              "rules, such as loader_share=0.1. Repeatable.")  # fmt: skip
@click.option("--identity", "only_identity", is_flag=True, help="Show only the replay error; each SOURCE is a "
    "separate profile.")  # fmt: skip
@click.option("--ledger", type=options.LOCATION, metavar="FILE", help="Show how measured predictions turned out, from "
              "the ledger of perfkit verify; needs no SOURCE.")  # fmt: skip
@options.format_option("text, markdown, html or json; csv has the table only")
@options.output
@options.language
@options.partial
def advise(
    sources: tuple[Path, ...],
    explain: str | None,
    questions: tuple[str, ...],
    rules: tuple[str, ...],
    thresholds: tuple[str, ...],
    only_identity: bool,
    ledger: Path | None,
    format_name: str | None,
    output: Path | None,
    partial: bool,
) -> None:
    """Suggest changes, and predict what each of them saves.

    Every number comes from a replay of the recording with the change applied, or states its other origin, and has an
    interval. A SOURCE is a run folder, a trace file or a folder of trace files; several are the ranks of one profile.
    """
    from perfkit_core.advice import ledger as outcomes
    from perfkit_core.advice.reports import identity_report

    chosen = renderer(format_name, output)
    refuse_overwriting(output, sources if ledger is None else (*sources, ledger))
    if not sources and ledger is None:
        raise UsageError("no source given", "give a run folder or a trace file")
    if (explain is not None) + bool(questions) + only_identity > 1:
        raise UsageError("--explain, --what-if and --identity exclude each other", "use one at a time")
    if only_identity:
        with working("replaying"):
            report = identity_report(sources, partial)
        emit(report, chosen, output)
    elif not sources and ledger is not None:
        emit(outcomes.report(ledger), chosen, output)
    else:
        numbers = dict(map(_number, thresholds))
        places = list(map(without_secrets, sources))
        source = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
        trace = loaded(sources, partial).with_meta(source=source)
        with working("replaying"):
            advices = _advices(trace, questions, options.names(rules), numbers)
        command = shlex.join(places) if len(places) <= _SHOWN_SOURCES else "SOURCE"
        _show(replace(advices, source=command), trace, explain, ledger, chosen, output)
    say_written(output)


def _advices(trace: Trace, questions: tuple[str, ...], rules: list[str], thresholds: dict[str, float]) -> Advices:
    from perfkit_core.advice.engine import advise, what_ifs

    if not questions:
        return advise(trace, rules=rules, thresholds=thresholds)
    if rules:
        raise UsageError("--rule and --what-if exclude each other", "--what-if already selects its rule")
    advices = what_ifs(trace, list(map(_number, questions)), thresholds=thresholds)
    for rule, why in advices.not_evaluable.items():
        raise UsageError(f"--what-if {rule}: {why}")
    return advices


def _number(text: str) -> tuple[str, float]:
    """Return name and number of NAME=VALUE. Raises UsageError."""
    name, sign, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        hint = "write a name and a number: --what-if loader-workers=4, --threshold loader_share=0.1"
        raise UsageError(f"not a name and a number: {text!r}" if sign else f"no number in {text!r}", hint) from None


def _show(
    advices: Advices, trace: Trace, explain: str | None, ledger: Path | None, chosen: Renderer, output: Path | None
) -> None:
    import msgspec

    from perfkit_core.advice import explain as explaining
    from perfkit_core.advice import ledger as outcomes
    from perfkit_core.advice import reports
    from perfkit_core.pages import advice as page
    from perfkit_core.renderers.json import document

    one = None if explain is None else explaining.meant(advices, explain)
    records = outcomes.of_rules(ledger, [one.rule] if one else [advice.rule for advice in advices.advice])
    if chosen.name == "json":
        if one is None:
            content = explaining.document(advices, trace, records)
        else:
            content = explaining.advice_data(one, advices, records)
        text = document(content if ledger is None else content | {"ledger": msgspec.to_builtins(records)})
        if output is None:
            click.echo(text, nl=False)
        else:
            write(text, output)
    elif chosen.name == "csv":
        emit(reports.table_report(advices, trace), chosen, output)
    elif chosen.name == "html":
        shown = None if ledger is None else records
        emit(page.explained(one, advices, trace, shown) if one else page.report(advices, trace, shown), chosen, output)
    else:
        if one:
            report = explaining.report(one, advices, trace, records)
        else:
            report = reports.report(advices, trace, records, every=chosen.name != "text")
        if ledger is not None:
            report = replace(report, sections=(*report.sections, outcomes.section(records)))
        emit(report, chosen, output)
