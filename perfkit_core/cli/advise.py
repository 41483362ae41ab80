"""``perfkit advise``: suggest changes and predict their savings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.base.system.paths import without_secrets
from perfkit_core.cli import options
from perfkit_core.cli.output import (
    arguments,
    echo,
    emit,
    loaded,
    refuse_overwriting,
    renderer,
    say_written,
    working,
    write,
)
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.advice.advice import Advices
    from perfkit_core.plugins.contracts import Renderer
    from perfkit_core.readers.read_options import ReadOptions
    from perfkit_core.trace.model.trace import Trace


@click.command(epilog="Example: perfkit advise runs/baseline --what-if loader-workers=4")
@click.argument("sources", metavar="[SOURCE...]", nargs=-1, type=options.LOCATION)
@click.option("--explain", metavar="ID", help="Show all details of the advice with this id. A prefix is enough.")
@click.option("--what-if", "questions", multiple=True, metavar="RULE=VALUE", help="Predict the step time for this "
              "value of a rule, such as loader-workers=4, even if the rule gives no advice. Repeat the option for "
              "several values. Each value is predicted separately.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Apply only this rule. Repeat the option or use "
              "commas for several rules. 'perfkit plugins' lists all rules.")  # fmt: skip
@click.option("--threshold", "thresholds", multiple=True, metavar="NAME=VALUE", help="Override a threshold of the "
              "rules, such as loader_share=0.1. Repeat the option for several thresholds.")  # fmt: skip
@click.option("--identity", "only_identity", is_flag=True, help="Show only the replay error: the difference between "
              "the recorded step time and the replay of the unchanged recording. Each SOURCE is a separate "
              "profile.")  # fmt: skip
@click.option("--ledger", type=options.LOCATION, metavar="FILE", help="Show how earlier predictions compare with "
              "measurements. FILE was written by perfkit verify --ledger. No SOURCE is needed.")  # fmt: skip
@options.limit_option("3; 0 shows all items of advice with all details", "items of advice in text")
@options.format_option("text, markdown, html, json, or csv (only the table)")
@options.output
@options.language
@options.reads
def advise(
    sources: tuple[Path, ...],
    explain: str | None,
    questions: tuple[str, ...],
    rules: tuple[str, ...],
    thresholds: tuple[str, ...],
    only_identity: bool,
    ledger: Path | None,
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    read_options: ReadOptions,
) -> None:
    """Suggest changes, and predict how much time each change saves.

    To predict a saving, perfkit replays the recording with the change applied. If another method was used, the output
    names it. Every prediction has an interval. A SOURCE is a run folder, a trace file or a folder of trace files.
    Several sources are read as the ranks of one profile."""
    from perfkit_core.advice import ledger as outcomes
    from perfkit_core.advice.identity import identity_report
    from perfkit_core.views.steps.inferred_steps import with_inferred_steps

    chosen = renderer(format_name, output)
    refuse_overwriting(output, sources if ledger is None else (*sources, ledger))
    if not sources and ledger is None:
        raise UsageError("no source given", "name a run folder or a trace file")
    if (explain is not None) + bool(questions) + only_identity > 1:
        raise UsageError("--explain, --what-if and --identity cannot be combined", "use only one of them")
    if only_identity:
        with working("replaying"):
            report = identity_report(sources, read_options)
        emit(report, chosen, output)
    elif not sources and ledger is not None:
        emit(outcomes.report(ledger), chosen, output)
    else:
        numbers = dict(map(_number, thresholds))
        places = list(map(without_secrets, sources))
        source = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
        trace = loaded(sources, read_options).with_meta(source=source)
        with working("replaying"):
            trace = with_inferred_steps(trace)
            advices = _advices(trace, questions, options.names(rules), numbers)
        _show(replace(advices, source=arguments(sources, read_options)), trace, explain, ledger, limit, chosen, output)
    say_written(output)


def _advices(trace: Trace, questions: tuple[str, ...], rules: list[str], thresholds: dict[str, float]) -> Advices:
    from perfkit_core.advice.engine import advise, what_ifs

    if not questions:
        return advise(trace, rules=rules, thresholds=thresholds)
    if rules:
        raise UsageError("--rule and --what-if cannot be combined", "--what-if already selects its rule")
    advices = what_ifs(trace, list(map(_number, questions)), thresholds=thresholds)
    for rule, why in advices.not_evaluable.items():
        raise UsageError(f"--what-if {rule}: {why}")
    return advices


def _number(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        hint = "write NAME=NUMBER, as in --what-if loader-workers=4 or --threshold loader_share=0.1"
        raise UsageError(f"the value in {text!r} is not a number" if sign else f"{text!r} has no value", hint) from None


def _show(
    advices: Advices,
    trace: Trace,
    explain: str | None,
    ledger: Path | None,
    limit: int | None,
    chosen: Renderer,
    output: Path | None,
) -> None:
    import msgspec

    from perfkit_core.advice import explain as explaining
    from perfkit_core.advice import ledger as outcomes
    from perfkit_core.advice import reports
    from perfkit_core.output.renderers.json import document
    from perfkit_core.pages import advice as page

    explained = None if explain is None else explaining.meant(advices, explain)
    records = outcomes.of_rules(ledger, [explained.rule] if explained else [advice.rule for advice in advices.advice])
    if chosen.name == "json":
        if explained is None:
            content = explaining.document(advices, trace, records)
        else:
            content = explaining.advice_data(explained, advices, records)
        text = document(content if ledger is None else content | {"ledger": msgspec.to_builtins(records)})
        if output is None:
            echo(text, nl=False)
        else:
            write(text, output)
    elif chosen.name == "csv":
        emit(reports.table_report(advices, trace), chosen, output)
    elif chosen.name == "html":
        shown = None if ledger is None else records
        report = page.explained(explained, advices, trace, shown) if explained else page.report(advices, trace, shown)
        emit(report, chosen, output)
    else:
        if explained:
            report = explaining.report(explained, advices, trace, records)
        elif chosen.name == "text" and limit != 0:
            most = reports.SHOWN if limit is None else limit
            report = reports.brief(advices, trace, records, most)
        else:
            report = reports.report(advices, trace, records, every=chosen.name != "text")
        if ledger is not None:
            report = replace(report, sections=(*report.sections, outcomes.section(records)))
        emit(report, chosen, output, brief=explained is None and limit is None)
